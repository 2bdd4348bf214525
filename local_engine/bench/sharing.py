"""CPU benchmarks of sharing: service tiers that share a step, and choices that share a prompt."""

from collections.abc import Iterator

from local_engine.bench.cpu import Row
from local_engine.bench.subject import Subject, cpu_us, random_prompt
from local_engine.core.tiers import Tier


_NUM_LONG, _NUM_CHOICES, _PROMPT_TOKENS = 16, 8, 800


def tier_rows(subject: Subject) -> Iterator[Row]:
    """Eight tokens for a small request amid long prompts of `batch`, by its own tier.

    Each against the same request alone; and what the long prompts pay for the ones that pass.
    """
    quiet = min(_small_us(subject, 0, Tier.PRIORITY) for _ in range(3))
    for tier, reach in ((Tier.PRIORITY, "<= 5"), (Tier.STANDARD, "<= 6")):
        found = max(_small_us(subject, _NUM_LONG, tier) for _ in range(3))
        measured = f"{found / 1000:.0f} ms at worst, alone {quiet / 1000:.0f} ms"
        name = f"a small {tier.name.lower()} request amid {_NUM_LONG} long of batch"
        yield Row(name, measured, found / quiet, reach)
    rounds = [(_long_us(subject, 0), _long_us(subject, 8)) for _ in range(2)]
    alone, beside = (min(found) for found in zip(*rounds, strict=True))
    measured = f"{beside / 1000:.0f} ms, without them {alone / 1000:.0f} ms"
    yield Row("8 long of batch beside 8 of priority", measured, beside / alone, "<= 2.5")


def choices_rows(subject: Subject) -> Iterator[Row]:
    """Eight first tokens to one prompt, against one; and against eight that share nothing."""
    rounds = [
        (_first_us(subject, 1, {}), _first_us(subject, _NUM_CHOICES, {}), _apart_us(subject))
        for _ in range(3)
    ]
    one, eight, apart = (min(found) for found in zip(*rounds, strict=True))
    name = f"{_NUM_CHOICES} choices of {_PROMPT_TOKENS} tokens against one"
    yield Row(name, f"{eight / 1000:.1f} ms, one {one / 1000:.1f} ms", eight / one, "<= 1.5")
    measured = f"{eight / 1000:.1f} ms, sharing nothing {apart / 1000:.1f} ms"
    yield Row(f"{_NUM_CHOICES} choices, gain of reading once", measured, apart / eight, ">= 5")


def _small_us(subject: Subject, num_long: int, tier: Tier) -> float:
    subject.restart(is_caching=False, is_paced=True)
    for number in range(num_long):
        subject.add(random_prompt(1200, 100 + number), 4, Tier.BATCH)
    if num_long:
        for _ in range(6):
            subject.step()
    name = subject.add(random_prompt(20, 7), 8, tier)
    while len(subject.seen[name].token_us) < 8:
        subject.step()
    return subject.seen[name].last_us


def _long_us(subject: Subject, num_better: int) -> float:
    """Until the last of eight long prompts of `batch` has its answer."""
    subject.restart(is_caching=False, is_paced=True)
    names = [subject.add(random_prompt(600, number), 4, Tier.BATCH) for number in range(8)]
    for number in range(num_better):
        subject.add(random_prompt(600, 100 + number), 4, Tier.PRIORITY)
    subject.run()
    return max(subject.seen[name].last_us for name in names)


def _apart_us(subject: Subject) -> float:
    return _first_us(subject, _NUM_CHOICES, {"is_caching": False})


def _first_us(subject: Subject, num_choices: int, limits: dict[str, bool]) -> float:
    """Processor time until each of so many answers to one prompt has a token."""
    subject.restart(**limits)
    started = cpu_us()
    for _ in range(num_choices):
        subject.add(random_prompt(_PROMPT_TOKENS, 3), 1)
    subject.run()
    return cpu_us() - started
