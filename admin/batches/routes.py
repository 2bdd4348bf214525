"""Batches and files: their pages, and the JSON behind them."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from litestar import MediaType, Response, get, post, route
from litestar.params import FromPath
from litestar.response import Redirect

from admin.access import needs, session_of
from admin.asking import Asking
from admin.batches.desk import BatchDesk, BatchDetail, BatchLine
from admin.long_lists import list_of
from admin.queries import PAGE_ROWS, after_of, first_of
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.errors import ChangedMeanwhile
from gateway.oversight.access import Permission
from gateway.store.batching.lists import FileRow
from gateway.store.custody.orders import Custody


AT: Final = "/o/{organisation:str}/batches"
ONE: Final = AT + "/{batch:str}"
FILES: Final = "/o/{organisation:str}/files"
API: Final = "/api/organisations/{organisation:str}/batches"
API_FILES: Final = "/api/organisations/{organisation:str}/files"
NO_CONTENT: Final = 204
FILTER_CHARS_MAX: Final = 200
_P = Permission
_HTML: Final = MediaType.HTML
_READS: Final = needs(_P.TRAFFIC_READ)
_CANCELS: Final = needs(_P.BATCHES_MANAGE, records="batch.cancelled")
_DELETES: Final = needs(_P.BATCHES_MANAGE, records="file.deleted")


def batch_routes(services: Services) -> list[Any]:
    """Pages and the JSON behind them."""
    desk = BatchDesk(services)
    pages = [*_listing(services, desk), *_pages(services, desk), *_files(services, desk)]
    return [*pages, *_api(desk), *_api_deeds(desk)]


def _api(desk: BatchDesk) -> list[Any]:
    @get(API, opt=_READS)
    async def list_batches(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[BatchLine]]:
        whole = partial(desk.lines, organisation)
        return await list_of(request, whole, partial(desk.page, organisation))

    @get(API + "/{batch:str}", opt=_READS)
    async def show_batch(organisation: FromPath[str], batch: FromPath[str]) -> BatchDetail:
        return await desk.detail(organisation, batch)

    @get(API_FILES, opt=_READS)
    async def list_files(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[FileRow]]:
        whole = partial(desk.lists.files, organisation)
        return await list_of(request, whole, partial(desk.lists.files_page, organisation))

    return [list_batches, show_batch, list_files]


def _api_deeds(desk: BatchDesk) -> list[Any]:
    @post(API + "/{batch:str}/cancel", opt=_CANCELS, status_code=NO_CONTENT)
    async def cancel_batch(
        request: Asking, organisation: FromPath[str], batch: FromPath[str]
    ) -> None:
        await desk.cancel(session_of(request).person, organisation, batch)

    @post(API_FILES + "/{file:str}/delete", opt=_DELETES, status_code=NO_CONTENT)
    async def delete_file(
        request: Asking, organisation: FromPath[str], file: FromPath[str]
    ) -> None:
        await desk.forget_file(session_of(request).person, organisation, file)

    return [cancel_batch, delete_file]


def _pages(services: Services, desk: BatchDesk) -> list[Any]:
    shell = services.shell

    async def one(
        request: Asking, organisation: str, batch: str, wrong: str = "", status: int = 200
    ) -> Response[str]:
        detail = await desk.detail(organisation, batch)
        names = await services.key_names.names(organisation, [detail.batch.key_id])
        return await shell.page(
            request,
            "batches/batch.html",
            "batches",
            status,
            detail=detail,
            batch=detail.batch,
            names=names,
            wrong=wrong,
        )

    @route(ONE, http_method=READING, media_type=_HTML, opt=_READS)
    async def batch_page(
        request: Asking, organisation: FromPath[str], batch: FromPath[str]
    ) -> Response[str]:
        return await one(request, organisation, batch)

    @post(ONE + "/cancel", media_type=_HTML, opt=_CANCELS, status_code=SEE_OTHER)
    async def cancel(
        request: Asking, organisation: FromPath[str], batch: FromPath[str]
    ) -> Response[Any]:
        try:
            await desk.cancel(session_of(request).person, organisation, batch)
        except ChangedMeanwhile as error:
            wrong = "It ended meanwhile, or is being ended: there is nothing to cancel."
            return await one(request, organisation, batch, wrong, error.status)
        return Redirect(f"/o/{organisation}/batches/{batch}", status_code=SEE_OTHER)

    return [batch_page, cancel]


def _listing(services: Services, desk: BatchDesk) -> list[Any]:
    @route(AT, http_method=READING, media_type=_HTML, opt=_READS)
    async def batches_page(request: Asking, organisation: FromPath[str]) -> Response[str]:
        text = request.query_params.get("q", "")[:FILTER_CHARS_MAX].strip()
        found = await desk.found(organisation, text, first_of(request), after_of(request))
        part = found.part
        states = await desk.lists.states(organisation)
        return await services.shell.page(
            request,
            "batches/batches.html",
            "batches",
            lines=part.of(await desk.with_costs(organisation, part.rows)),
            looked_at=found.looked_at,
            among=found.among,
            total=sum(states.values()),
            states=states.items(),
            names=found.names,
            text=text,
        )

    return [batches_page]


def _files(services: Services, desk: BatchDesk) -> list[Any]:
    shell = services.shell

    @route(FILES, http_method=READING, media_type=_HTML, opt=_READS)
    async def files_page(request: Asking, organisation: FromPath[str]) -> Response[str]:
        part = await desk.lists.files_page(
            organisation, first_of(request), PAGE_ROWS, after_of(request)
        )
        total, length_bytes = await desk.lists.kept(organisation)
        names = await services.key_names.names(organisation, {row.key_id for row in part.rows})
        return await shell.page(
            request,
            "batches/files.html",
            "files",
            part=part,
            total=total,
            length_bytes=length_bytes,
            names=names,
        )

    @route(FILES + "/{file:str}", http_method=READING, media_type=_HTML, opt=_READS)
    async def file_page(
        request: Asking, organisation: FromPath[str], file: FromPath[str]
    ) -> Response[str]:
        found = await desk.file(organisation, file)
        names = await services.key_names.names(organisation, [found.key_id])
        held = await held_by(services, organisation)
        return await shell.page(
            request, "batches/file.html", "files", file=found, names=names, held=held
        )

    @post(FILES + "/{file:str}/delete", opt=_DELETES, status_code=SEE_OTHER)
    async def delete(request: Asking, organisation: FromPath[str], file: FromPath[str]) -> Redirect:
        await desk.forget_file(session_of(request).person, organisation, file)
        return Redirect(f"/o/{organisation}/files", status_code=SEE_OTHER)

    return [files_page, file_page, delete]


async def held_by(services: Services, organisation: str) -> bool:
    """Whether a hold is in force there, so that nothing that is kept is destroyed."""
    custody = Custody(services.database, services.log, services.clock)
    return bool(await custody.holds(organisation))
