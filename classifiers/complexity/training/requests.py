"""Requests drawn from this project's templates, of kinds that the public sets lack."""

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from classifiers.complexity.training.data import REQUESTS, Row


FILE: Final = Path(__file__).parent / "requests.txt"
GAINS: Final = {"light": 0.0, "standard": 0.3, "demanding": 0.9}
"""Assumed gain of a strong model; no answer was measured."""

DRAWS: Final = {"en": 20}
DRAWS_ELSEWHERE: Final = 12
_CHOICE = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
_PASTED_LINES = (4, 60)
_WRAPPED_SHARE = 0.3
_BEFORE = (
    *("Please help me. ", "Could you please do this: ", "I hope you are well. ", "Quick one. "),
    *("I am new here and a colleague sent me. ", "We talked about the weather yesterday. "),
    *("It would be great if you could help. ", "My manager asked for this. "),
)
_AFTER = (
    *(" Take your time.", " I need it today.", " Let me know if anything is unclear."),
    *(" I have a meeting later.", " Please and thank you.", " This is for work."),
)


class Template(Struct, frozen=True):
    """A line with choices, and what is assumed of every request drawn from it."""

    tier: str
    domain: str
    language: str
    line: str


def read_templates(file: Path = FILE) -> tuple[list[Template], str]:
    """All templates, and the sha256 of their file."""
    raw = file.read_bytes()
    found: list[Template] = []
    tier = domain = language = ""
    for line in raw.decode().splitlines():
        if line.startswith("== "):
            _, tier, domain, language = line.split()
        elif line and tier:
            found.append(Template(tier, domain, language, line))
    return found, hashlib.sha256(raw).hexdigest()


def draw(templates: Sequence[Template], seed: int = 5) -> list[Row]:
    """Rows like those of the public sets, without repetition; the same for the same seed."""
    rng = random.Random(seed)
    pasted = {
        kind: [one.line for one in templates if (one.tier, one.domain) == ("pasted", kind)]
        for kind in ("code", "document")
    }
    rows: dict[str, Row] = {}
    for one in templates:
        if one.tier == "pasted":
            continue
        for _ in range(DRAWS.get(one.language, DRAWS_ELSEWHERE)):
            prompt = _wrapped(_filled(rng, one.line, pasted), rng)
            scores = {"weak": 1.0 - GAINS[one.tier], "strong": 1.0}
            at = f"{REQUESTS}:{len(rows)}"
            rows.setdefault(prompt, Row(at, REQUESTS, one.domain, prompt, scores, "train"))
    return list(rows.values())


def _filled(rng: random.Random, line: str, pasted: Mapping[str, Sequence[str]]) -> str:
    """One choice of each, with pasted text filled in."""
    text = _chosen(rng, line)
    for kind, lines in pasted.items():
        mark = f"{{{kind}}}"
        if mark in text:
            count = rng.randint(*_PASTED_LINES)
            body = "\n".join(_chosen(rng, rng.choice(lines)) for _ in range(count))
            text = text.replace(mark, f"\n\n{body}")
    return text


def _chosen(rng: random.Random, line: str) -> str:
    before = ""
    while line != before:
        before = line
        line = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), line)
    return line


def _wrapped(text: str, rng: random.Random) -> str:
    """Some get chatter around them: it must not count."""
    if rng.random() < _WRAPPED_SHARE:
        text = rng.choice(_BEFORE) + text
    if rng.random() < _WRAPPED_SHARE:
        text += rng.choice(_AFTER)
    return text
