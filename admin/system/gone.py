"""Lost workers: what each left open, and retiring a worker's name by two people."""

from collections.abc import Awaitable, Sequence
from typing import Any, Final
from urllib.parse import quote

from litestar import MediaType, Response, get, post, route
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.forms import form_of
from admin.long_lists import list_of
from admin.second_person import refused_retirement
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.system.retiring import GonePage, GoneWorker
from admin.wrong_fields import taken_as
from gateway.actors import same_person
from gateway.batching.left_open import LeftBehind
from gateway.errors import Forbidden, RequestInvalid
from gateway.oversight.access import Permission
from gateway.store.evidence.retirements import Retirement


AT: Final = "/system/gone"
_ONE: Final = f"{AT}/{{worker:str}}"
_CASE: Final = "/system/retirements/{retirement:str}"
_HTML: Final = MediaType.HTML
_P = Permission
_READS: Final = needs(_P.SYSTEM_READ, "everywhere")
_ASKS: Final = needs(_P.WORKERS_RETIRE, "everywhere", records="worker.retirement_asked")
_FINISHES: Final = needs(_P.WORKERS_RETIRE, "everywhere", records="worker.ending_resumed")
_WITHDRAWS: Final = needs(_P.WORKERS_RETIRE, "everywhere", records="worker.retirement_withdrawn")
_APPROVES: Final = needs(_P.WORKERS_APPROVE_RETIREMENT, "everywhere", records="worker.retired")
_DECLINES: Final = needs(
    _P.WORKERS_APPROVE_RETIREMENT, "everywhere", records="worker.retirement_declined"
)


class NewRetirement(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a worker cannot come back."""

    reason: str


class Verdict(Struct, frozen=True, forbid_unknown_fields=True):
    """What is said of it by who decides."""

    comment: str


def gone_routes(services: Services) -> list[Any]:
    """The pages, what is done there, and the JSON of both."""
    return [*_pages(services), *_deciding(services), *_api(services), *_api_deciding(services)]


async def _shown(
    services: Services,
    request: Asking,
    worker: str,
    error: RequestInvalid | Forbidden | None = None,
    reason: str = "",
) -> Response[str]:
    """The page of one; with an error what was typed stands beside it."""
    desk, person = services.lost_workers, session_of(request).person
    found = await desk.one(worker)
    waiting = found.waiting
    return await services.shell.page(
        request,
        "system/gone_worker.html",
        "gone",
        error.status if error else 200,
        found=found,
        denied=refused_retirement(person, waiting) if waiting else "",
        is_own=waiting is not None and same_person(person.name, waiting.asked_by),
        others=await desk.others(waiting.asked_by if waiting else person.name),
        wrong=error.message if error else "",
        reason=reason,
    )


def _to(worker: str) -> Redirect:
    return Redirect(f"{AT}/{quote(worker, safe='')}", status_code=SEE_OTHER)


def _pages(services: Services) -> list[Any]:
    desk = services.lost_workers

    @route(AT, http_method=READING, media_type=_HTML, opt=_READS)
    async def gone(request: Asking) -> Response[Any]:
        named = request.query_params.get("worker", "").strip()
        if named:
            return _to(named)
        found = await desk.read()
        return await services.shell.page(request, "system/gone.html", "gone", found=found)

    @route(_ONE, http_method=READING, media_type=_HTML, opt=_READS)
    async def gone_worker(request: Asking, worker: FromPath[str]) -> Response[str]:
        return await _shown(services, request, worker)

    @post(f"{_ONE}/ask", media_type=_HTML, opt=_ASKS, status_code=SEE_OTHER)
    async def ask(request: Asking, worker: FromPath[str]) -> Response[Any]:
        reason = (await form_of(request)).text("reason")
        try:
            await desk.ask(session_of(request).person, worker, reason)
        except RequestInvalid as error:
            return await _shown(services, request, worker, error, reason)
        return _to(worker)

    @post(f"{_ONE}/finish", media_type=_HTML, opt=_FINISHES, status_code=SEE_OTHER)
    async def finish(request: Asking, worker: FromPath[str]) -> Response[Any]:
        try:
            await desk.finish(session_of(request).person, worker)
        except RequestInvalid as error:
            return await _shown(services, request, worker, error)
        return _to(worker)

    return [gone, gone_worker, ask, finish]


def _deciding(services: Services) -> list[Any]:
    desk = services.lost_workers

    async def deciding(
        request: Asking, retirement: str, deed: Awaitable[object], reason: str = ""
    ) -> Response[Any]:
        """The worker's page anew; with what went wrong on it, where something did."""
        problem: RequestInvalid | Forbidden | None = None
        try:
            await deed
        except (RequestInvalid, Forbidden) as error:
            problem = error
        found = await desk.cases.retirement(retirement)
        assert found is not None  # Otherwise the deed says that there is none.
        if problem is not None:
            return await _shown(services, request, found.worker, problem, reason)
        return _to(found.worker)

    @post(f"{_CASE}/approve", media_type=_HTML, opt=_APPROVES, status_code=SEE_OTHER)
    async def approve(request: Asking, retirement: FromPath[str]) -> Response[Any]:
        comment, person = (await form_of(request)).text("reason"), session_of(request).person
        return await deciding(
            request, retirement, desk.approve(person, retirement, comment), comment
        )

    @post(f"{_CASE}/decline", media_type=_HTML, opt=_DECLINES, status_code=SEE_OTHER)
    async def decline(request: Asking, retirement: FromPath[str]) -> Response[Any]:
        comment, person = (await form_of(request)).text("reason"), session_of(request).person
        return await deciding(
            request, retirement, desk.decline(person, retirement, comment), comment
        )

    @post(f"{_CASE}/withdraw", media_type=_HTML, opt=_WITHDRAWS, status_code=SEE_OTHER)
    async def withdraw(request: Asking, retirement: FromPath[str]) -> Response[Any]:
        person = session_of(request).person
        return await deciding(request, retirement, desk.withdraw(person, retirement))

    return [approve, decline, withdraw]


def _api(services: Services) -> list[Any]:
    desk = services.lost_workers

    @get("/api/system/gone", opt=_READS)
    async def list_gone() -> GonePage:
        return await desk.read()

    @get("/api/system/gone/{worker:str}", opt=_READS)
    async def one_gone(worker: FromPath[str]) -> GoneWorker:
        return await desk.one(worker)

    @get("/api/system/retirements", opt=_READS)
    async def list_retirements(request: Asking) -> Response[Sequence[Retirement]]:
        return await list_of(request, desk.cases.newest, desk.cases.page)

    @post("/api/system/gone/{worker:str}/ask", opt=_ASKS)
    async def ask_retirement(request: Asking, worker: FromPath[str]) -> Retirement:
        order = await body_of(request, NewRetirement)
        with taken_as("worker"):
            return await desk.ask(session_of(request).person, worker, order.reason)

    @post("/api/system/gone/{worker:str}/finish", opt=_FINISHES, status_code=200)
    async def finish_ending(request: Asking, worker: FromPath[str]) -> LeftBehind:
        with taken_as("worker"):
            return await desk.finish(session_of(request).person, worker)

    return [list_gone, one_gone, list_retirements, ask_retirement, finish_ending]


def _api_deciding(services: Services) -> list[Any]:
    at, desk = f"/api{_CASE}", services.lost_workers

    @post(f"{at}/approve", opt=_APPROVES, status_code=200)
    async def approve_retirement(request: Asking, retirement: FromPath[str]) -> LeftBehind:
        order = await body_of(request, Verdict)
        with taken_as("retirement", id="retirement"):
            return await desk.approve(session_of(request).person, retirement, order.comment)

    @post(f"{at}/decline", opt=_DECLINES, status_code=200)
    async def decline_retirement(request: Asking, retirement: FromPath[str]) -> Retirement:
        order = await body_of(request, Verdict)
        with taken_as("retirement", id="retirement"):
            return await desk.decline(session_of(request).person, retirement, order.comment)

    @post(f"{at}/withdraw", opt=_WITHDRAWS, status_code=200)
    async def withdraw_retirement(request: Asking, retirement: FromPath[str]) -> Retirement:
        with taken_as("retirement", id="retirement"):
            return await desk.withdraw(session_of(request).person, retirement)

    return [approve_retirement, decline_retirement, withdraw_retirement]
