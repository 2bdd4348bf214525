"""Valid names for people of the control plane, and for organisations in their grants."""

import re

from gateway.errors import RequestInvalid
from gateway.oversight.access import EVERYWHERE, NAMES_OF_PARTS, PROVIDED, Grant


_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,62}")
_JOINERS = dict.fromkeys((0x200C, 0x200D))
"""Scripts of India and Persia are spelled with them; alone they have no effect."""
_ORGANISATION = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def check_place_of(grant: Grant) -> None:
    """Raise RequestInvalid if no organisation can have the name in a grant."""
    is_name = _ORGANISATION.fullmatch(grant.organisation) is not None
    if grant.organisation != EVERYWHERE and not is_name:
        raise RequestInvalid("no organisation has such a name", parameter="organisation")


def checked_name(name: str, *, is_provided: bool = False) -> str:
    """The valid name of a person; `is_provided` if an OpenID provider vouches for them.

    Raises:
        RequestInvalid: it is not a possible name, or the gateway itself acts under it.
    """
    if _NAME.fullmatch(name) is None:
        reason = "use 1 to 63 lower-case letters, digits, '.', '_', '@' or '-'"
        raise RequestInvalid(f"name: {reason}", parameter="name")
    if name in NAMES_OF_PARTS or (name.startswith(PROVIDED) and not is_provided):
        reason = "this is what the gateway itself is called in the log: choose another"
        raise RequestInvalid(f"name: {reason}", parameter="name")
    return name


def visible(text: str, parameter: str) -> str:
    """A title as it will appear on terminals, pages and in logs.

    Raises:
        RequestInvalid: it holds control characters, or reverses the text beside it.
    """
    if not text.translate(_JOINERS).isprintable():
        raise RequestInvalid(f"{parameter}: only characters that can be seen", parameter=parameter)
    return text
