"""What changed between two documents, in words."""

from collections.abc import Iterator, Mapping, Sequence

from policies.document import Canary, Constraint, PolicyBody, Preference


def difference(before: PolicyBody, after: PolicyBody) -> tuple[str, ...]:
    """One sentence per change, the widening ones marked; empty when both decide the same."""
    return (
        *_defaults(before, after),
        *_rules("constraint", before.constraints, after.constraints),
        *_rules("preference", before.preferences, after.preferences),
        *_order(before.preferences, after.preferences),
        *_tests(before, after),
    )


def _defaults(before: PolicyBody, after: PolicyBody) -> Iterator[str]:
    for name in type(before.defaults).__struct_fields__:
        old, new = getattr(before.defaults, name), getattr(after.defaults, name)
        if old != new:
            yield f"default {name}: {_words(old)} → {_words(new)}"


def _rules(
    kind: str,
    before: Sequence[Constraint | Preference],
    after: Sequence[Constraint | Preference],
) -> Iterator[str]:
    old = {rule.name: rule for rule in before}
    new = {rule.name: rule for rule in after}
    may_widen = " (may widen what is allowed)" if kind == "constraint" else ""
    for name, rule in old.items():
        if name not in new:
            yield f"{kind} *{name}* was removed{may_widen}: {_described(rule)}"
    for name, rule in new.items():
        if name not in old:
            yield f"{kind} *{name}* was added: {_described(rule)}"
        elif rule != old[name]:
            changes = "; ".join(_changes(old[name], rule))
            yield f"{kind} *{name}* changed{may_widen}: {changes}"


def _order(before: Sequence[Preference], after: Sequence[Preference]) -> Iterator[str]:
    """Constraints apply in any order; of preferences the first that matches counts."""
    kept = {rule.name for rule in before} & {rule.name for rule in after}
    old = [rule.name for rule in before if rule.name in kept]
    new = [rule.name for rule in after if rule.name in kept]
    if old != new:
        yield f"preferences are asked in another order: {', '.join(new)}"


def _tests(before: PolicyBody, after: PolicyBody) -> Iterator[str]:
    old = {case.name: case for case in before.tests}
    new = {case.name: case for case in after.tests}
    gone = [name for name in old if name not in new]
    if gone:
        yield f"test cases removed: {', '.join(gone)}"
    changed = [name for name in old if name in new and new[name] != old[name]]
    if changed:
        yield f"test cases changed: {', '.join(changed)}"


def _changes(old: Constraint | Preference, new: Constraint | Preference) -> Iterator[str]:
    for name in type(new).__struct_fields__:
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            yield f"{name}: {_words(was)} → {_words(now)}"


def _described(rule: Constraint | Preference) -> str:
    defaults = type(rule)("")
    parts = [
        f"{name} {_words(value)}"
        for name in type(rule).__struct_fields__[1:]
        if (value := getattr(rule, name)) != getattr(defaults, name)
    ]
    return ", ".join(parts)


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
        case Canary():
            return f"{value.target} for {value.percent:g} %"
    return str(value)
