"""Limits that a canary must keep: the installation's own, or those chosen for one version. Pure.

A version may be guarded more tightly than the installation demands. It may also be guarded less
tightly, but then whoever approves it has to confirm having seen by how much.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, Literal

import msgspec
from msgspec import Struct

from gateway.errors import RequestInvalid


OnHarm = Literal["withdraw", "halt"]


class GuardRules(Struct, frozen=True, forbid_unknown_fields=True):
    """How much worse than the live version a canary may be, and how bad in absolute terms.

    Shares are of 1; an `excess` is added to the live version's own share, a `ratio` multiplies its
    mean. None means no limit.
    """

    requests_min: int = 20
    """With fewer requests nothing is judged."""
    failures_excess: float = 0.05
    checks_excess: float = 0.05
    refusals_excess: float = 0.05
    latency_ratio: float = 2.0
    cost_ratio: float = 2.0
    failures_max: float | None = None
    p95_ms_max: int | None = None
    """The limit for nineteen answers in twenty."""
    cost_microusd_max: int | None = None
    """The limit for the mean answer."""
    on_harm: OnHarm = "withdraw"
    """`halt` ends the canary and leaves the version approved, so that it can be tried again."""

    def __post_init__(self) -> None:
        """Raises ValueError if a limit is out of its bounds, also when decoding."""
        for limit in FIELDS:
            value = getattr(self, limit.name)
            if value is not None and not limit.least <= value <= limit.most:
                bounds = f"{amount(limit, limit.least)} to {amount(limit, limit.most)}"
                raise ValueError(f"{limit.words}: from {bounds}")


class Field(Struct, frozen=True):
    """One limit: its words, unit (`count`, `share`, `times`, `ms` or `microusd`) and bounds."""

    name: str
    words: str
    unit: str
    least: float
    most: float


FIELDS: Final = (
    Field("requests_min", "requests before anything is judged", "count", 5, 100_000),
    Field("failures_excess", "more failures than beside it", "share", 0.001, 1.0),
    Field("failures_max", "failures at all", "share", 0.001, 1.0),
    Field("refusals_excess", "more refusals than beside it", "share", 0.001, 1.0),
    Field("checks_excess", "more answers failing a check than beside it", "share", 0.001, 1.0),
    Field("latency_ratio", "mean time, against that beside it", "times", 1.0, 100.0),
    Field("p95_ms_max", "time of 95% of the answers", "ms", 1, 3_600_000),
    Field("cost_ratio", "mean cost, against that beside it", "times", 1.0, 100.0),
    Field("cost_microusd_max", "mean cost of an answer", "microusd", 1, 1_000_000_000),
)
"""For each, a larger number is a wider limit, and none is the widest."""
DEEDS: Final[Mapping[OnHarm, str]] = {
    "withdraw": "taken back for good",
    "halt": "halted and stays approved",
}


def guard_from(said: Mapping[str, str], usual: GuardRules) -> GuardRules | None:
    """Rules by the names of their fields, in their units; `none` removes a limit.

    None if nothing differs from `usual`: then the version has no rules of its own.

    Raises:
        RequestInvalid: there is no such limit, or no such value.
    """
    known = GuardRules.__struct_fields__
    if unknown := sorted(set(said) - set(known)):
        message = f"no limit is called {unknown[0]}: {', '.join(known)}"
        raise RequestInvalid(message[:400], parameter="guard")
    values = msgspec.to_builtins(usual)
    for name, text in said.items():
        values[name] = None if text == "none" else text.strip()
        if values[name] is None and getattr(GuardRules(), name) is not None:
            words = next((each.words for each in FIELDS if each.name == name), name)
            raise RequestInvalid(f"{words}: this limit has to be there", parameter=f"guard.{name}")
    try:
        rules = msgspec.convert(values, GuardRules, strict=False)
    except msgspec.ValidationError as error:
        raise RequestInvalid(str(error)[:200], parameter="guard") from error
    return None if rules == usual else rules


def amount(field: Field, value: float | None) -> str:
    """A limit in plain words; pages format numbers and money for people."""
    if value is None:
        return "no limit"
    match field.unit:
        case "share":
            return f"{100 * value:g} points" if "excess" in field.name else f"{100 * value:g}%"
        case "times":
            return f"{value:g} times"
        case "ms":
            return f"{value:.10g} ms"
        case "microusd":
            return f"{Decimal(value) / 1_000_000:f} USD"
    return f"{value:.10g}"


def guard_difference(before: GuardRules, after: GuardRules) -> tuple[str, ...]:
    """One sentence for each limit that differs."""
    return tuple(sentence for sentence, _ in guard_changes(before, after))


def guard_changes(before: GuardRules, after: GuardRules) -> Iterator[tuple[str, bool]]:
    """The sentences, and whether a limit is now wider."""
    for field in FIELDS:
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old != new:
            is_wider = new is None or (old is not None and new > old)
            yield f"guard, {field.words}: {amount(field, old)} → {amount(field, new)}", is_wider
    if before.on_harm != after.on_harm:
        sentence = f"guard, a canary that does harm: {DEEDS[before.on_harm]}"
        yield f"{sentence} → {DEEDS[after.on_harm]}", after.on_harm == "halt"


def wider(rules: GuardRules | None, installation: GuardRules) -> tuple[str, ...]:
    """What a version's own limits allow beyond the installation's; empty for nothing."""
    changes = guard_changes(installation, rules or installation)
    return tuple(sentence for sentence, is_wider in changes if is_wider)


def require_seen(rules: GuardRules | None, installation: GuardRules, *, seen: bool) -> None:
    """Refuse an approval of wider limits by oversight.

    Raises:
        RequestInvalid: they are wider, and the approver did not confirm having seen it.
    """
    found = wider(rules, installation)
    if found and not seen:
        message = f"this version is guarded more widely than the installation: {'; '.join(found)}"
        raise RequestInvalid(f"{message}. Say that you have seen it.", parameter="accepts_wider")
