"""Reads an engine's queue and cache figures from its Prometheus text.

Figures are seconds old and include what others sent to the engine. The pool itself counts our own
part of them, exactly and at once; scraped figures only ever add the rest.
"""

from io import StringIO
from typing import Final

from msgspec import Struct

from gateway.oversight.workers import EngineMemory
from gateway.pool.capabilities import Capability


DIGITS_MAX: Final = 20
LINE_LENGTH_MAX: Final = 4096
"""A longer line is not a sample: its labels would be noted one by one."""


class Figures(Struct, frozen=True):
    """An engine's figures at one moment."""

    waiting: float = 0.0
    """Requests in its queue."""
    running: float = 0.0
    cache_use: float = 0.0
    """Share of the blocks for keys and values in use, 0 to 1."""
    blocks: float | None = None
    """All blocks for keys and values; None, like all below, if the engine does not report it."""
    prefix_query_tokens: float | None = None
    """Counted since its start, like all below."""
    prefix_hit_tokens: float | None = None
    read_tokens: float | None = None
    generated_tokens: float | None = None
    preemptions: float | None = None
    memory: EngineMemory = EngineMemory()


def figures_of(text: str, able: Capability) -> Figures:
    """The figures of an engine of this kind; 0 or None if the text does not contain them."""
    samples = _samples(text, able)
    waiting, running = _found(samples, able.waiting_metric), _found(samples, able.running_metric)

    def total(metric: str) -> float | None:
        # Engines with several models or ranks have a sample for each.
        found = _found(samples, metric)
        return sum(found) if found else None

    # Memory is reported per device, and the devices of one engine are alike.
    memory = {
        field: round(max(seen))
        for field, metric in able.memory_metrics.items()
        if (seen := _found(samples, metric))
    }
    return Figures(
        waiting=sum(waiting),
        running=sum(running),
        # Of several caches the fullest one counts.
        cache_use=max(_found(samples, able.cache_use_metric), default=0.0),
        blocks=total(able.blocks_metric),
        prefix_query_tokens=total(able.prefix_query_metric),
        prefix_hit_tokens=total(able.prefix_hit_metric),
        read_tokens=total(able.read_metric),
        generated_tokens=total(able.generated_metric),
        preemptions=total(able.preemptions_metric),
        memory=EngineMemory(**memory),
    )


def _samples(text: str, able: Capability) -> dict[str, list[float]]:
    """The numbers of the families that are read for this kind of engine."""
    wanted = (
        able.waiting_metric,
        able.running_metric,
        able.cache_use_metric,
        able.blocks_metric,
        able.prefix_query_metric,
        able.prefix_hit_metric,
        able.read_metric,
        able.generated_metric,
        able.preemptions_metric,
        *able.memory_metrics.values(),
    )
    names = {metric.partition("{")[0] for metric in wanted if metric}
    samples: dict[str, list[float]] = {}
    for line in StringIO(text):  # One at a time: there may be millions.
        if len(line) > LINE_LENGTH_MAX:
            continue
        name = line.partition("{")[0].partition(" ")[0]
        if name in names:
            _note(samples, name, line[len(name) :])
    return samples


def _note(samples: dict[str, list[float]], name: str, rest: str) -> None:
    """Note a sample by its name, by its name with each label, and numbers in labels."""
    labels, _, value = rest.rpartition("}")
    fields = (value if labels else rest).split()
    try:
        number = float(fields[0])
    except (IndexError, ValueError):
        return
    if not 0.0 <= number < float("inf"):
        return
    samples.setdefault(name, []).append(number)
    for label in labels.lstrip("{").split(","):
        samples.setdefault(f"{name}{{{label.strip()}}}", []).append(number)
        key, _, text = label.strip().partition("=")
        if (said := text.strip('"')).isdecimal() and len(said) < DIGITS_MAX:
            samples.setdefault(f"{name}{{{key}}}", []).append(float(said))


def _found(samples: dict[str, list[float]], metric: str) -> list[float]:
    return samples.get(metric, []) if metric else []
