"""Compares current profiles with their references, for the watch that judges and for pages."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from gateway.clock import DAY_US, HOUR_US
from gateway.drift.judging import WINDOWS_HOURS, Rules, Verdict, judge, reference_hours
from gateway.drift.profiles import Kind, Profile, added
from gateway.store.traffic.drifts import Drift, lasting
from gateway.store.traffic.profiles import ProfileHours


class Comparison(Struct, frozen=True):
    """A profile now, and at the same hours of the previous days."""

    kind: Kind
    scope: str
    since_us: int
    until_us: int
    now: Profile
    reference: Profile
    verdict: Verdict
    drift: Drift | None = None
    """The suspected or open drift."""


class _Asked(Struct, frozen=True):
    """What has to be read for one profile."""

    kind: Kind
    scope: str
    hours: tuple[int, ...]
    windows: tuple[tuple[int, ...], ...]
    drift: Drift | None


async def compared(
    hours: ProfileHours,
    known: Collection[Drift],
    organisation: str,
    until_us: int,
    rules: Rules,
    *,
    only: tuple[Kind, str] | None = None,
) -> list[Comparison]:
    """Profiles of an organisation with traffic in the day before `until_us`: all, or one.

    Each is compared in the shortest significant window, which is quick to notice, and in the
    longest, which notices smaller changes; of the two, the one that drifts is returned.

    Raises:
        NotReady: the database does not answer.
    """
    counts = await hours.counts(organisation, until_us - DAY_US, until_us)
    asked: dict[tuple[Kind, int], list[_Asked]] = {}
    for (kind, scope), by_hour in sorted(counts.items()):
        if only is None or only == (kind, scope):
            for length in _windows(by_hour, until_us, rules.count_least):
                one = _asked(kind, scope, known, until_us, length)
                asked.setdefault((kind, length), []).append(one)
    found: dict[tuple[Kind, str], Comparison] = {}
    for (kind, _), some in asked.items():
        needed = {hour for each in some for window in each.windows for hour in window}
        needed |= {hour for each in some for hour in each.hours}
        names = {each.scope for each in some}
        profiles = await hours.read(organisation, kind, names, needed)
        for each in await asyncio.to_thread(_compared, some, profiles, rules):
            key = (each.kind, each.scope)
            known_one = found.get(key)
            if known_one is None or _weight(each) > _weight(known_one):
                found[key] = each
    return [found[key] for key in sorted(found)]


def _weight(each: Comparison) -> tuple[bool, int]:
    return each.verdict.state == "drifted", each.since_us


def _windows(by_hour: Mapping[int, int], until_us: int, count_least: int) -> tuple[int, ...]:
    """In hours: the shortest significant window, and the longest."""
    longest = WINDOWS_HOURS[-1]
    for hours in WINDOWS_HOURS[:-1]:
        first_us = until_us - hours * HOUR_US
        if sum(count for hour, count in by_hour.items() if hour >= first_us) >= count_least:
            return (hours, longest)
    return (longest,)


def _asked(kind: Kind, scope: str, known: Collection[Drift], until_us: int, hours: int) -> _Asked:
    own = [each for each in known if (each.kind, each.scope) == (kind, scope)]
    drift = lasting(own, kind, scope)
    accepted = [each.began_us for each in own if each.state == "accepted"]
    windows = reference_hours(
        until_us,
        hours,
        since_us=max(accepted, default=0),
        until_us=until_us if drift is None else drift.began_us,
        without=[(each.began_us, each.ended_us) for each in own if each.state == "ended"],
    )
    start_us = until_us - hours * HOUR_US
    return _Asked(kind, scope, tuple(range(start_us, until_us, HOUR_US)), tuple(windows), drift)


def _compared(
    asked: Sequence[_Asked], profiles: Mapping[str, Mapping[int, Profile]], rules: Rules
) -> list[Comparison]:
    found = []
    for each in asked:
        by_hour = profiles.get(each.scope, {})
        now = _together(by_hour, each.hours)
        windows = [_together(by_hour, window) for window in each.windows]
        found.append(
            Comparison(
                kind=each.kind,
                scope=each.scope,
                since_us=each.hours[0],
                until_us=each.hours[-1] + HOUR_US,
                now=now,
                reference=added(windows),
                verdict=judge(each.kind, now, windows, rules),
                drift=each.drift,
            )
        )
    return found


def _together(by_hour: Mapping[int, Profile], hours: Sequence[int]) -> Profile:
    return added(by_hour[hour] for hour in hours if hour in by_hour)
