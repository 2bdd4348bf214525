"""Judges whether a profile has drifted from its reference, beyond chance and habit. Pure.

Current counts are compared with those of the same hours of earlier days by the population stability
index, without the part of it that small samples cause by themselves. Chance is judged by the
likelihood ratio (G) of both. Habit is judged by how far those days differ from each other, which is
more than independent requests would: conversations, batch jobs, weekends. Drift is reported only if
both are exceeded and the index is larger than on any of those days.
"""

from collections.abc import Mapping, Sequence
from math import log, sqrt
from typing import Final, Literal

from msgspec import Struct

from gateway.clock import DAY_US, HOUR_US
from gateway.configuration.sections import WINDOW_LEAST
from gateway.drift.profiles import FEATURES, Feature, Kind, Profile, added, bins_of, words_of


Span = tuple[int, int]
"""Start and end, in microseconds."""
State = Literal["quiet", "learning", "steady", "drifted"]
Z_LEAST: Final = 4.5
"""How far beyond chance, in standard deviations of a normal distribution: 1 in 300,000."""
EXPECTED_LEAST: Final = 5.0
"""Bins in which fewer are expected are combined."""
WINDOWS_HOURS: Final = (1, 6, 24)
"""The shortest with enough requests is judged, and the longest; all consist of full hours."""
DAYS: Final = 28
"""The days of a reference."""
WINDOWS_LEAST: Final = 7
REFERENCE_LEAST: Final = 1_000
_SMOOTHING: Final = 0.5


class Rules(Struct, frozen=True):
    """The thresholds of a drift."""

    index_least: float = 0.1
    """Population stability index, corrected for small samples; 0.25 is commonly called changed."""
    count_least: int = 200
    """Fewer requests in a window are not judged."""


class Shift(Struct, frozen=True):
    """One feature now, compared with its reference."""

    feature: str
    index: float
    """Population stability index, corrected; 0 is no change."""
    usual: float
    """The largest index of any day of the reference against the others."""
    z: float
    is_drift: bool
    said: str
    """The largest change: `prompts over 8,000 tokens: 31% instead of 4%`."""


class Verdict(Struct, frozen=True):
    """The current judgement of a profile."""

    state: State
    count: int = 0
    reference: int = 0
    days: int = 0
    """Windows of the reference with enough requests."""
    shifts: tuple[Shift, ...] = ()
    """Features that drifted first, then by their index."""

    @property
    def said(self) -> str:
        """Features that drifted, in words."""
        return "; ".join(each.said for each in self.shifts if each.is_drift)


def reference_hours(
    end_us: int, hours: int, *, since_us: int = 0, until_us: int, without: Sequence[Span] = ()
) -> list[tuple[int, ...]]:
    """Hours of the windows of a reference: the same hours of `DAYS` days before, newest first.

    All of them end before `until_us`, when a lasting drift began, and begin at `since_us` at the
    earliest; windows that touch a span in `without`, with another drift, are left out.
    """
    length_us = hours * HOUR_US
    first = max(1, -(-(end_us - until_us) // DAY_US))
    found = []
    for day in range(first, first + DAYS):
        last_us = end_us - day * DAY_US
        start_us = last_us - length_us
        is_other = any(start_us < end and begin < last_us for begin, end in without)
        if start_us >= since_us and not is_other:
            found.append(tuple(range(start_us, last_us, HOUR_US)))
    return found


def judge(kind: Kind, now: Profile, windows: Sequence[Profile], rules: Rules) -> Verdict:
    """Compare a window with the same hours of earlier days, one window each."""
    told = [each for each in windows if each.count >= WINDOW_LEAST]
    reference = added(told)
    known = (now.count, reference.count, len(told))
    if len(told) < WINDOWS_LEAST or reference.count < REFERENCE_LEAST:
        return Verdict("learning", *known)
    if now.count < rules.count_least:
        return Verdict("quiet", *known)
    found = [
        shift
        for feature in FEATURES[kind]
        if (shift := _shift(feature, now, told, reference, rules)) is not None
    ]
    found.sort(key=lambda shift: (not shift.is_drift, -shift.index))
    is_drift = any(shift.is_drift for shift in found)
    return Verdict("drifted" if is_drift else "steady", *known, tuple(found))


def _shift(
    feature: Feature, now: Profile, windows: Sequence[Profile], reference: Profile, rules: Rules
) -> Shift | None:
    """None if too little is known of the feature."""
    here, there = now.bins.get(feature.name, {}), reference.bins.get(feature.name, {})
    if sum(here.values()) < rules.count_least or sum(there.values()) < REFERENCE_LEAST:
        return None
    names = bins_of(feature, now, reference)
    groups = _groups(names, here, there, ordered=bool(feature.edges))
    freedom = len(groups) - 1
    if not freedom:
        return None
    mine, theirs = _grouped(groups, here), _grouped(groups, there)
    index, usual, spread = _index(mine, theirs), 0.0, _Spread(freedom)
    for window in windows:
        bins = _grouped(groups, window.bins.get(feature.name, {}))
        if sum(bins) >= WINDOW_LEAST:
            rest = [all_of - some for all_of, some in zip(theirs, bins, strict=True)]
            if sum(rest) > 0:
                usual = max(usual, _index(bins, rest))
                spread.add(bins, rest)
    z = _deviations(_ratio(mine, theirs) / spread.factor(_size(mine, theirs)), freedom)
    is_drift = z >= Z_LEAST and index >= rules.index_least and index > usual
    said = moved(feature, names, here, there)
    return Shift(feature.name, round(index, 4), round(usual, 4), round(z, 2), is_drift, said)


class _Spread:
    """How much more the days of a reference differ than independent requests would."""

    def __init__(self, freedom: int) -> None:
        self._freedom = freedom
        self._excess = self._sizes = 0.0
        self._windows = 0

    def add(self, bins: Sequence[int], rest: Sequence[int]) -> None:
        """Add one day, compared with the others."""
        self._excess += _ratio(bins, rest) / self._freedom - 1.0
        self._sizes += _size(bins, rest)
        self._windows += 1

    def factor(self, size: float) -> float:
        """By how much variation exceeds chance alone in a window of that size.

        Estimated on the safe side, as the days are few. Differences between days grow with their
        size (a variance of shares), so that a busier window is allowed more.
        """
        if not self._windows:
            return 1.0
        doubt = 1.0 + 2.0 * sqrt(2.0 / (self._windows * self._freedom))
        return max(1.0 + max(self._excess, 0.0) / self._sizes * size, 1.0) * doubt


def _groups(
    names: Sequence[str], here: Mapping[str, int], there: Mapping[str, int], *, ordered: bool
) -> list[list[str]]:
    """Bins combined until each group expects enough in the smaller of both samples."""
    ours, theirs = sum(here.values()), sum(there.values())
    share = min(ours, theirs) / (ours + theirs)
    groups: list[list[str]] = []
    waiting: list[str] = []
    held = 0.0
    if not ordered:
        names = sorted(names, key=lambda name: -(here.get(name, 0) + there.get(name, 0)))
    for name in names:
        waiting.append(name)
        held += (here.get(name, 0) + there.get(name, 0)) * share
        if held >= EXPECTED_LEAST:
            groups.append(waiting)
            waiting, held = [], 0.0
    if waiting:
        # With an order the rest joins its neighbours; without one rare words stay apart.
        if ordered and groups:
            groups[-1] += waiting
        else:
            groups.append(waiting)
    return groups


def _grouped(groups: Sequence[Sequence[str]], bins: Mapping[str, int]) -> list[int]:
    return [sum(bins.get(name, 0) for name in group) for group in groups]


def _size(first: Sequence[int], second: Sequence[int]) -> float:
    """The effective sample size of a comparison of both."""
    one, other = sum(first), sum(second)
    return one * other / (one + other)


def _index(now: Sequence[int], then: Sequence[int]) -> float:
    """Population stability index minus its value by chance: (bins - 1) (1 / n + 1 / m)."""
    ours = sum(now) + _SMOOTHING * len(now)
    theirs = sum(then) + _SMOOTHING * len(then)
    index = 0.0
    for one, other in zip(now, then, strict=True):
        new, old = (one + _SMOOTHING) / ours, (other + _SMOOTHING) / theirs
        index += (new - old) * log(new / old)
    return max(index - (len(now) - 1) * (1.0 / ours + 1.0 / theirs), 0.0)


def _ratio(now: Sequence[int], then: Sequence[int]) -> float:
    """Log-likelihood ratio (G) of two samples against one distribution for both."""
    ours, theirs = sum(now), sum(then)
    total = ours + theirs
    ratio = 0.0
    for one, other in zip(now, then, strict=True):
        both = one + other
        if one:
            ratio += one * log(one * total / (ours * both))
        if other:
            ratio += other * log(other * total / (theirs * both))
    return 2.0 * ratio


def _deviations(ratio: float, freedom: int) -> float:
    """A chi-squared value as one of the normal distribution (Wilson and Hilferty, 1931)."""
    part = 2.0 / (9.0 * freedom)
    return float(((max(ratio, 0.0) / freedom) ** (1.0 / 3.0) - (1.0 - part)) / sqrt(part))


def moved(
    feature: Feature, names: Sequence[str], here: Mapping[str, int], there: Mapping[str, int]
) -> str:
    """The largest change, in words; in an ordered feature, everything above or below an edge."""
    ours, theirs = max(sum(here.values()), 1), max(sum(there.values()), 1)
    steps = [
        (name, here.get(name, 0) / ours, there.get(name, 0) / theirs)
        for name in (names if feature.edges else sorted(names))
    ]
    if not feature.edges:
        name, now, then = max(steps, key=lambda step: abs(step[1] - step[2]))
        return f"{feature.subject} {words_of(feature, name)}: {_percent(now)} instead of " + (
            _percent(then)
        )
    best, at, above, before = -1.0, 0, 0.0, 0.0
    now = then = 1.0
    for number, step in enumerate(steps[:-1]):
        now, then = now - step[1], then - step[2]
        if abs(now - then) >= best:
            best, at, above, before = abs(now - then), number, now, then
    side = "over"
    if above < before:
        side, above, before = "up to", 1.0 - above, 1.0 - before
    edge = f"{feature.edges[at]:,} {feature.unit}"
    return f"{feature.subject} {side} {edge}: {_percent(above)} instead of {_percent(before)}"


def _percent(share: float) -> str:
    share = min(max(share, 0.0), 1.0)
    return f"{100 * share:.1f}%" if 0 < share < 0.1 else f"{100 * share:.0f}%"  # noqa: PLR2004
