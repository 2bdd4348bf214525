"""Reads what a pool wants to know out of an engine's Prometheus text: its queue and its cache.

Figures are seconds old and hold what others sent there too. What is ours among them is counted by
the pool itself, exactly and at once; scraped figures only ever add the rest.
"""

from msgspec import Struct

from gateway.pool.capabilities import Capability


class Figures(Struct, frozen=True):
    """One look at an engine."""

    waiting: float = 0.0
    """Requests in its queue."""
    running: float = 0.0
    cache_use: float = 0.0
    """Share of the blocks for keys and values in use, 0 to 1."""
    blocks: float | None = None
    """Of keys and values in all; None, like all below, where the engine does not say."""
    prefix_query_tokens: float | None = None
    """Counted since its start, like all below."""
    prefix_hit_tokens: float | None = None
    read_tokens: float | None = None
    generated_tokens: float | None = None
    preemptions: float | None = None


def figures_of(text: str, able: Capability) -> Figures:
    """The figures of an engine of this kind; 0 or None where the text does not have them."""
    samples: dict[str, list[float]] = {}
    wanted = (able.waiting_metric, able.running_metric, able.cache_use_metric)
    told = (
        able.blocks_metric,
        able.prefix_query_metric,
        able.prefix_hit_metric,
        able.read_metric,
        able.generated_metric,
        able.preemptions_metric,
    )
    names = {metric.partition("{")[0] for metric in (*wanted, *told) if metric}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in names:
            _note(samples, name, line[len(name) :])
    waiting, running, cache_use = (_found(samples, metric) for metric in wanted)
    # Engines with several models or ranks have a sample for each; the fullest cache counts.
    more = (sum(found) if (found := _found(samples, metric)) else None for metric in told)
    return Figures(sum(waiting), sum(running), max(cache_use, default=0.0), *more)


def _note(samples: dict[str, list[float]], name: str, rest: str) -> None:
    """A sample under its name, and under its name with each of its labels."""
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


def _found(samples: dict[str, list[float]], metric: str) -> list[float]:
    return samples.get(metric, []) if metric else []
