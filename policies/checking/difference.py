"""Describes in words what changed between two documents."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from policies.checking.possible import Search
from policies.checking.tightening import Around, Verdict, verdict
from policies.document import Canary, Constraint, PolicyBody, Preference
from policies.selectors import Selector


_MAY_WIDEN: Final = " (may widen what is allowed)"
_NARROWS: Final = " (narrows what is allowed)"
_MARKS: Final[Mapping[Verdict, str]] = {"may widen": _MAY_WIDEN, "narrows": _NARROWS, "same": ""}
FIELD_WORDS: Final[Mapping[str, str]] = {
    "when": "when",
    "allow_only": "answered only by",
    "forbid": "never answered by",
    "deny": "refused with",
    "require_approval": "refused without an approval label, with",
    "cap_output_tokens": "output tokens at most",
    "cap_input_tokens": "input tokens at most",
    "no_cache": "kept out of the response cache",
    "audit_content": "content in the record",
    "pseudonymise": "findings leave as surrogates",
    "redact": "findings leave blackened",
    "scan_output": "answers are scanned to",
    "route": "asked for as auto:",
    "targets": "first",
    "order": "ordered by",
    "weights": "shares",
    "canary": "canary",
    "sticky": "the same asker is the same",
    "hedge_after_ms": "a second target is asked after milliseconds",
    "cascade_above_percent": "one tier up above this doubt in percent",
    "stay_warm": "stays where the prompt is cached",
    "cache_s": "the same answer again for seconds",
    "cache_like_percent": "also to questions as near as, in percent",
    "output_tokens_max": "output tokens at most",
    "when_requested_model_closed": "for a requested model that is closed",
}
"""Words for a field of a rule or of the defaults, for readers who write no policies."""
Subject: TypeAlias = Literal["default", "constraint", "preference", "order", "test"]


class Amendment(msgspec.Struct, frozen=True):
    """One change between two documents; `name` is that of the default or the rule, if it has one.

    `may_widen` marks a change that may let a request reach a target that was closed to it, and
    `narrows` one that is shown not to (`checking.tightening`). A changed constraint with neither
    lets every request reach what it reached before.
    """

    subject: Subject
    name: str
    sentence: str
    may_widen: bool = False
    narrows: bool = False


def difference(before: PolicyBody, after: PolicyBody) -> tuple[str, ...]:
    """One sentence per change, the widening ones marked; empty if both decide the same."""
    return tuple(each.sentence for each in amendments(before, after))


def amendments(before: PolicyBody, after: PolicyBody) -> tuple[Amendment, ...]:
    """The changes and what each is about; empty if both decide the same."""
    return (
        *_defaults(before, after),
        *_constraints(before, after),
        *_preferences(before.preferences, after.preferences),
        *_order(before.preferences, after.preferences),
        *_tests(before, after),
    )


def _defaults(before: PolicyBody, after: PolicyBody) -> Iterator[Amendment]:
    for name in type(before.defaults).__struct_fields__:
        old, new = getattr(before.defaults, name), getattr(after.defaults, name)
        if old != new:
            is_of_closed = name == "when_requested_model_closed"
            opens, shuts = is_of_closed and new == "substitute", is_of_closed and new == "refuse"
            mark = _MAY_WIDEN if opens else _NARROWS if shuts else ""
            sentence = f"default{mark}, {FIELD_WORDS[name]}: {_words(old)} → {_words(new)}"
            yield Amendment("default", name, sentence, opens, shuts)


def _constraints(before: PolicyBody, after: PolicyBody) -> Iterator[Amendment]:
    old = {rule.name: rule for rule in before.constraints}
    new = {rule.name: rule for rule in after.constraints}
    search, around = Search(), Around.between(before, after)
    for name, rule in old.items():
        if name not in new:
            sentence = f"constraint *{name}* was removed{_MAY_WIDEN}: {_described(rule)}"
            yield Amendment("constraint", name, sentence, may_widen=True)
    for name, rule in new.items():
        if name not in old:
            yield Amendment(
                "constraint", name, f"constraint *{name}* was added: {_described(rule)}"
            )
        elif rule != old[name]:
            found = verdict(old[name], rule, around, search)
            sentence = f"constraint *{name}* changed{_MARKS[found]}: {_changes(old[name], rule)}"
            yield Amendment("constraint", name, sentence, found == "may widen", found == "narrows")


def _preferences(before: Sequence[Preference], after: Sequence[Preference]) -> Iterator[Amendment]:
    old = {rule.name: rule for rule in before}
    new = {rule.name: rule for rule in after}
    for name, rule in old.items():
        if name not in new:
            sentence = f"preference *{name}* was removed: {_described(rule)}"
            yield Amendment("preference", name, sentence)
    for name, rule in new.items():
        if name not in old:
            sentence = f"preference *{name}* was added: {_described(rule)}"
            yield Amendment("preference", name, sentence)
        elif rule != old[name]:
            sentence = f"preference *{name}* changed: {_changes(old[name], rule)}"
            yield Amendment("preference", name, sentence)


def _order(before: Sequence[Preference], after: Sequence[Preference]) -> Iterator[Amendment]:
    """Constraints apply in any order; of preferences the first that matches counts."""
    kept = {rule.name for rule in before} & {rule.name for rule in after}
    old = [rule.name for rule in before if rule.name in kept]
    new = [rule.name for rule in after if rule.name in kept]
    if old != new:
        sentence = f"preferences are asked in another order: {', '.join(new)}"
        yield Amendment("order", "", sentence)


def _tests(before: PolicyBody, after: PolicyBody) -> Iterator[Amendment]:
    old = {case.name: case for case in before.tests}
    new = {case.name: case for case in after.tests}
    gone = [name for name in old if name not in new]
    if gone:
        yield Amendment("test", "", f"test cases removed: {', '.join(gone)}")
    changed = [name for name in old if name in new and new[name] != old[name]]
    if changed:
        yield Amendment("test", "", f"test cases changed: {', '.join(changed)}")


def _changes(old: Constraint | Preference, new: Constraint | Preference) -> str:
    return "; ".join(
        f"{FIELD_WORDS[name]}: {_words(was)} → {_words(now)}"
        for name in type(new).__struct_fields__
        if (was := getattr(old, name)) != (now := getattr(new, name))
    )


def _described(rule: Constraint | Preference) -> str:
    defaults = type(rule)("")
    parts = [
        f"{FIELD_WORDS[name]}: {_words(value)}"
        for name in type(rule).__struct_fields__[1:]
        if (value := getattr(rule, name)) != getattr(defaults, name)
    ]
    return "; ".join(parts)


def _words(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "yes" if value else "no"
        case tuple():
            return ", ".join(map(str, value)) or "nothing"
        case Mapping():
            return ", ".join(f"{key} {count}" for key, count in sorted(value.items())) or "nothing"
        case Selector():
            return str(value) or "any target"
        case Canary():
            checked = f", checked for {', '.join(value.checks)}" if value.checks else ""
            return f"{value.target} for {value.percent:g}%{checked}"
    return str(value)
