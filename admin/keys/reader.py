"""Gathers the data of the key pages; reads only, and bounded."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.keys.lines import KeyLine, Spending, key_line, spending_of
from admin.keys.propagation import Propagation, propagation
from admin.queries import PAGE_ROWS
from admin.services import Services
from gateway.audit.projecting.projection import SequencedRecord
from gateway.clock import HOUR_US, SECOND_US
from gateway.money.rates import RateLimit
from gateway.oversight.deeds import OPERATORS
from gateway.store.evidence.sink import AuditQuery
from gateway.store.identity.key_lists import KeyLists, KeySearch
from gateway.store.identity.key_names import KeyFacts
from gateway.store.identity.keys import secrets_mark
from gateway.store.money.slices import Budget
from gateway.store.workers import WorkerTable


RECENT_MAX: Final = 8
RECENT_US: Final = 86_400_000_000
DEEDS_MAX: Final = 200
COUNT_MAX: Final = 10_000
ROLLUP_BATCHES: Final = 2
KEY_DEEDS: Final = (
    *("key.issued", "key.rotated", "key.revoked", "key.narrowed"),
    *("key.widening_proposed", "key.widened", "key.widening_declined", "key.widening_withdrawn"),
)


class KeyDeed(Struct, frozen=True):
    """What somebody did to a key."""

    utc_us: int
    actor: str
    action: str
    request_id: str
    error: str = ""


class KeyRequest(Struct, frozen=True):
    """One request of a key, without its content."""

    request_id: str
    utc_us: int
    model_requested: str
    target: str
    provider: str
    jurisdiction: str
    status: str
    error: str
    cost_microusd: int
    duration_us: int


class KeyDetail(Struct, frozen=True):
    """All that a key's page shows."""

    key: KeyLine
    rate: RateLimit | None
    month_microusd: int
    """What it cost this month by the records, whatever limits it had."""
    lately: int
    """Requests of the last hour; no more than COUNT_MAX are counted."""
    requests: tuple[KeyRequest, ...]
    deeds: tuple[KeyDeed, ...]
    propagation: Propagation | None
    """Where it is dead; None of a key that is not revoked."""
    secrets: str
    """Which secrets it has, as a rotation says what it was meant for; nothing of them is in it."""


class KeyPage(Struct, frozen=True):
    """Some keys of a list."""

    keys: tuple[KeyLine, ...]
    count: int
    """Of all that were sought."""
    first: int
    """How many come before these."""
    following: int
    """Where the next page begins; 0 after the last one."""
    onward: str = ""
    """The key of the last of these, behind which the next page is sought."""


class KeyReader:
    """Keys of one organisation, with what they used."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._workers = WorkerTable(services.database)
        self.lists = KeyLists(services.database, services.clock)

    async def page(
        self,
        organisation: str,
        search: KeySearch,
        first: int,
        limit: int = PAGE_ROWS,
        after: str = "",
    ) -> KeyPage:
        """Some of the keys that are sought, the newest first; `after` is as `onward` says it."""
        part = await self.lists.page(organisation, search, (first, after), limit)
        keys = tuple(await self._lines(organisation, part.rows))
        return KeyPage(keys, part.count, part.first, part.following, part.onward)

    async def _lines(self, organisation: str, facts: Sequence[KeyFacts]) -> list[KeyLine]:
        services = self._services
        now_us = services.clock.utc_us()
        await services.rollup.catch_up(ROLLUP_BATCHES)
        ids = [key.key_id for key in facts]
        used = await services.figures.last_used(organisation, ids)
        spendings = await self.spendings_of([f"key:{key_id}" for key_id in ids])
        return [key_line(key, used, spendings, now_us) for key in facts]

    async def spendings(self) -> Mapping[str, Sequence[Spending]]:
        """All limits by account, with what is used of them."""
        return _by_account(await self._services.budgets.budgets())

    async def spendings_of(self, accounts: Collection[str]) -> Mapping[str, Sequence[Spending]]:
        """The limits of these accounts, with what is used of them."""
        return _by_account(await self._services.budgets.budgets_of(accounts))

    async def line(self, organisation: str, key_id: str) -> KeyLine:
        """One key.

        Raises:
            NotFoundException: the organisation has no such key.
        """
        facts = await self._services.key_names.facts(organisation, key_id)
        for line in await self._lines(organisation, facts):
            return line
        raise NotFoundException

    async def secrets_seen(self, organisation: str, key_id: str) -> str:
        """What a form that gives a key another secret says that it was made for."""
        facts = await self._services.key_names.facts(organisation, key_id)
        return secrets_mark(facts[0].former_until_us) if facts else ""

    async def lately(self, organisation: str, key_id: str) -> int:
        """How often a key asked in the last hour; no more than COUNT_MAX are counted."""
        since_us = self._services.clock.utc_us() - HOUR_US
        return await self._services.figures.asked_since(organisation, key_id, since_us, COUNT_MAX)

    async def detail(self, organisation: str, key_id: str) -> KeyDetail:
        """A key with its latest requests and what was done to it.

        Raises:
            NotFoundException: the organisation has no such key.
        """
        line = await self.line(organisation, key_id)
        rates = [
            each for each in await self._services.rates.all() if each.account == f"key:{key_id}"
        ]
        return KeyDetail(
            key=line,
            rate=rates[0] if rates else None,
            month_microusd=await self._this_month(organisation, key_id),
            lately=await self.lately(organisation, key_id),
            requests=await self._requests(organisation, line),
            deeds=await self._deeds(organisation, key_id),
            propagation=await self._propagation(line),
            secrets=await self.secrets_seen(organisation, key_id),
        )

    async def _this_month(self, organisation: str, key_id: str) -> int:
        """Of the organisation's own calendar; its line was read with what was recorded till now."""
        zone = ZoneInfo(await self._services.spending.zone_of(organisation))
        today = datetime.fromtimestamp(self._services.clock.utc_us() // SECOND_US, zone).date()
        days, group = (str(today.replace(day=1)), str(today)), (key_id,)
        figures = self._services.figures
        return (await figures.costs_of(organisation, days, ("key_id",), [group])).get(group, 0)

    async def _propagation(self, line: KeyLine) -> Propagation | None:
        if line.revoked_us is None:
            return None
        reports = await self._workers.all()
        now_us = self._services.clock.utc_us()
        return propagation(reports, line.revoked_revision, line.revoked_us, now_us)

    async def _requests(self, organisation: str, line: KeyLine) -> tuple[KeyRequest, ...]:
        """Those of the day that ends with the last one: a longer search would have no bound."""
        if not line.last_us:
            return ()
        query = AuditQuery(
            organisation=organisation,
            stage="outcome",
            key_id=line.key_id,
            since_us=line.last_us - RECENT_US,
            until_us=line.last_us + 1,
        )
        return tuple(map(_request, await self._services.records.newest(query, RECENT_MAX)))

    async def _deeds(self, organisation: str, key_id: str) -> tuple[KeyDeed, ...]:
        """Newest first, among the newest deeds of each kind."""
        found = []
        for action in KEY_DEEDS:
            query = AuditQuery(organisation=OPERATORS, stage="admin", action=action)
            for row in await self._services.records.newest(query, DEEDS_MAX):
                record = row.projected.record
                about = record.detail.get("organisation", "")
                if about in ("", organisation) and _key_of(record.detail) == key_id:
                    found.append(
                        KeyDeed(
                            record.utc_us,
                            record.actor,
                            record.action,
                            record.request_id,
                            record.error,
                        )
                    )
        return tuple(sorted(found, key=lambda deed: -deed.utc_us))


def _by_account(budgets: Sequence[Budget]) -> dict[str, list[Spending]]:
    found: dict[str, list[Spending]] = {}
    for budget in budgets:
        found.setdefault(budget.limit.account, []).append(spending_of(budget))
    return found


def _request(row: SequencedRecord) -> KeyRequest:
    record = row.projected.record
    return KeyRequest(
        request_id=record.request_id,
        utc_us=record.utc_us,
        model_requested=record.model_requested,
        target=record.target,
        provider=record.provider,
        jurisdiction=record.jurisdiction,
        status=record.status,
        error=record.error,
        cost_microusd=record.cost_microusd,
        duration_us=record.duration_us,
    )


def _key_of(detail: Mapping[str, str]) -> str:
    """The key that a deed was done to; a record of another shape names none."""
    try:
        after: Any = msgspec.json.decode(detail.get("after", "null"))
    except msgspec.DecodeError:
        return ""
    return str(after.get("key_id", "")) if isinstance(after, dict) else ""
