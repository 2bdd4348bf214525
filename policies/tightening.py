"""Whether a constraint that changed can only narrow: said where it can be shown, else not.

Shown is: whatever is asked, no target may answer that might not have answered before. That is what
policy decides; whether money or room then suffices is not looked at. Where a model that is asked
for by name and closed is substituted, closing one opens others to that request, so that it counts
as narrowing only where such requests are refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from policies.document import Constraint
from policies.possible import Search
from policies.selectors import Selector


def narrows(old: Constraint, new: Constraint, search: Search, *, refuses: bool) -> bool:
    """Whether a rule became stricter in something, and looser in nothing.

    `refuses` says that the new document refuses a request whose model is closed to it.
    """
    changed = [
        name
        for name in Constraint.__struct_fields__
        if getattr(old, name) != getattr(new, name) and not _is_wording(name, old, new)
    ]
    closes = new.allow_only is not None or new.forbid is not None
    if closes and not refuses and not _CLOSING.isdisjoint(changed):
        return False
    return bool(changed) and all(
        _covers(old.when, new.when, search)
        if name == "when"
        else name in _STRICTER and _STRICTER[name](getattr(old, name), getattr(new, name))
        for name in changed
    )


def within(inner: Selector, outer: Selector) -> bool:
    """Whether everything that `inner` selects is selected by `outer` too; False if unsure."""
    return (
        outer.in_house in (None, inner.in_house)
        and all(
            not getattr(outer, name)
            or (getattr(inner, name) and set(getattr(inner, name)) <= set(getattr(outer, name)))
            for name in ("jurisdictions", "targets", "tiers", "providers")
        )
        and set(outer.capabilities) <= set(inner.capabilities)
        and set(outer.assurances) <= set(inner.assurances)
    )


def _covers(old: str | None, new: str | None, search: Search) -> bool:
    """Whether every request that the rule applied to is one that it applies to still."""
    return not search.could([old], [new])


def _is_wording(name: str, old: Constraint, new: Constraint) -> bool:
    return name in _WORDED and None not in (getattr(old, name), getattr(new, name))


def _is_lower(old: int | None, new: int | None) -> bool:
    return new is not None and (old is None or new < old)


def _allows_less(old: Selector | None, new: Selector | None) -> bool:
    return new is not None and (old is None or within(new, old))


def _forbids_more(old: Selector | None, new: Selector | None) -> bool:
    return new is not None and (old is None or within(old, new))


def _is_set(old: object, new: object) -> bool:
    """Of what is there or not."""
    return bool(new) and not old


_CLOSING: Final = frozenset({"when", "allow_only", "forbid"})
_WORDED: Final = frozenset({"deny", "require_approval"})
"""Their texts are told to who is refused; other words refuse the same."""
_SCANS: Final = (None, "count", "mask")
_STRICTER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "allow_only": _allows_less,
    "forbid": _forbids_more,
    "deny": _is_set,
    "cap_output_tokens": _is_lower,
    "cap_input_tokens": _is_lower,
    "no_cache": _is_set,
    "require_approval": _is_set,
    "pseudonymise": _is_set,
    "redact": _is_set,
    "scan_output": lambda old, new: _SCANS.index(new) > _SCANS.index(old),
}
"""What of a rule can be shown to be stricter. Not in here: what is kept of the content, as the
configuration has a word in it."""
