"""Reads the written corpus: questions with their answers, unrelated requests, system prompts."""

import random
import re
from dataclasses import dataclass
from pathlib import Path


CORPUS_DIR = Path(__file__).parent / "corpus"
HONEST_ANSWER = (
    "I am the small demo model of Gatewright, and I do not know that."
    " Ask me about Gatewright, or give me a small text task."
)
_SLOT = re.compile(r"\{(noun|place|name|topic|number)\}")


@dataclass(frozen=True, slots=True)
class Entry:
    """Several wordings of one question, and the one right answer."""

    questions: tuple[str, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Fillers:
    """Words for the slots of the unrelated requests and system prompts."""

    words: dict[str, tuple[str, ...]]

    def fill(self, line: str, rng: random.Random) -> str:
        return _SLOT.sub(lambda slot: self._word(slot[1], rng), line)

    def _word(self, kind: str, rng: random.Random) -> str:
        return str(rng.randint(2, 999)) if kind == "number" else rng.choice(self.words[kind])


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything the training script draws from."""

    entries: tuple[Entry, ...]
    off_topic: tuple[str, ...]
    off_topic_wide: tuple[str, ...]
    off_topic_held_out: tuple[str, ...]
    systems: tuple[str, ...]
    words: tuple[str, ...]
    fillers: Fillers


def read_corpus() -> Corpus:
    """The corpus as it stands in `corpus/`; raises `ValueError` if a question appears twice."""
    off_topic, fillers = _off_topic()
    return Corpus(
        entries=_entries(),
        off_topic=off_topic,
        off_topic_wide=tuple(_lines("off_topic_wide.txt")),
        off_topic_held_out=tuple(_lines("off_topic_held_out.txt")),
        systems=tuple(_lines("systems.txt")),
        words=tuple(dict.fromkeys(" ".join(_lines("words.txt")).split())),
        fillers=fillers,
    )


def _lines(name: str) -> list[str]:
    text = (CORPUS_DIR / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _entries() -> tuple[Entry, ...]:
    entries: list[Entry] = []
    questions: list[str] = []
    seen: set[str] = set()
    for line in _lines("gatewright.txt"):
        mark, text = line[0], line[2:]
        if mark == "?":
            if text.lower() in seen:
                raise ValueError(f"question appears twice: {text}")
            seen.add(text.lower())
            questions.append(text)
        else:
            entries.append(Entry(tuple(questions), text))
            questions = []
    return tuple(entries)


def _off_topic() -> tuple[tuple[str, ...], Fillers]:
    requests: list[str] = []
    words: dict[str, tuple[str, ...]] = {}
    for line in _lines("off_topic.txt"):
        key, _, rest = line.partition(": ")
        if key in {"noun", "place", "name", "topic"}:
            words[key] = tuple(rest.split(" | "))
        else:
            requests.append(line)
    return tuple(requests), Fillers(words)
