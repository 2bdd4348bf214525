"""The five steps, a key for them, and the first request: run here, streamed into the page."""

from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlencode

from litestar import MediaType, Response, get, post, route
from litestar.response import Redirect, Stream

from admin.access import needs, session_of
from admin.asking import Asking
from admin.first_run.setup import setup_routes
from admin.first_run.steps import Steps, steps_of
from admin.first_run.trying import ask
from admin.forms import Form, form_of
from admin.keys.issuing import KeyIssuer, KeyOrder
from admin.overview.credentials import SealedNames, problem_of
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.snippets import curl, data_plane_url, python
from gateway.errors import RequestInvalid
from gateway.identity import key_id_of
from gateway.oversight.access import Permission, allows
from gateway.secrets.secret import Secret
from gateway.store.identity.keys import Place, check_place


PATH: Final = "/first-run"
KEY_DAYS: Final = 30
WORDS: Final = "text/plain"
PLACE: Final = ("organisation", "workspace", "project")
_READS: Final = needs(Permission.OVERVIEW_READ, "some")
_HTML: Final = MediaType.HTML


def first_run_routes(services: Services) -> list[Any]:
    """All of them."""
    return [*setup_routes(services), *_reading(services), *_making(services), _running(services)]


async def page(
    services: Services, request: Asking, status: int = 200, **values: object
) -> Response[str]:
    """The five steps as they stand."""
    person, settings = session_of(request).person, services.settings
    sealed = await SealedNames(services).read()
    shown: dict[str, object] = {
        "steps": await steps_of(services, person),
        "may_make": allows(person, Permission.KEYS_ISSUE),
        "form": Form(),
        "wrong": {},
        "secret": "",
        "curl": "",
        "python": "",
        "answer": "",
        "answered": 0,
        "request_id": "",
        "organisation": "",
        "url": data_plane_url(settings),
        "providers": [(name, problem_of(settings, name, sealed)) for name in settings.providers],
    }
    return await services.shell.page(
        request, "first_run/first_run.html", "overview", status, **(shown | values)
    )


def _reading(services: Services) -> list[Any]:
    @route(PATH, http_method=READING, media_type=_HTML, opt=_READS)
    async def first_run(request: Asking) -> Response[str]:
        return await page(services, request)

    @get("/api/first-run", opt=_READS)
    async def first_run_api(request: Asking) -> Steps:
        return await steps_of(services, session_of(request).person)

    return [first_run, first_run_api]


def _making(services: Services) -> list[Any]:
    issuer = KeyIssuer(services)

    @post(
        f"{PATH}/place",
        media_type=_HTML,
        status_code=SEE_OTHER,
        opt=needs(Permission.KEYS_ISSUE, "everywhere", records="place.made"),
    )
    async def make_place(request: Asking) -> Response[Any]:
        form, person = await form_of(request), session_of(request).person
        place = Place(*(form.text(name) for name in PLACE))
        after = {name: getattr(place, name) for name in PLACE}
        try:
            check_place(place)
            async with services.deeds.doing(
                person.name, "place.made", place.organisation, after=after
            ):
                await services.keys.ensure_place(place)
        except RequestInvalid as error:
            wrong = {error.parameter or "organisation": error.message}
            return await page(services, request, 400, form=form, wrong=wrong)
        # The five steps are told of the first organisation; another one begins with its first key.
        steps = await steps_of(services, person)
        fields = urlencode({"workspace": place.workspace, "project": place.project})
        is_first = steps.organisation == place.organisation
        to = PATH if is_first else f"/o/{place.organisation}/keys/new?{fields}"
        return Redirect(to, status_code=SEE_OTHER)

    @post(
        f"{PATH}/key",
        media_type=_HTML,
        opt=needs(Permission.KEYS_ISSUE, "everywhere", records="key.issued"),
    )
    async def make_key(request: Asking) -> Response[str]:
        async def issued() -> Response[str]:
            steps = await steps_of(services, session_of(request).person)
            places = await services.keys.places(steps.organisation)
            if not places:
                raise RequestInvalid("There is no project yet: make one first.")
            place = places[0]
            order = KeyOrder(place.workspace, place.project, "first steps", expires_days=KEY_DAYS)
            key = await issuer.issue(session_of(request).person, place.organisation, order)
            url, text = data_plane_url(services.settings), key.reveal()
            return await page(
                services, request, 201, secret=text, curl=curl(url, text), python=python(url, text)
            )

        return await services.shown_once.answer(request, await form_of(request), issued)

    return [make_place, make_key]


def _running(services: Services) -> Any:
    @post(f"{PATH}/run", opt=needs(Permission.KEYS_ISSUE, "everywhere", records="request.tried"))
    async def run(request: Asking) -> Response[Any] | Stream:
        form, person = await form_of(request), session_of(request).person
        text = form.text("key")
        key_id = key_id_of(text)
        known = [key for key in await services.keys.keys() if key.key_id == key_id]
        if not known:
            raise RequestInvalid("this is no key of this installation", parameter="key")
        organisation = known[0].principal.organisation
        after = {"key_id": key_id}
        await services.deeds.record(person.name, "request.tried", organisation, after=after)
        answer = await ask(services.settings, Secret(text))
        if WORDS in request.headers.get("accept", ""):
            headers = {
                "x-gatewright-request": answer.request_id,
                "x-gatewright-organisation": organisation,
            }
            return Stream(
                _bytes(answer.words), media_type=f"{WORDS}; charset=utf-8", headers=headers
            )
        said = "".join([words async for words in answer.words])
        url = data_plane_url(services.settings)
        return await page(
            services,
            request,
            201,
            answer=said,
            answered=answer.status,
            request_id=answer.request_id,
            organisation=organisation,
            secret=text,
            curl=curl(url, text),
            python=python(url, text),
        )

    return run


async def _bytes(words: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for text in words:
        yield text.encode()
