"""The part of PromQL that the dashboard uses, over two scrapes that stand for a range.

Anything else raises `ValueError`, because nobody has checked it. `rate` and `increase` give the
growth from the first scrape to the second, taken as five minutes.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families


Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
TOKEN = re.compile(r"\s*(\[5m\]|\"[^\"]*\"|'[^']*'|=~|!~|!=|[A-Za-z_]\w*|\d+(?:\.\d+)?|[(){},=*/])")
RANGE_S = 300
MATCHERS: dict[str, Callable[[str, str], bool]] = {
    "=": lambda value, wanted: value == wanted,
    "!=": lambda value, wanted: value != wanted,
    "=~": lambda value, wanted: re.fullmatch(wanted, value) is not None,
    "!~": lambda value, wanted: re.fullmatch(wanted, value) is None,
}


class Matcher(Struct, frozen=True):
    """One condition of a selector."""

    metric: str
    label: str
    compared: str
    wanted: str

    def holds(self, labels: Labels) -> bool:
        return MATCHERS[self.compared](dict(labels).get(self.label, ""), self.wanted)


def scraped(text: str) -> dict[str, Vector]:
    """The samples of an exposition by name."""
    found: dict[str, Vector] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name][frozenset(sample.labels.items())] = sample.value
    return found


class Query:
    """One expression: `value` is its result, `used` the labels it uses of each metric."""

    def __init__(self, expression: str, before: dict[str, Vector], after: dict[str, Vector]):
        self._before, self._after = before, after
        self.used: list[tuple[str, str]] = []
        self._tokens: list[str] = []
        at = 0
        while at < len(expression):
            found = TOKEN.match(expression, at)
            if found is None:
                raise ValueError(expression[at:])
            self._tokens.append(found[1])
            at = found.end()
        self.value = self._product()
        if self._tokens:
            raise ValueError(" ".join(self._tokens))

    def _next(self, *expected: str) -> str:
        token = self._tokens.pop(0) if self._tokens else ""
        if expected and token not in expected:
            raise ValueError(f"{token!r} instead of {expected}")
        return token

    def _peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _product(self) -> Vector:
        value = self._term()
        while self._peek() in {"*", "/"}:
            if self._next() == "*":
                factor = float(self._next())
                value = {labels: number * factor for labels, number in value.items()}
            else:
                by = self._term()
                value = {
                    labels: number / by[labels] if by[labels] else math.nan
                    for labels, number in value.items()
                    if labels in by
                }
        return value

    def _term(self) -> Vector:
        word = self._next()
        if word in {"sum", "max"}:
            return self._aggregate(sum if word == "sum" else max)
        if word in {"rate", "increase"}:
            return self._growth(RANGE_S if word == "rate" else 1)
        if word == "histogram_quantile":
            return self._quantile()
        if not word.startswith("gatewright_"):
            raise ValueError(word)
        return self._selected(word, self._matchers(word), self._after)

    def _aggregate(self, together: Callable[[list[float]], float]) -> Vector:
        self._next("by")
        self._next("(")
        kept = []
        while (token := self._next()) != ")":
            kept += [] if token == "," else [token]
        self._next("(")
        start = len(self.used)
        inner = self._product()
        self._next(")")
        metrics = {name for name, _ in self.used[start:]}
        self.used += [(name, label) for name in metrics for label in kept]
        groups: dict[Labels, list[float]] = defaultdict(list)
        for labels, number in inner.items():
            groups[frozenset((k, v) for k, v in labels if k in kept)].append(number)
        return {labels: together(numbers) for labels, numbers in groups.items()}

    def _growth(self, divisor: float) -> Vector:
        self._next("(")
        name = self._next()
        matchers = self._matchers(name)
        self._next("[5m]")
        self._next(")")
        first = self._selected(name, matchers, self._before)
        last = self._selected(name, matchers, self._after)
        return {key: (last[key] - first[key]) / divisor for key in last if key in first}

    def _quantile(self) -> Vector:
        self._next("(")
        share = float(self._next())
        self._next(",")
        buckets: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
        for labels, count in self._product().items():
            bound = float(dict(labels)["le"])
            buckets[frozenset(each for each in labels if each[0] != "le")].append((bound, count))
        self._next(")")
        return {labels: _interpolated(share, sorted(each)) for labels, each in buckets.items()}

    def _matchers(self, name: str) -> list[Matcher]:
        self.used.append((name, ""))
        found: list[Matcher] = []
        if self._peek() == "{":
            self._next()
            while self._peek() != "}":
                label, compared = self._next(), self._next(*MATCHERS)
                found.append(Matcher(name, label, compared, self._next()[1:-1]))
                self.used.append((name, label))
                if self._peek() == ",":
                    self._next()
            self._next("}")
        return found

    @staticmethod
    def _selected(name: str, matchers: list[Matcher], samples: dict[str, Vector]) -> Vector:
        rows = samples.get(name, {})
        return {key: n for key, n in rows.items() if all(each.holds(key) for each in matchers)}


def _interpolated(share: float, buckets: list[tuple[float, float]]) -> float:
    """As Prometheus does: evenly within the bucket, the last finite bound beyond all others."""
    rank = share * buckets[-1][1]
    low, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > 0:
            return (
                low if math.isinf(bound) else low + (bound - low) * (rank - below) / (count - below)
            )
        low, below = bound, count
    return math.nan
