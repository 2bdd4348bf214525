"""The filter of the list of keys: words, and `field:value` for what a key is. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from admin.keys.lines import STATES, KeyLine
from gateway.errors import RequestInvalid


FIELDS: Final = ("workspace", "project", "owner", "state", "model")
QUERY_LENGTH_MAX: Final = 1_000
HINT: Final = f"Words, or one of {', '.join(f'{name}:…' for name in FIELDS)}"


class KeyFilter(Struct, frozen=True):
    """What must hold of a key; every part of it."""

    text: str = ""
    words: tuple[str, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()

    def takes(self, line: KeyLine) -> bool:
        if not (self.words or self.fields):
            return True
        said = f"{line.key_id} {line.name} {line.workspace}/{line.project} {line.owner}".lower()
        return all(word in said for word in self.words) and all(
            _holds(line, name, value) for name, value in self.fields
        )


def key_filter(text: str) -> KeyFilter:
    """Read a filter.

    Raises:
        RequestInvalid: with what is not understood.
    """
    if len(text) > QUERY_LENGTH_MAX:
        raise RequestInvalid("this filter is too long", parameter="q")
    words, fields = [], []
    for part in text.split():
        name, colon, value = part.partition(":")
        if not colon:
            words.append(part.lower())
            continue
        if name not in FIELDS:
            raise RequestInvalid(f"There is no filter `{name[:40]}`. {HINT}.", parameter="q")
        if name == "state" and value not in STATES:
            known = ", ".join(STATES)
            raise RequestInvalid(f"`state` is one of {known}.", parameter="q")
        fields.append((name, value.lower()))
    return KeyFilter(text.strip(), tuple(words), tuple(fields))


def counted(lines: Sequence[KeyLine]) -> list[tuple[str, int]]:
    """How many keys are in each state."""
    found = Counter(state for line in lines for state in line.states)
    return [(state, found[state]) for state in STATES]


def _holds(line: KeyLine, name: str, value: str) -> bool:
    if name == "state":
        return value in line.states
    if name == "model":
        return line.models is None or value in line.models
    return value == str(getattr(line, name)).lower()
