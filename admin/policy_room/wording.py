"""Describes a rule's effects for a list: one short phrase per effect. Pure."""

from collections.abc import Iterator

from policies.document import Constraint, Defaults, Preference
from policies.selectors import Selector


_SCANS = {"count": "answers are scanned", "mask": "answers are scanned and masked"}
_SWITCHES = (
    ("no_cache", "not cached"),
    ("pseudonymise", "findings are replaced by surrogates"),
    ("redact", "findings are redacted"),
)


def effects(rule: Constraint | Preference) -> tuple[str, ...]:
    """The phrases, the weightiest first."""
    return tuple(_of_constraint(rule) if isinstance(rule, Constraint) else _of_preference(rule))


def defaults_in_words(defaults: Defaults) -> tuple[str, ...]:
    """What holds when no rule says otherwise."""
    closed = defaults.when_requested_model_closed
    parts = [f"order {', '.join(defaults.order)}"]
    if defaults.output_tokens_max is not None:
        parts.append(f"at most {defaults.output_tokens_max} output tokens")
    if defaults.cache_s:
        parts.append(f"answers are reused for {defaults.cache_s} s")
    if defaults.cache_like_percent:
        parts.append(f"also for questions at least {defaults.cache_like_percent:g}% similar")
    parts.append(
        "a closed model is replaced" if closed == "substitute" else "a closed model is refused"
    )
    return tuple(parts)


def _of_constraint(rule: Constraint) -> Iterator[str]:
    said: tuple[tuple[str, object], ...] = (
        ("refuse: {}", rule.deny),
        ("needs approval: {}", rule.require_approval),
        ("only {}", _chosen(rule.allow_only)),
        ("never {}", _chosen(rule.forbid)),
        ("at most {} output tokens", rule.cap_output_tokens),
        ("at most {} input tokens", rule.cap_input_tokens),
        ("{}", _SCANS.get(rule.scan_output or "")),
        ("content kept: {}", rule.audit_content),
    )
    for phrase, value in said:
        if value is not None:
            yield phrase.format(value)
    for name, phrase in _SWITCHES:
        if getattr(rule, name):
            yield phrase


def _chosen(selector: Selector | None) -> str | None:
    """A selector in words; one that is empty chooses every target."""
    return None if selector is None else str(selector) or "any target"


def _of_preference(rule: Preference) -> Iterator[str]:
    if rule.targets:
        yield f"first {', '.join(rule.targets)}"
    if rule.order:
        yield f"order {', '.join(rule.order)}"
    if rule.weights:
        yield "shares " + ", ".join(f"{name} {share}" for name, share in rule.weights.items())
    if rule.canary is not None:
        yield f"{rule.canary.percent:g}% to {rule.canary.target}"
    if rule.sticky != "key":
        yield f"sticky by {rule.sticky}"
    if rule.hedge_after_ms is not None:
        yield f"asks a second target after {rule.hedge_after_ms} ms"
    if rule.cascade_above_percent is not None:
        yield f"one tier up above {rule.cascade_above_percent:g}% doubt"
    if rule.stay_warm:
        yield "stays with the target that has the prompt cached"
    yield from _of_the_cache(rule)


def _of_the_cache(rule: Preference) -> Iterator[str]:
    if rule.cache_s is not None:
        yield (
            f"answers are reused for {rule.cache_s} s" if rule.cache_s else "answers are not reused"
        )
    if rule.cache_like_percent is not None:
        yield f"also for questions at least {rule.cache_like_percent:g}% similar"
