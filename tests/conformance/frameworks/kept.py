"""The recordings: which framework sent what, shape by shape, and what it was answered."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.types import DialectName
from tests.conformance.frameworks.programs import words
from tests.conformance.round_trips.said import Said


FOLDER = Path(__file__).with_name("recorded")
OWN = frozenset({words.LONG_SYSTEM, words.JSON_QUESTION})
"""Our words that are long."""
ADDED = "Words that the framework adds of its own accord."
ADDED_JSON = "Words that the framework adds of its own accord, about JSON."
DIALECTS: Mapping[str, DialectName] = {
    "/v1/chat/completions": "openai_chat",
    "/v1/responses": "openai_responses",
    "/v1/messages": "anthropic_messages",
}
EMBEDDINGS = "/v1/embeddings"


class Sent(Struct, frozen=True):
    """A request as a framework sent it."""

    framework: str
    shape: str
    number: int
    """Counted from 1 within its shape."""
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    said: Said | None
    """What the vendor answered; None where it was an error or is no words."""

    def __str__(self) -> str:
        return f"{self.framework}: {self.shape} {self.number}"

    @property
    def caller(self) -> DialectName:
        return DIALECTS[self.path.partition("?")[0]]


def file_of(framework: str) -> Path:
    return FOLDER / f"{framework}.jsonl"


def frameworks() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def versions(framework: str) -> Mapping[str, str]:
    first, *_ = file_of(framework).read_text().splitlines()
    packages: Mapping[str, str] = json.loads(first)["packages"]
    return packages


def sent_by(framework: str) -> list[Sent]:
    """In the order in which it was sent."""
    _, *lines = file_of(framework).read_text().splitlines()
    told = [json.loads(line) for line in lines]
    numbers: dict[str, int] = {}
    made = []
    for each in told:
        number = numbers[each["shape"]] = numbers.get(each["shape"], 0) + 1
        said = msgspec.convert(each.pop("said"), Said | None)
        made.append(Sent(framework=framework, number=number, said=said, **each))
    return made
