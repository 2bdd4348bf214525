"""In-house engines as workers see them: queue, batch, cache, speed; and drains of members.

Everything here was reported by workers and is seconds old; its age is shown beside it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from litestar import MediaType, Response, get, post, route
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.forms import form_of
from admin.models.room import Room, room_of
from admin.screens import CONFLICT
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.undo import MEANWHILE, Undo, offer
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.oversight.access import Permission, Person
from gateway.oversight.workers import MemberReport, Standing, WorkerReport, age_s, standing
from gateway.store.pool_drains import Drain, DrainTable
from gateway.store.workers import WorkerTable


AT: Final = "/models/engine"
REASON_LENGTH_MAX: Final = 500
_TAKING: Final = frozenset(("up", "warming", "slow"))
_HTML: Final = MediaType.HTML
_READS: Final = needs(Permission.SYSTEM_READ, "everywhere")
_ASKS: Final = needs(Permission.SYSTEM_CONFIGURE, "everywhere")
_DRAINS: Final = needs(Permission.SYSTEM_CONFIGURE, "everywhere", records="pool.drained")
_RESUMES: Final = needs(Permission.SYSTEM_CONFIGURE, "everywhere", records="pool.resumed")


class DrainOrder(Struct, frozen=True):
    """A member to be drained, and why."""

    member: str
    reason: str = ""


class Reason(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a member is drained."""

    reason: str = ""


class View(Struct, frozen=True):
    """One engine as one worker sees it."""

    worker: str
    standing: Standing
    age_s: float
    seen: MemberReport


class EngineLine(Struct, frozen=True):
    """One engine: as the worker that looked last sees it, and as each of them does."""

    provider: str
    member: str
    is_member: bool
    """Of a pool, so that it can be drained."""
    newest: View | None
    """None where no worker that can be believed said anything."""
    views: tuple[View, ...]
    calls: int
    """Of all workers, under way there."""
    drain: Drain | None

    @property
    def is_in_service(self) -> bool:
        """Whether a worker that is heard of would send it something new."""
        heard = (each.seen.state for each in self.views if each.standing != "lost")
        return self.drain is None and any(state in _TAKING for state in heard)

    @property
    def room(self) -> Room | None:
        """The arithmetic of its memory; None where it does not tell enough of it."""
        return None if self.newest is None else room_of(self.newest.seen.memory)

    @property
    def figures_age_s(self) -> float | None:
        """How old its own figures are by now; None when it never gave any."""
        if self.newest is None or self.newest.seen.figures_age_s is None:
            return None
        return self.newest.seen.figures_age_s + self.newest.age_s


class EnginePage(Struct, frozen=True):
    """All in-house engines of the configuration, by provider."""

    lines: tuple[EngineLine, ...]
    workers: int
    lost: int
    read_us: int

    @property
    def figures(self) -> Mapping[str, float | None]:
        """The sum of what engines that are heard of say; None where none of them does."""
        names = ("waiting", "running", "generated_tokens_per_s", "read_tokens_per_s")
        seen = [line.newest.seen for line in self.lines if line.newest is not None]
        found = {}
        for name in (*names, "blocks_used", "blocks_total"):
            told = [value for each in seen if (value := getattr(each, name)) is not None]
            found[name] = sum(told) if told else None
        return found


class EngineDesk:
    """Reads engines, and drains members for whoever is signed in; all may raise NotReady."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._workers = WorkerTable(services.database)
        self._drains = DrainTable(services.database, services.clock)

    async def read(self) -> EnginePage:
        """Every engine that the configuration names, or that a worker tells of."""
        now_us = self._services.clock.utc_us()
        reports = await self._workers.all()
        drains = {each.member: each for each in await self._drains.all()}
        views = _views(reports, now_us)
        places = list(dict.fromkeys([*self._configured(), *views]))
        members = self.members()
        lines = [
            _line(place, views.get(place, ()), drains.get(place[1]), is_member=place[1] in members)
            for place in places
        ]
        lost = sum(standing(each, now_us) == "lost" for each in reports)
        return EnginePage(tuple(lines), len(reports) - lost, lost, now_us)

    async def line(self, member: str) -> EngineLine:
        """A member of a pool; raises RequestInvalid."""
        for line in (await self.read()).lines:
            if line.is_member and line.member == member:
                return line
        raise RequestInvalid("No pool has a member of this name.", parameter="member")

    def members(self) -> frozenset[str]:
        """The members of all pools."""
        providers = self._services.settings.providers.values()
        return frozenset(member for each in providers for member in each.members)

    async def drain(self, person: Person, order: DrainOrder) -> Drain:
        """Send nothing new to a member.

        Raises:
            RequestInvalid: no pool has it, it is drained, or the reason is too long.
        """
        if len(order.reason) > REASON_LENGTH_MAX:
            raise RequestInvalid("This reason is too long.", parameter="reason")
        line = await self.line(order.member)
        if line.drain is not None:
            raise RequestInvalid(f"{line.drain.actor} drained it already.", parameter="member")
        after = msgspec.to_builtins(order)
        async with self._services.deeds.doing(person.name, "pool.drained", "", after=after):
            return await self._drains.drain(order.member, person.name, order.reason)

    async def resume(self, person: Person, member: str, since_us: int | None = None) -> Drain:
        """Give a member its share again, by ending the drain of `since_us` if that is named.

        Raises:
            RequestInvalid: it is not drained.
            ChangedMeanwhile: it is drained by another order.
        """
        drains = {each.member: each for each in await self._drains.all()}
        if member not in drains:
            raise RequestInvalid("It is not drained.", parameter="member")
        if since_us not in (None, drains[member].since_us):
            raise ChangedMeanwhile(MEANWHILE, parameter="member")
        before, after = msgspec.to_builtins(drains[member]), {"member": member}
        async with self._services.deeds.doing(
            person.name, "pool.resumed", "", before=before, after=after
        ):
            await self._drains.resume(member)
        return drains[member]

    def _configured(self) -> list[tuple[str, str]]:
        """Provider and engine of every engine; those of pools under their pool."""
        providers = self._services.settings.providers
        pooled = [(name, member) for name, each in providers.items() for member in each.members]
        inside = {member for _, member in pooled}
        alone = [
            (name, name)
            for name, each in providers.items()
            if each.kind == "engine" and name not in inside
        ]
        return [*pooled, *alone]


def engine_routes(services: Services) -> list[Any]:
    """The page, draining and resuming, and the same as JSON."""
    return [*_reading(services), *_draining(services), *_api(services)]


def _reading(services: Services) -> list[Any]:
    desk, shell = EngineDesk(services), services.shell

    @route(AT, http_method=READING, media_type=_HTML, opt=_READS)
    async def engine(request: Asking) -> Response[str]:
        found = await desk.read()
        return await shell.page(request, "models/engine.html", "engine", found=found)

    return [engine]


def _draining(services: Services) -> list[Any]:
    desk, shell = EngineDesk(services), services.shell

    async def showing(request: Asking, member: str, reason: str = "", wrong: str = "") -> Any:
        line = await desk.line(member)
        others = [
            each
            for each in (await desk.read()).lines
            if each.provider == line.provider and each.member != member
        ]
        return await shell.page(
            request,
            "models/drain.html",
            "engine",
            CONFLICT if wrong else 200,
            line=line,
            others=others,
            reason=reason,
            wrong=wrong,
        )

    @route(f"{AT}/drain", http_method=READING, media_type=_HTML, opt=_ASKS)
    async def drain_page(request: Asking) -> Response[str]:
        page: Response[str] = await showing(request, request.query_params.get("member", ""))
        return page

    @post(f"{AT}/drain", media_type=_HTML, opt=_DRAINS, status_code=SEE_OTHER)
    async def drain(request: Asking) -> Response[Any]:
        form = await form_of(request)
        order = DrainOrder(form.text("member"), form.text("reason"))
        try:
            drained = await desk.drain(session_of(request).person, order)
        except RequestInvalid as error:
            page: Response[str] = await showing(request, order.member, order.reason, error.message)
            return page
        back = {"member": order.member, "since_us": str(drained.since_us)}
        said = f"{order.member} is drained: it gets nothing new."
        offer(request, services.clock, Undo(said, f"{AT}/resume", back))
        return Redirect(AT, status_code=SEE_OTHER)

    @post(f"{AT}/resume", media_type=_HTML, opt=_RESUMES, status_code=SEE_OTHER)
    async def resume(request: Asking) -> Redirect:
        form = await form_of(request)
        since_us = form.whole("since_us", 2**62)
        ended = await desk.resume(session_of(request).person, form.text("member"), since_us)
        back = {"member": ended.member, "reason": ended.reason}
        said = f"{ended.member} gets its share again."
        offer(request, services.clock, Undo(said, f"{AT}/drain", back))
        return Redirect(AT, status_code=SEE_OTHER)

    return [drain_page, drain, resume]


def _api(services: Services) -> list[Any]:
    desk = EngineDesk(services)

    @get("/api/engine", opt=_READS)
    async def engine_api() -> EnginePage:
        return await desk.read()

    @post("/api/engine/{member:str}/drain", opt=_DRAINS, status_code=204)
    async def drain_api(request: Asking, member: FromPath[str]) -> None:
        order = await body_of(request, Reason)
        await desk.drain(session_of(request).person, DrainOrder(member, order.reason))

    @post("/api/engine/{member:str}/resume", opt=_RESUMES, status_code=204)
    async def resume_api(request: Asking, member: FromPath[str]) -> None:
        await desk.resume(session_of(request).person, member)

    return [engine_api, drain_api, resume_api]


def _views(reports: Sequence[WorkerReport], now_us: int) -> dict[tuple[str, str], tuple[View, ...]]:
    found: dict[tuple[str, str], list[View]] = {}
    for report in reports:
        for seen in report.members:
            view = View(report.worker, standing(report, now_us), age_s(report, now_us), seen)
            found.setdefault((seen.provider, seen.member), []).append(view)
    return {place: tuple(views) for place, views in found.items()}


def _line(
    place: tuple[str, str], views: Sequence[View], drain: Drain | None, *, is_member: bool
) -> EngineLine:
    here = [view for view in views if view.standing != "lost"]
    return EngineLine(
        provider=place[0],
        member=place[1],
        is_member=is_member,
        newest=min(here, key=_staleness, default=None),
        views=tuple(views),
        calls=sum(view.seen.calls for view in here),
        drain=drain,
    )


def _staleness(view: View) -> tuple[bool, float]:
    """Whose figures are the freshest; who has none goes last."""
    age = view.seen.figures_age_s
    return age is None, view.age_s + (age or 0.0)
