"""Workers as the control plane sees them: what each last reported, and how far they agree."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from litestar import MediaType, Response, get, route
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs
from admin.asking import Asking
from admin.services import Services
from admin.sign_in.pages import READING
from admin.system.verdict import Verdict, judged, most_served, positions
from gateway.oversight.access import Permission
from gateway.oversight.workers import Standing, WorkerReport, age_s, standing
from gateway.store.evidence.unended import Unended, UnendedReader
from gateway.store.revisions import current
from gateway.store.schema.version import newest_schema, schema_of
from gateway.store.workers import WorkerTable


AT: Final = "/system"
_READS: Final = needs(Permission.SYSTEM_READ, "everywhere")


class WorkerLine(Struct, frozen=True):
    """One worker: its report, and what follows from it now."""

    report: WorkerReport
    standing: Standing
    age_s: float
    stale_s: float
    """How long ago the database confirmed what it serves by; its word's own age counts, too."""
    revisions_behind: int
    differs: tuple[str, ...]
    """What is not as on most workers: settings, policies, prices, snapshot, version or schema."""


class WorkersPage(Struct, frozen=True):
    """All workers, and what they are compared with."""

    verdict: Verdict
    revision: int
    schema: str
    schema_newest: str
    lines: tuple[WorkerLine, ...]
    breakers: Mapping[str, Mapping[str, str]]
    """Of targets whose breaker is not closed somewhere: target → worker → position."""
    targets: int
    read_us: int
    left: tuple[Unended, ...] = ()
    """Requests without an outcome, of workers that are gone; counted every few minutes."""

    @property
    def lost(self) -> int:
        return sum(line.standing == "lost" for line in self.lines)

    @property
    def stalest_s(self) -> float:
        return max((line.stale_s for line in self.lines if line.standing != "lost"), default=0.0)


class WorkersReader:
    """Reads what workers said; all may raise NotReady."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._table = WorkerTable(services.database)
        self._unended = UnendedReader(services.database, services.clock)

    async def read(self) -> WorkersPage:
        services = self._services
        revision = await current(services.database)
        reports = await self._table.all()
        now_us = services.clock.utc_us()
        here = [each for each in reports if standing(each, now_us) != "lost"]
        common = {name: _common(here, name) for name in _COMPARED}
        return WorkersPage(
            verdict=judged(reports, revision, now_us),
            revision=revision,
            schema=await schema_of(services.database),
            schema_newest=newest_schema(),
            lines=tuple(
                WorkerLine(
                    report=each,
                    standing=standing(each, now_us),
                    age_s=age_s(each, now_us),
                    stale_s=each.stale_s + age_s(each, now_us),
                    revisions_behind=max(revision - each.revision, 0),
                    differs=tuple(
                        word
                        for name, word in _COMPARED.items()
                        if len(here) > 1 and getattr(each, name) not in common[name]
                    ),
                )
                for each in reports
            ),
            breakers=positions(here),
            targets=len({target for each in here for target in each.breakers}),
            read_us=now_us,
            left=tuple(await self._unended.kept()),
        )

    async def one(self, worker: str) -> WorkerLine:
        """One worker.

        Raises:
            NotFoundException: none of this name said anything in the last day.
        """
        for line in (await self.read()).lines:
            if line.report.worker == worker:
                return line
        raise NotFoundException


_COMPARED: Final = {
    "settings_digest": "settings",
    "policies_digest": "policies",
    "prices_digest": "prices",
    "snapshot_digest": "snapshot",
    "version": "version",
    "schema": "schema",
}


def _common(here: Sequence[WorkerReport], name: str) -> tuple[str, ...]:
    """What most have; of prices nothing at all, too, as of versions that did not say them yet."""
    said = [each for each in here if each.prices_digest] if name == "prices_digest" else here
    most = most_served(said, lambda each: getattr(each, name))
    return (most, "") if name == "prices_digest" else (most,)


def worker_routes(services: Services) -> list[Any]:
    """The pages, and the JSON behind them."""
    reader, shell = WorkersReader(services), services.shell

    @route(AT, http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def workers(request: Asking) -> Response[str]:
        found = await reader.read()
        return await shell.page(request, "system/workers.html", "system", found=found)

    @route(
        f"{AT}/workers/{{worker:str}}", http_method=READING, media_type=MediaType.HTML, opt=_READS
    )
    async def worker_page(request: Asking, worker: FromPath[str]) -> Response[str]:
        line = await reader.one(worker)
        return await shell.page(request, "system/worker.html", "system", line=line)

    @get("/api/system/workers", opt=_READS)
    async def workers_api() -> WorkersPage:
        return await reader.read()

    @get("/api/system/workers/{worker:str}", opt=_READS)
    async def worker_api(worker: FromPath[str]) -> WorkerLine:
        return await reader.one(worker)

    return [workers, worker_page, workers_api, worker_api]
