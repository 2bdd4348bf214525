"""Evidence packs in the browser: choose period, log and recipient; watch it; download it."""

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final

from litestar import MediaType, Response, get, post
from litestar.enums import RequestEncodingType
from litestar.exceptions import NotFoundException
from litestar.params import Body, FromPath
from litestar.response import File, Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.compliance.desk import LOGS, Wish, recipient_of
from admin.compliance.office import Office
from admin.queries import PAGE_ROWS, after_of, first_of
from admin.services import Services
from admin.sign_in.pages import SEE_OTHER
from gateway.clock import DAY_US
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission, Person, allows
from gateway.store.evidence.packing import RECORDS_MAX


AT: Final = "/o/{organisation:str}/compliance/packs"
ONE: Final = AT + "/{pack:str}"
_P = Permission
_READS: Final = needs(_P.AUDIT_READ)
_EXPORTS: Final = needs(_P.AUDIT_EXPORT)
DEFAULT_DAYS: Final = 30
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9000


class PackForm(Struct, frozen=True):
    """The form, as it was typed; days are of UTC, both included."""

    since: str = ""
    until: str = ""
    log: str = "requests"
    recipient: str = ""
    policies: str = ""


Form = Annotated[PackForm, Body(media_type=RequestEncodingType.URL_ENCODED)]


def pack_routes(services: Services, office: Office) -> list[Any]:
    """The list, the wizard, one pack and its file."""
    return [*_making(services, office), *_fetching(services, office)]


def _wizard(services: Services, office: Office) -> Callable[..., Awaitable[Response[str]]]:
    async def wizard(
        request: Asking, organisation: str, form: PackForm, *, is_asked: bool, problem: str = ""
    ) -> Response[str]:
        person, span, wrong = session_of(request).person, None, {}
        if is_asked and not problem:
            try:
                span = await office.desk.span(organisation, wish_of(form, person))
            except RequestInvalid as error:
                wrong = {error.parameter or "since": error.message}
        return await services.shell.page(
            request,
            "compliance/pack_new.html",
            "packs",
            400 if problem or wrong else 200,
            form=form,
            span=span,
            wrong=wrong,
            problem=problem,
            records_max=RECORDS_MAX,
            may_have_deeds=allows(person, _P.AUDIT_EXPORT),
        )

    return wizard


def _making(services: Services, office: Office) -> list[Any]:
    shell, clock, wizard = services.shell, services.clock, _wizard(services, office)

    @get(AT, media_type=MediaType.HTML, opt=_READS)
    async def list_packs(request: Asking, organisation: FromPath[str]) -> Response[str]:
        place = (first_of(request), PAGE_ROWS, after_of(request))
        packs = await office.desk.page(organisation, *place)
        return await shell.page(request, "compliance/packs.html", "packs", packs=packs)

    @get(AT + "/new", media_type=MediaType.HTML, opt=_EXPORTS)
    async def new_pack(request: Asking, organisation: FromPath[str]) -> Response[str]:
        today = datetime.fromtimestamp(clock.utc_us() // 1_000_000, UTC).date()
        query = request.query_params
        is_asked = "since" in query
        form = PackForm(
            since=query.get("since", str(today - timedelta(days=DEFAULT_DAYS - 1))),
            until=query.get("until", str(today)),
            log=query.get("log", "requests"),
            recipient=query.get("recipient", ""),
            policies=query.get("policies", "" if is_asked else "on"),
        )
        return await wizard(request, organisation, form, is_asked=is_asked)

    @post(
        AT,
        media_type=MediaType.HTML,
        opt=needs(_P.AUDIT_EXPORT, records="pack.asked"),
        status_code=SEE_OTHER,
    )
    async def make(request: Asking, organisation: FromPath[str], data: Form) -> Response[Any]:
        person = session_of(request).person
        try:
            pack = await office.desk.ask(person.name, organisation, wish_of(data, person))
        except RequestInvalid as error:
            problem = error.message
            return await wizard(request, organisation, data, is_asked=True, problem=problem)
        return Redirect(f"/o/{organisation}/compliance/packs/{pack.id}", status_code=SEE_OTHER)

    return [list_packs, new_pack, make]


def _fetching(services: Services, office: Office) -> list[Any]:
    @get(ONE, media_type=MediaType.HTML, opt=_READS)
    async def one_pack(
        request: Asking, organisation: FromPath[str], pack: FromPath[str]
    ) -> Response[str]:
        found = await office.desk.pack(organisation, pack)
        done, total = office.desk.progress(found)
        return await services.shell.page(
            request, "compliance/pack.html", "packs", pack=found, done=done, total=total
        )

    @get(ONE + "/file", opt=_EXPORTS)
    async def fetch(request: Asking, organisation: FromPath[str], pack: FromPath[str]) -> File:
        return await file_of(services, office, request, organisation, pack)

    return [one_pack, fetch]


async def file_of(
    services: Services, office: Office, request: Asking, organisation: str, pack_id: str
) -> File:
    """The file, after a record of who fetches it."""
    found, person = await office.desk.pack(organisation, pack_id), session_of(request).person
    path = office.desk.store.path(found)
    if found.state != "ready" or not path.exists():
        raise NotFoundException
    if found.log != organisation and not allows(person, _P.AUDIT_EXPORT):
        raise NotFoundException
    detail = {"pack": found.id, "sha256": found.sha256}
    await services.deeds.record(person.name, "pack.fetched", organisation, **detail)
    name = f"evidence-{organisation}-{found.id}.zip"
    return File(path=path, filename=name, media_type="application/zip")


def wish_of(form: PackForm, person: Person) -> Wish:
    """The form, understood.

    Raises:
        RequestInvalid: a day is none, the period is empty, or the log is not theirs to have.
    """
    since, until = _day(form.since, "since"), _day(form.until, "until")
    if until < since:
        raise RequestInvalid("The period ends before it begins.", parameter="until")
    if form.log not in LOGS:
        raise RequestInvalid("There is no such log.", parameter="log")
    if form.log == "deeds" and not allows(person, _P.AUDIT_EXPORT):
        raise RequestInvalid("What operators did is of all organisations.", parameter="log")
    return Wish(
        log=form.log,
        since_us=_midnight_us(since),
        until_us=_midnight_us(until) + DAY_US,
        recipient=recipient_of(form.recipient),
        with_policies=bool(form.policies),
    )


def _day(text: str, name: str) -> date:
    try:
        day = date.fromisoformat(text.strip())
    except ValueError:
        raise RequestInvalid("A day is written as 2026-11-30.", parameter=name) from None
    if not FIRST_YEAR <= day.year < LAST_YEAR:
        raise RequestInvalid(f"From the year {FIRST_YEAR} to {LAST_YEAR - 1}.", parameter=name)
    return day


def _midnight_us(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
