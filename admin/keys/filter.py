"""The filter of the list of keys: words, and `field:value` for properties of a key. Pure."""

from typing import Final

from gateway.errors import RequestInvalid
from gateway.store.identity.key_lists import STATES, KeySearch


FIELDS: Final = ("workspace", "project", "owner", "state", "model")
QUERY_LENGTH_MAX: Final = 1_000
HINT: Final = f"Words, or one of {', '.join(f'{name}:…' for name in FIELDS)}"


def key_search(text: str) -> KeySearch:
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
            words.append(part)
            continue
        if name not in FIELDS:
            raise RequestInvalid(f"There is no filter `{name[:40]}`. {HINT}.", parameter="q")
        if name == "state" and value not in STATES:
            known = ", ".join(STATES)
            raise RequestInvalid(f"`state` is one of {known}.", parameter="q")
        fields.append((name, value))
    return KeySearch(tuple(words), tuple(fields))
