"""Gathers the data of profile pages: profiles with recent traffic, each beside its past."""

from typing import Final, cast

from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.services import Services
from admin.traffic.profile_history import History, history_of, hours_of
from gateway.clock import DAY_US
from gateway.drift.judging import Rules, Shift
from gateway.drift.profiles import FEATURES, Feature, Kind, Profile, bins_of, words_of
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission, Person, allows
from gateway.store.traffic.comparing import Comparison, compared
from gateway.store.traffic.drifts import Drift, DriftTable, lasting
from gateway.store.traffic.profiles import ProfileHours


KINDS: Final = ("prompts", "answers")
REASON_CHARS: Final = 500
BINS_SHOWN: Final = 12
HISTORY_MAX: Final = 20
_PERCENT: Final = 100


class ProfileLine(Struct, frozen=True):
    """A profile in the list; `count` requests of its last day were looked at."""

    kind: Kind
    scope: str
    count: int
    last_us: int
    drift: Drift | None = None


class ProfileList(Struct, frozen=True):
    """All profiles of an organisation with traffic in the day before `until_us`."""

    organisation: str
    until_us: int
    """The end of the last hour that was profiled; 0 where none was."""
    is_enabled: bool
    lines: tuple[ProfileLine, ...]
    past: tuple[Drift, ...]
    """Drifts that are over, newest first."""


class BinLine(Struct, frozen=True):
    """How many were in one bin, and what percentage that is."""

    name: str
    now: int
    before: int
    now_percent: float
    before_percent: float


class FeatureLines(Struct, frozen=True):
    """One feature, bin by bin; without a `shift` too little is known to judge it."""

    name: str
    title: str
    bins: tuple[BinLine, ...]
    shift: Shift | None = None


class ProfileDetail(Struct, frozen=True):
    """One profile now, beside the same hours of the days before."""

    organisation: str
    kind: Kind
    scope: str
    since_us: int
    until_us: int
    state: str
    count: int
    reference: int
    days: int
    features: tuple[FeatureLines, ...]
    drift: Drift | None
    past: tuple[Drift, ...]
    since_began: int
    """Requests looked at since the drift began: with them a new reference would begin."""
    is_withdrawn: bool
    """Whether calibration promises nothing of this route because of a drift."""
    history: History | None = None
    """Of the feature that moved most, or of the first one."""


class AcceptOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Why this is the new normal."""

    reason: str


class ProfileRoom:
    """Reads profiles and drifts, and takes what people say of a drift."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._hours = ProfileHours(services.database, services.records, services.clock)
        self._drifts = DriftTable(services.database, services.clock)
        settings = services.settings.drift
        self._rules = Rules(settings.index_least, settings.requests_least)

    async def listed(self, organisation: str) -> ProfileList:
        """Everything of an organisation; what drifts comes first.

        Raises:
            NotReady: the database does not answer.
        """
        until_us = await self._hours.until_us(organisation)
        known = await self._drifts.of(organisation)
        counts = await self._hours.counts(organisation, until_us - DAY_US, until_us)
        lines = [
            ProfileLine(kind, scope, sum(hours.values()), max(hours), lasting(known, kind, scope))
            for (kind, scope), hours in counts.items()
        ]
        shown = {(line.kind, line.scope) for line in lines}
        lines += [
            ProfileLine(each.kind, each.scope, 0, each.seen_us, each)
            for each in known
            if each.state == "open" and (each.kind, each.scope) not in shown
        ]
        lines.sort(key=lambda line: (not _is_open(line.drift), line.kind != "prompts", -line.count))
        past = [each for each in known if each.state in ("ended", "accepted")]
        return ProfileList(
            organisation,
            until_us,
            self._services.settings.drift.enabled,
            tuple(lines),
            tuple(past[:HISTORY_MAX]),
        )

    async def detail(self, organisation: str, kind: str, scope: str) -> ProfileDetail:
        """One profile.

        Raises:
            NotFoundException: it had no traffic in the last day, and no drift.
        """
        if kind not in KINDS:
            raise NotFoundException
        kind = cast("Kind", kind)
        until_us = await self._hours.until_us(organisation)
        known = await self._drifts.of(organisation)
        own = [each for each in known if (each.kind, each.scope) == (kind, scope)]
        found = await compared(
            self._hours, known, organisation, until_us, self._rules, only=(kind, scope)
        )
        if not found and not own:
            raise NotFoundException
        drift = lasting(own, kind, scope)
        since = 0
        if drift is not None:
            counts = await self._hours.counts(organisation, drift.began_us, until_us)
            since = sum(counts.get((kind, scope), {}).values())
        seen = found[0] if found else None
        return ProfileDetail(
            organisation=organisation,
            kind=kind,
            scope=scope,
            since_us=seen.since_us if seen else until_us,
            until_us=until_us,
            state=seen.verdict.state if seen else "quiet",
            count=seen.verdict.count if seen else 0,
            reference=seen.verdict.reference if seen else 0,
            days=seen.verdict.days if seen else 0,
            features=_features(seen) if seen else (),
            drift=drift,
            past=tuple(each for each in own if each.state in ("ended", "accepted"))[:HISTORY_MAX],
            since_began=since,
            is_withdrawn=self._is_withdrawn(own),
            history=await self._history(organisation, seen, drift.began_us if drift else 0),
        )

    async def _history(
        self, organisation: str, seen: Comparison | None, began_us: int
    ) -> History | None:
        """Of the feature that moved most, or of the first one."""
        if seen is None:
            return None
        hours, features = hours_of(seen.until_us), FEATURES[seen.kind]
        profiles = await self._hours.read(organisation, seen.kind, [seen.scope], hours)
        moved = next((each.feature for each in seen.verdict.shifts if each.is_drift), "")
        feature = next((each for each in features if each.name == moved), features[0])
        return history_of(feature, profiles.get(seen.scope, {}), seen.until_us, began_us)

    def _is_withdrawn(self, own: list[Drift]) -> bool:
        """As far as it is known here: whether a newer promise was made, workers know."""
        withdraws = self._services.settings.drift.withdraws_guarantee
        promised = (each.guarantee and each.state == "open" for each in own)
        return withdraws and any(promised)

    async def accept(self, person: Person, organisation: str, drift: str, reason: str) -> Drift:
        """Traffic like this is the reference from the drift's beginning on; on record first.

        Raises:
            NotFoundException: there is no such drift.
            RequestInvalid: it is over, or no reason is given.
        """
        if not 0 < len(reason) <= REASON_CHARS:
            raise RequestInvalid("give a reason why this is the new normal", parameter="reason")
        found = [each for each in await self._drifts.of(organisation) if each.id == drift]
        if not found:
            raise NotFoundException
        if found[0].state != "open":
            raise RequestInvalid("this drift is over already", parameter="drift")
        before = found[0]
        told = {"drift": drift, "kind": before.kind, "scope": before.scope, "said": before.said}
        async with self._services.deeds.doing(
            person.name,
            "drift.accepted",
            organisation,
            before=told | {"state": before.state},
            after=told | {"state": "accepted", "since_us": before.began_us, "reason": reason},
        ):
            return await self._drifts.accept(organisation, drift, person.name, reason)


def may_accept(person: Person, organisation: str) -> bool:
    """Whoever publishes policies says what they are published for."""
    return allows(person, Permission.POLICIES_PUBLISH, organisation)


def _is_open(drift: Drift | None) -> bool:
    return drift is not None and drift.state == "open"


def _features(seen: Comparison) -> tuple[FeatureLines, ...]:
    """Those that drift first, as the verdict orders them; then those that cannot be judged."""
    shifts = {shift.feature: shift for shift in seen.verdict.shifts}
    order = [*shifts, *(each.name for each in FEATURES[seen.kind])]
    lines = []
    for feature in sorted(FEATURES[seen.kind], key=lambda each: order.index(each.name)):
        bins = _bins(feature, seen.now, seen.reference)
        if bins:
            lines.append(FeatureLines(feature.name, feature.title, bins, shifts.get(feature.name)))
    return tuple(lines)


def _bins(feature: Feature, now: Profile, reference: Profile) -> tuple[BinLine, ...]:
    here, there = now.bins.get(feature.name, {}), reference.bins.get(feature.name, {})
    ours, theirs = max(sum(here.values()), 1), max(sum(there.values()), 1)
    if not here and not there:
        return ()
    names = bins_of(feature, now, reference)
    return tuple(
        BinLine(
            words_of(feature, name),
            here.get(name, 0),
            there.get(name, 0),
            round(_PERCENT * here.get(name, 0) / ours, 1),
            round(_PERCENT * there.get(name, 0) / theirs, 1),
        )
        for name in names[: BINS_SHOWN if not feature.edges else None]
    )
