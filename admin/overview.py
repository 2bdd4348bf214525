"""What the overview shows: targets, keys, the last requests and the state of the evidence."""

from typing import Any

from litestar import MediaType, Request, Response, route
from msgspec import Struct

from admin.access import PUBLIC, needs, session_of
from admin.services import Services
from admin.sign_in import READING
from gateway.access import Permission, organisations_of
from gateway.audit.projection import SequencedRecord
from gateway.clock import Clock
from gateway.credentials import provider_credential
from gateway.settings import Settings
from gateway.store.audit_sink import AuditQuery, DatabaseAuditSink
from gateway.store.keys import KeyStore
from gateway.store.leases import LeaseTable
from gateway.store.revisions import current
from gateway.types import Principal


RECENT_MAX = 50


def overview_routes(services: Services) -> list[Any]:
    """The first page, and whether the listener can work."""
    reader = OverviewReader(
        services.settings, services.keys, services.budgets, services.records, services.clock
    )

    @route(
        "/",
        http_method=READING,
        media_type=MediaType.HTML,
        opt=needs(Permission.OVERVIEW_READ, "some"),
    )
    async def overview(request: Request[Any, Any, Any]) -> Response[str]:
        visible = organisations_of(session_of(request).person, Permission.OVERVIEW_READ)
        found = await reader.read(visible)
        return await services.shell.page(request, "overview.html", "overview", overview=found)

    @route("/health/ready", http_method=READING, opt=PUBLIC)
    async def ready() -> dict[str, str]:
        await current(services.database)
        return {"status": "ready"}

    return [overview, ready]


class TargetRow(Struct, frozen=True):
    name: str
    provider: str
    jurisdiction: str
    unavailable_reason: str


class KeyRow(Struct, frozen=True):
    key_id: str
    name: str
    place: str
    is_live: bool


class RequestRow(Struct, frozen=True):
    """One outcome; never its content."""

    sequence: int
    organisation: str
    utc_us: int
    request_id: str
    model_requested: str
    target: str
    jurisdiction: str
    data_class: str
    findings: str
    status: str
    http_status: int
    cost_microusd: int


class BudgetRow(Struct, frozen=True):
    account: str
    window: str
    limit_microusd: int
    left_microusd: int


class Overview(Struct, frozen=True):
    targets: tuple[TargetRow, ...]
    keys: tuple[KeyRow, ...]
    budgets: tuple[BudgetRow, ...]
    requests: tuple[RequestRow, ...]


class OverviewReader:
    """Gathers an overview from the configuration and the database."""

    def __init__(
        self,
        settings: Settings,
        keys: KeyStore,
        budgets: LeaseTable,
        records: DatabaseAuditSink,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._budgets = budgets
        self._records = records
        self._clock = clock

    async def read(self, organisations: frozenset[str] | None = None) -> Overview:
        """What may be seen of these organisations; None is everything."""
        now_us = self._clock.utc_us()
        return Overview(
            targets=self._targets(),
            keys=tuple(
                KeyRow(
                    record.key_id,
                    record.principal.key_name,
                    _place(record.principal),
                    record.is_live(now_us),
                )
                for record in await self._keys.keys()
                if _is_visible(record.principal.organisation, organisations)
            ),
            budgets=tuple(
                BudgetRow(
                    budget.limit.account,
                    budget.limit.window,
                    budget.limit.limit_microusd,
                    budget.left_microusd,
                )
                for budget in await self._budgets.budgets()
                if _is_visible(_organisation_of(budget.limit.account), organisations)
            ),
            requests=await self._requests(organisations),
        )

    def _targets(self) -> tuple[TargetRow, ...]:
        rows = []
        for name, target in self._settings.targets.items():
            provider = self._settings.providers[target.provider]
            lacks_key = (
                provider.credential is not None
                and provider.credential.is_local
                and provider_credential(self._settings, target.provider) is None
            )
            reason = "no credential" if lacks_key else ""
            rows.append(TargetRow(name, target.provider, provider.jurisdiction, reason))
        return tuple(rows)

    async def _newest(self, organisations: frozenset[str] | None) -> list[SequencedRecord]:
        queries = [AuditQuery(stage="outcome")]
        if organisations is not None:
            queries = [
                AuditQuery(organisation=name, stage="outcome") for name in sorted(organisations)
            ]
        found = [row for query in queries for row in await self._records.newest(query, RECENT_MAX)]
        found.sort(key=lambda row: -row.projected.record.utc_us)
        return found[:RECENT_MAX] if organisations is not None else found

    async def _requests(self, organisations: frozenset[str] | None) -> tuple[RequestRow, ...]:
        rows = []
        newest = await self._newest(organisations)
        for row in newest:
            record = row.projected.record
            rows.append(
                RequestRow(
                    sequence=row.sequence,
                    organisation=record.organisation,
                    utc_us=record.utc_us,
                    request_id=record.request_id,
                    model_requested=record.model_requested,
                    target=record.target,
                    jurisdiction=record.jurisdiction,
                    data_class=record.data_class,
                    findings=", ".join(
                        f"{label} ({count})" for label, count in sorted(record.findings.items())
                    ),
                    status=record.status,
                    http_status=record.http_status,
                    cost_microusd=record.cost_microusd,
                )
            )
        return tuple(rows)


def _is_visible(organisation: str, organisations: frozenset[str] | None) -> bool:
    return organisations is None or organisation in organisations


def _organisation_of(account: str) -> str:
    """The organisation in an account's name; a key's name holds none, so only all see it."""
    level, _, path = account.partition(":")
    return "" if level == "key" else path.partition("/")[0]


def _place(principal: Principal) -> str:
    return f"{principal.organisation}/{principal.workspace}/{principal.project}"
