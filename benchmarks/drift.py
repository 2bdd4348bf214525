"""How often drift alarms ring falsely, and how soon truly: `python -m benchmarks.drift`.

Hours of requests are drawn at random with a daily rhythm, week-ends, moods of days and
conversations, and judged every hour as the watch does. It prints alarms per profile and month on
traffic that stays as it is, and after how many hours real shifts are found; `-` means not within a
day.
"""

import random
import sys
from collections.abc import Mapping, Sequence
from math import sin, tau
from typing import Final

from msgspec import Struct

from gateway.drift.judging import DAYS, Rules, judge
from gateway.drift.profiles import Profile, added


Laws = Mapping[str, Sequence[float]]
LAWS: Final[Laws] = {
    "tokens": (0.10, 0.20, 0.20, 0.20, 0.16, 0.10, 0.03, 0.01, 0.0),
    "complexity": (0.05, 0.1, 0.15, 0.2, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02),
    "class": (0.50, 0.30, 0.15, 0.04, 0.01),
    "domain": (0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05),
    "findings": (0.7, 0.1, 0.1, 0.05, 0.05),
    "shape": (0.7, 0.2, 0.06, 0.04),
    "dialect": (0.6, 0.4),
    "familiar": (0.97, 0.03),
}
MONTH: Final = 30 * 24
BEFORE: Final = (DAYS + 1) * 24
RULES: Final = Rules()
TWICE: Final = 2


class Traffic(Struct, frozen=True):
    """A kind of traffic: requests per hour, requests per conversation, how moody its days are."""

    name: str
    volume: int
    together: int = 1
    mood: float = 0.0
    has_weekends: bool = False


KINDS: Final = (
    Traffic("independent requests", 300),
    Traffic("conversations of five", 300, together=5),
    Traffic("moody days and week-ends", 300, mood=0.08, has_weekends=True),
    Traffic("all of it, little traffic", 40, together=3, mood=0.08, has_weekends=True),
)
SHIFTS: Final = (("tokens", 6, 0.27), ("tokens", 6, 0.1), ("class", 3, 0.15), ("domain", 6, 0.2))


def moved(law: Sequence[float], at: int, share: float) -> list[float]:
    """A law with that share taken from all bins and put into one."""
    found = [part * (1 - share) for part in law]
    found[at] += share
    return found


def hour(draw: random.Random, traffic: Traffic, laws: Laws, volume: float) -> Profile:
    """One hour of requests."""
    count = max(round(volume * draw.uniform(0.8, 1.2) / traffic.together), 1)
    profile = Profile(count * traffic.together)
    for feature, law in laws.items():
        bins: dict[str, int] = {}
        for number in draw.choices(range(len(law)), law, k=count):
            bins[str(number)] = bins.get(str(number), 0) + traffic.together
        profile.bins[feature] = bins
    return profile


def hours(
    traffic: Traffic, seed: int, count: int, shift: tuple[str, int, float] | None = None
) -> list[Profile]:
    """Hours of a profile; with a shift, from the end of its first four weeks on."""
    draw, found = random.Random(seed), []
    laws: Laws = LAWS
    for number in range(count):
        day, at = divmod(number, 24)
        is_free = traffic.has_weekends and day % 7 > 4
        if at == 0:
            laws = {
                name: moved(law, draw.randrange(len(law)), draw.uniform(0, traffic.mood))
                for name, law in LAWS.items()
            }
            if is_free:
                laws = {name: moved(law, len(law) // 2, 0.1) for name, law in laws.items()}
        now = laws
        if shift is not None and number >= BEFORE:
            name, place, share = shift
            now = {**laws, name: moved(laws[name], place, share)}
        volume = traffic.volume * (1 + 0.7 * sin(tau * at / 24)) * (0.4 if is_free else 1)
        found.append(hour(draw, traffic, now, volume))
    return found


def is_drift(found: Sequence[Profile], end: int) -> bool:
    """The watch's verdict at the end of an hour."""
    lengths = [each for each in (1, 6) if _size(found, end, each) >= RULES.count_least][:1]
    for length in (*lengths, 24):
        now = added(found[end - length : end])
        windows = [
            added(found[last - length : last])
            for day in range(1, DAYS + 1)
            if (last := end - 24 * day) >= length
        ]
        if judge("prompts", now, windows, RULES).state == "drifted":
            return True
    return False


def _size(found: Sequence[Profile], end: int, length: int) -> int:
    return sum(each.count for each in found[end - length : end])


def alarms(found: Sequence[Profile], first: int) -> list[int]:
    """Hours at which an alarm is raised: two looks in a row; six calm ones end it."""
    raised, row, calm, is_open = [], 0, 0, False
    for end in range(first, len(found) + 1):
        if is_drift(found, end):
            row, calm = row + 1, 0
            if row >= TWICE and not is_open:
                is_open = True
                raised.append(end - first)
        else:
            row, calm = 0, calm + 1
            is_open = is_open and calm < 6
    return raised


def main(months: int) -> None:
    """Print both tables."""
    for traffic in KINDS:
        spans = [hours(traffic, seed, BEFORE + MONTH) for seed in range(months)]
        counts = [len(alarms(span, BEFORE)) for span in spans]
        worst = f"{max(counts)} in the worst"
        print(f"{traffic.name}: {sum(counts)} alarms in {months} months, {worst}")
        sys.stdout.flush()
    for traffic in (KINDS[0], KINDS[2], KINDS[3]):
        for shift in SHIFTS:
            found = []
            for seed in range(months):
                late = alarms(hours(traffic, 900 + seed, BEFORE + 24, shift), BEFORE + 1)
                found.append(str(late[0] + 1) if late else "-")
            name, _, share = shift
            print(f"{traffic.name}: {share:.0%} more in one bin of {name}: hours {' '.join(found)}")
            sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
