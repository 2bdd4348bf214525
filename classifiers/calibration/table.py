"""The calibration table: a map and a guarantee per organisation and route, made from labels.

Maps lean on each other (a route on its organisation, the organisation on everybody); guarantees
never do: what is promised for a route was shown on that route's own traffic.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import Struct

from classifiers.calibration.maps import ChanceMap, Label, fit_map
from classifiers.calibration.threshold import (
    DRIFT_LIMIT,
    Guarantee,
    Infeasible,
    Threshold,
    drift,
    guarantee,
)


class Scope(Struct, frozen=True):
    """Whose traffic: an organisation's, asked for by this model or route name."""

    organisation: str
    route: str


class Judged(Struct, frozen=True):
    """A label and where it comes from."""

    scope: Scope
    label: Label


class Entry(Struct, frozen=True):
    """What applies to one scope."""

    scope: Scope
    map: ChanceMap
    guarantee: Guarantee


class Verdict(Struct, frozen=True):
    """Whether the cheap tier may answer, the calibrated probability, and the reason."""

    cheap: bool
    p_weak: float
    reason: str


class CalibrationTable(Struct, frozen=True):
    """Entries for one version of a classifier; scores of another version promise nothing."""

    classifier_version: str
    entries: tuple[Entry, ...]

    def verdict(
        self, scope: Scope, p_weak: float, classifier_version: str, *, familiar: bool
    ) -> Verdict | None:
        """The table's verdict on a request; None if nobody asked for a guarantee."""
        entries = [entry for entry in self.entries if entry.scope == scope] if self.entries else ()
        if not entries:
            return None
        entry = entries[0]
        chance = entry.map(p_weak)
        promised = entry.guarantee
        if classifier_version != self.classifier_version:
            return Verdict(cheap=False, p_weak=chance, reason="other_classifier")
        if not familiar:
            return Verdict(cheap=False, p_weak=chance, reason="unfamiliar")
        if isinstance(promised, Infeasible):
            return Verdict(cheap=False, p_weak=chance, reason=promised.reason)
        cheap = p_weak >= promised.p_weak_least
        return Verdict(cheap, chance, "guaranteed" if cheap else "below_threshold")

    def promised(self, scope: Scope) -> Threshold | None:
        """The promise for a scope's cheap tier; None if there is none."""
        entry = next((entry for entry in self.entries if entry.scope == scope), None)
        found = None if entry is None else entry.guarantee
        return found if isinstance(found, Threshold) else None

    def without(self, scopes: Collection[Scope]) -> "CalibrationTable":
        """The same table without a promise for these scopes: their traffic has changed."""
        return CalibrationTable(
            self.classifier_version,
            tuple(
                Entry(entry.scope, entry.map, _drifted(entry.guarantee))
                if entry.scope in scopes
                else entry
                for entry in self.entries
            ),
        )


def _drifted(promised: Guarantee) -> Guarantee:
    if isinstance(promised, Infeasible):
        return promised
    return Infeasible("drift", promised.alpha, promised.delta, promised.sent)


NOTHING_PROMISED = CalibrationTable("", ())
"""The table without entries: no organisation asked for a guarantee."""


def calibrate(
    judged: Sequence[Judged],
    alpha: float,
    delta: float,
    classifier_version: str,
    recent: Mapping[Scope, Sequence[float]] | None = None,
) -> CalibrationTable:
    """Maps with shrinkage and guarantees, for every organisation and route that has labels.

    `recent` has scores of each scope's newest traffic, to notice if it differs from the labelled.
    """
    everybody = fit_map([one.label for one in judged])
    entries: list[Entry] = []
    for organisation in sorted({one.scope.organisation for one in judged}):
        own = [one for one in judged if one.scope.organisation == organisation]
        parent = fit_map([one.label for one in own], everybody)
        for route in sorted({one.scope.route for one in own}):
            scope = Scope(organisation, route)
            labels = [one.label for one in own if one.scope.route == route]
            promised = guarantee(labels, alpha, delta)
            now = (recent or {}).get(scope, ())
            if drift([label.p_weak for label in labels], now) > DRIFT_LIMIT:
                promised = Infeasible("drift", alpha, delta, len(labels))
            entries.append(Entry(scope, fit_map(labels, parent), promised))
    return CalibrationTable(classifier_version, tuple(entries))


def load_table(raw: bytes) -> CalibrationTable:
    """A table from its JSON.

    Raises:
        msgspec.DecodeError: or its ValidationError.
    """
    return msgspec.json.decode(raw, type=CalibrationTable)
