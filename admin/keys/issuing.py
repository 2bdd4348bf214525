"""Issues, rotates and revokes keys for the signed-in person; each is first recorded."""

import re
from typing import Final

import msgspec
from litestar.exceptions import PermissionDeniedException
from msgspec import Struct
from msgspec.structs import asdict, replace

from admin.keys.lines import KeyLine
from admin.services import Services
from gateway.clock import DAY_US
from gateway.errors import GatewrightError, RequestInvalid
from gateway.identity import KeyText, Workload, key_id_for, new_key_id
from gateway.money.budgets import Limit, WindowKind
from gateway.money.rates import RATE_MAX, RateLimit
from gateway.oversight.access import Permission, Person, allows
from gateway.oversight.key_scope import check_labels, check_models
from gateway.store.identity.keys import NewKey, Place
from gateway.store.identity.names import visible
from gateway.store.identity.teams import KeyDefaults, TeamStore
from gateway.store.identity.workloads import workload_ordered
from gateway.types import Translation


EXPIRES_DAYS: Final = 90
EXPIRES_DAYS_MAX: Final = 36_500
OVERLAP_S: Final = 86_400
OVERLAP_S_MAX: Final = 366 * 86_400
LIMIT_MICROUSD_MAX: Final = 10**15
_KEY_ID: Final = re.compile(r"[0-9A-Za-z]{12}", re.ASCII)


class KeyOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A key to be issued; its organisation is the path's, and what is None is its team's."""

    workspace: str
    project: str
    name: str
    labels: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    """Targets it may use; None for all that policy permits."""
    expires_days: int | None = None
    """None for what new keys of its team get, and if those get nothing, for never."""
    translation: Translation = "warn"
    key_id: str = ""
    """A mark, so that what is sent twice issues one key; the key's own id is another one."""
    budget_microusd: int | None = None
    budget_window: WindowKind = "month"
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    issuer: str = ""
    """Of `callers.issuers` of the settings: its tokens prove the key, which has no secret then."""
    subject: str = ""
    """The `sub` of these tokens."""
    claims: dict[str, str] = {}
    """What they must say besides, by claim; each is this text exactly."""

    @property
    def rates(self) -> tuple[int | None, int | None, int | None]:
        return self.requests_per_minute, self.tokens_per_minute, self.concurrent_requests

    @property
    def is_limited(self) -> bool:
        return self.budget_microusd is not None or any(each is not None for each in self.rates)


class KeyIssuer:
    """What people may do to keys."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._teams = TeamStore(services.database, services.clock)

    async def issue(self, person: Person, organisation: str, order: KeyOrder) -> KeyText:
        """A new key, limited as ordered before anybody is told its secret, where it has one.

        Raises:
            RequestInvalid: with the field that is wrong.
            PermissionDeniedException: it is to be limited, which its owner may not.
        """
        self._check(person, organisation, order)
        team = await self._teams.team(organisation, order.workspace)
        if team is not None:
            order = with_defaults(order, team.defaults)
        key_id = key_id_for(organisation, order.key_id) if order.key_id else new_key_id()
        services = self._services
        expires_us = None
        if order.expires_days is not None:
            expires_us = services.clock.utc_us() + order.expires_days * DAY_US
        new = NewKey(
            place=Place(organisation, order.workspace, order.project),
            name=order.name,
            created_by=person.name,
            labels=order.labels,
            models=None if order.models is None else frozenset(order.models),
            expires_us=expires_us,
            translation=order.translation,
            workload=self._workload(organisation, order),
            key_id=key_id,
        )
        after = _told(order) | {"key_id": key_id, "expires_us": expires_us}
        async with services.deeds.doing(person.name, "key.issued", organisation, after=after):
            key = await services.keys.issue(new)
        try:
            await self._limit(person, organisation, f"key:{key_id}", order)
        except GatewrightError:
            # Nobody was told its secret: without the limits that were asked for it must not work.
            await services.keys.revoke(key_id, organisation)
            raise
        return key

    async def rotate(
        self,
        person: Person,
        organisation: str,
        line: KeyLine,
        overlap_s: int,
        seen: str | None = None,
        *,
        ends_former: bool = True,
    ) -> KeyText:
        """Another secret for a key; the one it has stays good for so many seconds.

        `seen` is `secrets_mark` as the form was made, None where nobody looked; then a secret that
        a rotation before left good ends only where `ends_former` says so.

        Raises:
            ChangedMeanwhile: it was given another secret since the form was made.
            RequestInvalid: the overlap is too long, or the key has ended.
        """
        if not 0 <= overlap_s <= OVERLAP_S_MAX:
            raise RequestInvalid("this overlap is too long", parameter="overlap_s")
        if not line.is_live:
            reason = f"This key is {line.state}: issue another one."
            raise RequestInvalid(reason, parameter="key_id")
        async with self._services.deeds.doing(
            person.name,
            "key.rotated",
            organisation,
            before=_before(line),
            after={"key_id": line.key_id, "overlap_s": overlap_s},
        ):
            return await self._services.keys.rotate(
                line.key_id,
                overlap_s=overlap_s,
                organisation=organisation,
                seen=seen,
                ends_former=ends_former,
            )

    async def revoke(self, person: Person, organisation: str, line: KeyLine) -> None:
        """End a key for good; again is no error."""
        async with self._services.deeds.doing(
            person.name,
            "key.revoked",
            organisation,
            before=_before(line),
            after={"key_id": line.key_id},
        ):
            await self._services.keys.revoke(line.key_id, organisation)

    def _check(self, person: Person, organisation: str, order: KeyOrder) -> None:
        may_limit = allows(person, Permission.BUDGETS_SET, organisation)
        if order.is_limited and not may_limit:
            raise PermissionDeniedException("only people who may set budgets can set limits")
        days = order.expires_days
        if days is not None and not 0 < days <= EXPIRES_DAYS_MAX:
            raise RequestInvalid(f"1 to {EXPIRES_DAYS_MAX} days", parameter="expires_days")
        visible(order.name, "name")
        check_labels(order.labels)
        if order.key_id and _KEY_ID.fullmatch(order.key_id) is None:
            raise RequestInvalid("use 12 letters and digits", parameter="key_id")
        if (order.budget_microusd or 0) > LIMIT_MICROUSD_MAX:
            raise RequestInvalid("the limit is too large", parameter="budget_microusd")
        if (order.budget_microusd or 0) < 0:
            raise RequestInvalid("a limit cannot be negative", parameter="budget_microusd")
        for name in ("requests_per_minute", "tokens_per_minute", "concurrent_requests"):
            number = getattr(order, name)
            if number is not None and not 0 <= number <= RATE_MAX:
                raise RequestInvalid("this number is negative or too large", parameter=name)
        check_models(order.models, self._services.settings.targets)

    def _workload(self, organisation: str, order: KeyOrder) -> Workload | None:
        if not order.issuer:
            if order.subject or order.claims:
                raise RequestInvalid("this needs an issuer", parameter="subject")
            return None
        issuers = self._services.settings.callers.issuers
        return workload_ordered(issuers, organisation, order.issuer, order.subject, order.claims)

    async def _limit(
        self, person: Person, organisation: str, account: str, order: KeyOrder
    ) -> None:
        services = self._services
        if order.budget_microusd is not None:
            limit = Limit(account, order.budget_microusd, order.budget_window)
            after = {"account": account, "limit_microusd": limit.limit_microusd}
            async with services.deeds.doing(
                person.name, "budget.set", organisation, after=after | {"window": limit.window}
            ):
                await services.budgets.set_limit(limit)
        if any(each is not None for each in order.rates):
            rate = RateLimit(account, *order.rates)
            async with services.deeds.doing(
                person.name, "rate_limit.set", organisation, after=asdict(rate)
            ):
                await services.rates.set(rate)


def with_defaults(order: KeyOrder, defaults: KeyDefaults) -> KeyOrder:
    """An order with what its team gives to new keys, where it says nothing itself."""
    found = asdict(defaults)
    if order.budget_microusd is not None:
        del found["budget_microusd"], found["budget_window"]
    said = asdict(order)
    missing = {name: value for name, value in found.items() if said[name] is None}
    if "budget_microusd" in missing:
        missing["budget_window"] = defaults.budget_window
    return replace(order, **missing)


def _told(order: KeyOrder) -> dict[str, object]:
    """What was ordered, for the record: no limit at all is left out, one of nothing is not."""
    given = msgspec.to_builtins(order).items()
    said = {name: value for name, value in given if value or value == 0}
    # None is all that policy permits, an empty list nothing at all.
    return said if order.models is None else said | {"models": list(order.models)}


def _before(line: KeyLine) -> dict[str, object]:
    return {"name": line.name, "revoked_us": line.revoked_us}
