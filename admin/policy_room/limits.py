"""Limits of a canary as people set and read them: fields of a form, and figures beside them.

Pure. Forms use percent, milliseconds and dollars; rules use shares and micro-dollars.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

from msgspec import Struct

from gateway.configuration.guarding import FIELDS, Field, GuardRules, guard_changes, guard_from
from gateway.errors import RequestInvalid
from gateway.rollout.trials import Arm
from policies.checking.difference import Amendment


PREFIX: Final = "guard."
_SCALES: Final[Mapping[str, int]] = {"share": 100, "microusd": 1_000_000}
_LARGEST: Final = 10**12
_UNITS: Final[Mapping[str, str]] = {
    "share": "%",
    "times": "times",
    "ms": "ms",
    "microusd": "US dollars",
    "count": "",
}


class LimitField(Struct, frozen=True):
    """One field of the form, in the form's units."""

    name: str
    label: str
    value: str
    """Empty for no limit."""
    usual: str
    least: str
    most: str


class Limit(Struct, frozen=True):
    """One limit of a version beside the installation's."""

    name: str
    unit: str
    value: float | None
    usual: float | None
    is_wider: bool
    is_excess: bool


class Compared(Struct, frozen=True):
    """One figure of a canary, the same of what ended beside it, and what it must keep."""

    title: str
    unit: str
    canary: float | None
    beside: float | None
    limits: tuple[Limit, ...]


def limit_fields(rules: GuardRules, usual: GuardRules, said: Mapping[str, str]) -> list[LimitField]:
    """The fields; what somebody typed stays, also when it was wrong."""
    return [
        LimitField(
            PREFIX + field.name,
            f"{field.words[:1].upper()}{field.words[1:]}" + _unit(field),
            said.get(PREFIX + field.name, _shown(field, getattr(rules, field.name))),
            _shown(field, getattr(usual, field.name)),
            _shown(field, field.least),
            _shown(field, field.most),
        )
        for field in FIELDS
    ]


def limits_of(form: Mapping[str, str], usual: GuardRules) -> GuardRules | None:
    """The rules that a form asks for; None where it changes nothing.

    Raises:
        RequestInvalid: a field is no number, or out of its bounds.
    """
    said: dict[str, str] = {}
    known = {field.name: field for field in FIELDS}
    for name, text in form.items():
        if not name.startswith(PREFIX):
            continue
        field = known.get(name.removeprefix(PREFIX))
        said[name.removeprefix(PREFIX)] = _scaled(field, text.strip()) if field else text
    return guard_from(said, usual)


_FAILING = {
    "answered": "Empty answers",
    "complete": "Truncated answers",
    "no_refusal": "Refusals by the model",
    "format": "Answers not in the requested format",
}


def _failing(check: str) -> str:
    return _FAILING.get(check, "Answers that fail a check")


def compared(
    rules: GuardRules | None, usual: GuardRules, canary: Arm, beside: Arm
) -> list[Compared]:
    """Every figure that is judged; None where nothing was counted."""
    own = rules or usual
    worst = max(canary.unsound, key=lambda each: (canary.unsound[each], each), default="")
    rows: tuple[tuple[str, str, tuple[str, ...], tuple[float, float], tuple[float, float]], ...] = (
        ("Failures", "share", ("failures_excess", "failures_max"),
         (canary.failures, beside.failures), (canary.requests, beside.requests)),
        ("Refusals", "share", ("refusals_excess",),
         (canary.refusals, beside.refusals), (canary.requests, beside.requests)),
        (_failing(worst), "share", ("checks_excess",),
         (canary.unsound.get(worst, 0), beside.unsound.get(worst, 0)),
         (canary.answered, beside.answered)),
        ("Mean time", "ms", ("latency_ratio",),
         (canary.duration_us / 1e3, beside.duration_us / 1e3), (canary.answered, beside.answered)),
        ("p95 time", "ms", ("p95_ms_max",),
         (canary.p95_ms * canary.answered, beside.p95_ms * beside.answered),
         (canary.answered, beside.answered)),
        ("Mean cost of an answer", "microusd", ("cost_ratio", "cost_microusd_max"),
         (canary.cost_microusd, beside.cost_microusd), (canary.answered, beside.answered)),
    )  # fmt: skip
    return [
        Compared(
            title,
            unit,
            _mean(totals[0], counts[0]),
            _mean(totals[1], counts[1]),
            tuple(_limit(name, own, usual) for name in names),
        )
        for title, unit, names, totals, counts in rows
    ]


def _mean(total: float, count: float) -> float | None:
    return total / count if count else None


def guard_amendments(before: GuardRules, after: GuardRules) -> tuple[Amendment, ...]:
    """Changes of limits, for the list of what a version changes."""
    return tuple(
        Amendment("default", "guard", sentence, is_wider)
        for sentence, is_wider in guard_changes(before, after)
    )


def _limit(name: str, own: GuardRules, usual: GuardRules) -> Limit:
    field = next(each for each in FIELDS if each.name == name)
    value, beside = getattr(own, name), getattr(usual, name)
    is_wider = value != beside and (value is None or (beside is not None and value > beside))
    return Limit(name, field.unit, value, beside, is_wider, "excess" in name)


def _unit(field: Field) -> str:
    unit = "points" if "excess" in field.name else _UNITS[field.unit]
    return f" ({unit})" if unit else ""


def _shown(field: Field, value: float | None) -> str:
    if value is None:
        return ""
    if field.unit == "microusd":
        return f"{Decimal(int(value)) / 1_000_000:f}"
    return f"{value * _SCALES.get(field.unit, 1):g}" if field.unit == "share" else f"{value:.10g}"


def _scaled(field: Field, text: str) -> str:
    """A field's text in the units of the rules; empty is no limit, where there may be none."""
    if not text:
        return "none"
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise RequestInvalid(f"{field.words}: a number", parameter=field.name) from None
    if not value.is_finite() or abs(value) > _LARGEST:
        raise RequestInvalid(f"{field.words}: a number", parameter=field.name)
    if field.unit == "share":
        return str(value / 100)
    if field.unit == "times":
        return str(value)
    scaled = value * _SCALES.get(field.unit, 1)
    return str(int(scaled)) if scaled == scaled.to_integral_value() else str(scaled)
