"""Decides whether a changed constraint can only narrow a policy; "no" unless it can be shown.

What is shown: for every request, no target may answer that could not have answered before. Only
what policy decides counts, not whether the budget or the capacity then suffices. One case needs
care. If a request names a model that is closed, another may be substituted, so closing a model can
open others to that request. Closing more therefore narrows only if no such request can be
substituted: either no request can name a target that the change closes (the rule is for requests
that name none, or other rules refuse them or close the target anyway), or no target is left open
that could take its place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from policies.checking.kinds import Kind, kinds
from policies.checking.possible import Search
from policies.document import Constraint, PolicyBody
from policies.facts import AUTO, ROUTE_PREFIX, TargetFacts
from policies.language.syntax import Compare, ListLiteral, Name, canonical_text
from policies.language.syntax import Literal as Written
from policies.problems import Position
from policies.selectors import Selector, Selects, compile_selector


Verdict: TypeAlias = Literal["narrows", "same", "may widen"]
KINDS_MAX: Final = 20_000
_NAMES_TOGETHER: Final = 32
"""The most names in one condition, since the length of expressions is limited."""
_NAMELESS: Final = f'model_requested == "{AUTO}" or startswith(model_requested, "{ROUTE_PREFIX}")'
"""Requests that leave the choice to the policy never get a substitute."""


class Around(msgspec.Struct, frozen=True):
    """The parts of the rest of a policy that matter for a changed rule."""

    kept: tuple[Constraint, ...]
    """The constraints that are in both documents."""
    denying: tuple[str | None, ...]
    """Conditions under which the new document refuses a request, whatever its model is."""
    refuses: bool
    """Whether it refuses a request whose model is closed to it."""

    @staticmethod
    def between(before: PolicyBody, after: PolicyBody) -> "Around":
        old = {rule.name: rule for rule in before.constraints}
        return Around(
            tuple(rule for rule in after.constraints if rule == old.get(rule.name)),
            tuple(rule.when for rule in after.constraints if rule.deny is not None),
            after.defaults.when_requested_model_closed == "refuse",
        )


def verdict(old: Constraint, new: Constraint, around: Around, search: Search) -> Verdict:
    """Whether the rule became stricter in something and looser in nothing, or neither."""
    if not _is_within(new, old, around, search):
        return "may widen"
    return "same" if _is_within(old, new, around, search) else "narrows"


def _is_within(new: Constraint, old: Constraint, around: Around, search: Search) -> bool:
    """Whether `new` certainly lets no request reach more than `old` does in its place."""
    changed = {
        name
        for name in Constraint.__struct_fields__
        if getattr(old, name) != getattr(new, name) and not _is_wording(name, old, new)
    }
    if any(
        name not in _STRICTER or not _STRICTER[name](getattr(old, name), getattr(new, name))
        for name in changed - _CLOSING
    ):
        return False
    if "when" in changed and search.could([old.when], [new.when]):
        return False
    return changed.isdisjoint(_CLOSING) or _closes_within(new, old, around, search)


def _closes_within(new: Constraint, old: Constraint, around: Around, search: Search) -> bool:
    """Whether closing these targets lets no request reach one that it could not reach before."""
    if not _selectors(old) and not _selectors(new):
        return True
    anyway = [
        rule
        for rule in around.kept
        if _selectors(rule) and not search.could([new.when], [rule.when])
    ]
    seen = _kinds([old, new, *anyway], search)
    if not seen:
        anyway, seen = [], _kinds([old, new], search)
    if not seen:
        return False
    closed_anyway, closed, was_closed = _closer(*anyway), _closer(new), _closer(old)
    left = [kind for kind in seen if not closed_anyway(kind.target)]
    if any(was_closed(kind.target) and not closed(kind.target) for kind in left):
        return False
    if around.refuses or all(closed(kind.target) for kind in left):
        return True
    named = dict.fromkeys(kind.names for kind in seen)
    lost = {(kind.names, was_closed(kind.target)): None for kind in left if closed(kind.target)}
    return not any(
        search.could(
            [new.when, *asking],
            [_NAMELESS, *around.denying, *others, *([old.when] if was else [])],
        )
        for names, was in lost
        for asking, others in _asking(names, [each for each in named if each])
    )


def _kinds(rules: Sequence[Constraint], search: Search) -> tuple[Kind, ...]:
    """The kinds of targets that the rules tell apart; none if they are too many."""
    selectors = [each for rule in rules for each in _selectors(rule)]
    found = kinds(selectors, at_most=min(KINDS_MAX, search.left // len(selectors)))
    search.spend(len(found) * len(selectors))
    return found


def _asking(
    names: Sequence[str], named: Sequence[Sequence[str]]
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Conditions that hold, and that do not, for a request that asks for one of the names.

    Without names: for a request that asks for one that is not among those `named`.
    """
    if names:
        yield from (([each], []) for each in _among(names))
    else:
        yield [], [each for some in named for each in _among(some)]


def _among(names: Sequence[str]) -> Iterator[str]:
    at = Position(1, 1)
    for first in range(0, len(names), _NAMES_TOGETHER):
        some = names[first : first + _NAMES_TOGETHER]
        listed = ListLiteral(tuple(Written(each, at) for each in some), at)
        yield canonical_text(Compare("in", Name("model_requested", at), listed, at))


def _selectors(rule: Constraint) -> list[Selector]:
    return [each for each in (rule.allow_only, rule.forbid) if each is not None]


def _closer(*rules: Constraint) -> Selects:
    """Whether one of the rules closes a target to the requests that it applies to."""
    allowing = [compile_selector(each) for rule in rules if (each := rule.allow_only) is not None]
    forbidding = [compile_selector(each) for rule in rules if (each := rule.forbid) is not None]

    def closes(target: TargetFacts) -> bool:
        return any(each(target) for each in forbidding) or not all(
            each(target) for each in allowing
        )

    return closes


def _is_wording(name: str, old: Constraint, new: Constraint) -> bool:
    return name in _WORDED and None not in (getattr(old, name), getattr(new, name))


def _is_lower(old: int | None, new: int | None) -> bool:
    return new is not None and (old is None or new < old)


def _is_set(old: object, new: object) -> bool:
    """Stricter, for a field that is either set or not."""
    return bool(new) and not old


_CLOSING: Final = frozenset({"when", "allow_only", "forbid"})
_WORDED: Final = frozenset({"deny", "require_approval"})
"""Fields whose text is shown to the refused caller; another text refuses the same."""
_SCANS: Final = (None, "count", "mask")
_STRICTER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "deny": _is_set,
    "cap_output_tokens": _is_lower,
    "cap_input_tokens": _is_lower,
    "no_cache": _is_set,
    "require_approval": _is_set,
    "pseudonymise": _is_set,
    "redact": _is_set,
    "scan_output": lambda old, new: _SCANS.index(new) > _SCANS.index(old),
}
"""How a change of any other field is shown to be stricter. How much content is kept is missing,
because the configuration also decides it."""
