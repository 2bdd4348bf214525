"""Which model somebody meant who wrote its name in another way. Pure."""

from collections.abc import Iterable


def meant(asked: str, names: Iterable[str]) -> str:
    """The one name that differs from what was asked in ways of writing only; empty where none does.

    Ways of writing are capitals, blanks around, dots for dashes, and a vendor in front
    (`openai/NAME`), as other gateways want them.
    """
    wanted = {_plain(asked), _plain(asked.rpartition("/")[2])}
    found = [name for name in names if _plain(name) in wanted]
    return found[0] if len(found) == 1 else ""


def _plain(name: str) -> str:
    return name.strip().lower().replace(".", "-").replace("_", "-")
