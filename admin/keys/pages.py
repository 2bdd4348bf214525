"""The pages of keys: the list, one key, and what may be done to it."""

from typing import Any, Final

from litestar import MediaType, Response, post, route
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.forms import Form, form_of
from admin.keys.filter import HINT, key_search
from admin.keys.issuing import EXPIRES_DAYS, OVERLAP_S, KeyIssuer, KeyOrder
from admin.keys.reader import COUNT_MAX, KeyReader
from admin.keys.scoping import ScopeKeeper
from admin.queries import after_of, first_of
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.snippets import curl, data_plane_url, python
from gateway.errors import RequestInvalid
from gateway.identity import KeyText, new_key_id
from gateway.money.budgets import WINDOWS
from gateway.oversight.access import Permission
from gateway.store.identity.key_lists import KeySearch
from gateway.store.identity.teams import TeamStore
from gateway.store.identity.workloads import issuers_for


NUMBER_MAX: Final = 10**9
OVERLAPS: Final = (
    (0, "no time: the old secret ends now"),
    (3_600, "an hour"),
    (86_400, "a day"),
    (604_800, "a week"),
    (2_592_000, "30 days"),
)
FOLLOWED_US: Final = 120_000_000
"""How long a page goes on looking where a revoked key is dead."""
SHOWN_US: Final = 3_600_000_000
_P = Permission
_PATH: Final = "/o/{organisation:str}/keys"
_KEY: Final = f"{_PATH}/{{key_id:str}}"
_HTML: Final = MediaType.HTML


class Filtered(Struct, frozen=True):
    """What a list is filtered by; `problem` where it is not understood."""

    text: str
    search: KeySearch
    problem: str = ""


def key_page_routes(services: Services) -> list[Any]:
    """Reading and changing."""
    return [*_reading(services), *_issuing(services), *_rotating(services), *_revoking(services)]


def _reading(services: Services) -> list[Any]:
    reader, shell = KeyReader(services), services.shell
    keeper = ScopeKeeper(services)

    @route(_PATH, http_method=READING, media_type=_HTML, opt=needs(_P.KEYS_READ))
    async def key_list(request: Asking, organisation: FromPath[str]) -> Response[str]:
        found = _filtered(request.query_params.get("q", ""))
        total, states = await reader.lists.states(organisation)
        return await shell.page(
            request,
            "keys/keys.html",
            "keys",
            400 if found.problem else 200,
            filtered=found,
            hint=HINT,
            page=await reader.page(
                organisation, found.search, first_of(request), after=after_of(request)
            ),
            total=total,
            states=list(states.items()),
        )

    @route(_KEY, http_method=READING, media_type=_HTML, opt=needs(_P.KEYS_READ))
    async def key_page(
        request: Asking, organisation: FromPath[str], key_id: FromPath[str]
    ) -> Response[str]:
        detail = await reader.detail(organisation, key_id)
        proposed = await keeper.told(organisation, key_id, session_of(request).person)
        return await shell.page(
            request,
            "keys/key.html",
            "keys",
            detail=detail,
            key=detail.key,
            count_max=COUNT_MAX,
            homes=services.homes,
            proposed=proposed,
            followed_us=FOLLOWED_US,
            shown_us=SHOWN_US,
        )

    return [key_list, key_page]


def _issuing(services: Services) -> list[Any]:
    issuer = KeyIssuer(services)
    teams = TeamStore(services.database, services.clock)

    @route(f"{_PATH}/new", http_method=READING, media_type=_HTML, opt=needs(_P.KEYS_ISSUE))
    async def new_key(request: Asking, organisation: FromPath[str]) -> Response[str]:
        asked = request.query_params
        given = {name: asked.getall(name) for name in asked}
        team = await teams.team(organisation, request.query_params.get("workspace", ""))
        days = (team.defaults.expires_days if team else None) or EXPIRES_DAYS
        defaults = {"expires_days": [str(days)], "translation": ["warn"]}
        return await _form_page(services, request, organisation, Form(defaults | given))

    @post(f"{_PATH}/new", media_type=_HTML, opt=needs(_P.KEYS_ISSUE, records="key.issued"))
    async def issue_key(request: Asking, organisation: FromPath[str]) -> Response[str]:
        form = await form_of(request)

        async def issued() -> Response[str]:
            try:
                order = _order(form)
                key = await issuer.issue(session_of(request).person, organisation, order)
            except RequestInvalid as error:
                wrong = {error.parameter or "name": error.message}
                return await _form_page(services, request, organisation, form, wrong)
            if order.issuer:
                return await _bound(services, request, organisation, key.key_id)
            return await reveal(services, request, key, organisation, is_new=True)

        return await services.shown_once.answer(request, form, issued)

    return [new_key, issue_key]


async def _form_page(
    services: Services,
    request: Asking,
    organisation: str,
    form: Form,
    wrong: dict[str, str] | None = None,
) -> Response[str]:
    """What to say of a new key, as it was typed so far."""
    teams = TeamStore(services.database, services.clock)
    known = await teams.teams(organisation)
    return await services.shell.page(
        request,
        "keys/new.html",
        "keys",
        400 if wrong else 200,
        form=form,
        wrong=wrong or {},
        organisation=organisation,
        places=await services.keys.places(organisation),
        teams=[team for team in known if team.archived_us is None],
        team=next((team for team in known if team.name == form.text("workspace")), None),
        targets=sorted(services.settings.targets),
        key_id=form.text("key_id") or new_key_id(),
        issuers=issuers_for(services.settings.callers.issuers, organisation),
        windows=[(window, _WINDOW_WORDS[window]) for window in reversed(WINDOWS)],
    )


async def _bound(
    services: Services, request: Asking, organisation: str, key_id: str
) -> Response[str]:
    """That tokens prove a new key from now on: there is nothing that could be shown once."""
    key = await KeyReader(services).line(organisation, key_id)
    issuers = services.settings.callers.issuers
    return await services.shell.page(
        request,
        "keys/bound.html",
        "keys",
        201,
        organisation=organisation,
        key=key,
        audience=issuers[key.workload.issuer].audience if key.workload else "",
        url=data_plane_url(services.settings),
    )


async def reveal(
    services: Services,
    request: Asking,
    key: KeyText,
    organisation: str,
    *,
    is_new: bool,
) -> Response[str]:
    """The one page that ever shows a key; no browser keeps it, nothing leads back to it."""
    url, text = data_plane_url(services.settings), key.reveal()
    return await services.shell.page(
        request,
        "keys/reveal.html",
        "keys",
        201,
        organisation=organisation,
        key_id=key.key_id,
        secret=text,
        url=url,
        curl=curl(url, text),
        python=python(url, text),
        is_new=is_new,
    )


async def _before(
    services: Services,
    request: Asking,
    key: tuple[str, str],
    name: str,
    error: RequestInvalid | None = None,
) -> Response[str]:
    """What will happen to a key (its organisation and id), said before it does."""
    reader = KeyReader(services)
    status = error.status if error else 200
    return await services.shell.page(
        request,
        f"keys/{name}.html",
        "keys",
        status,
        seen=await reader.secrets_seen(*key),
        key=await reader.line(*key),
        lately=await reader.lately(*key),
        count_max=COUNT_MAX,
        overlaps=OVERLAPS,
        overlap_s=OVERLAP_S,
        wrong=error.message if error else "",
    )


def _rotating(services: Services) -> list[Any]:
    reader, issuer = KeyReader(services), KeyIssuer(services)

    @route(f"{_KEY}/rotate", http_method=READING, media_type=_HTML, opt=needs(_P.KEYS_ISSUE))
    async def rotate_page(
        request: Asking, organisation: FromPath[str], key_id: FromPath[str]
    ) -> Response[str]:
        return await _before(services, request, (organisation, key_id), "rotate")

    @post(f"{_KEY}/rotate", media_type=_HTML, opt=needs(_P.KEYS_ISSUE, records="key.rotated"))
    async def rotate(
        request: Asking, organisation: FromPath[str], key_id: FromPath[str]
    ) -> Response[str]:
        form = await form_of(request)

        async def rotated() -> Response[str]:
            line = await reader.line(organisation, key_id)
            try:
                overlap_s = form.whole("overlap_s", NUMBER_MAX)
                chosen = OVERLAP_S if overlap_s is None else overlap_s
                person, seen = session_of(request).person, form.text("seen") or None
                key = await issuer.rotate(person, organisation, line, chosen, seen)
            except RequestInvalid as error:
                named = (organisation, key_id)
                return await _before(services, request, named, "rotate", error)
            return await reveal(services, request, key, organisation, is_new=False)

        return await services.shown_once.answer(request, form, rotated)

    return [rotate_page, rotate]


def _revoking(services: Services) -> list[Any]:
    reader, issuer = KeyReader(services), KeyIssuer(services)

    @route(f"{_KEY}/revoke", http_method=READING, media_type=_HTML, opt=needs(_P.KEYS_ISSUE))
    async def revoke_page(
        request: Asking, organisation: FromPath[str], key_id: FromPath[str]
    ) -> Response[str]:
        return await _before(services, request, (organisation, key_id), "revoke")

    @post(
        f"{_KEY}/revoke",
        status_code=SEE_OTHER,
        opt=needs(_P.KEYS_ISSUE, records="key.revoked"),
    )
    async def revoke(
        request: Asking, organisation: FromPath[str], key_id: FromPath[str]
    ) -> Redirect:
        line = await reader.line(organisation, key_id)
        await issuer.revoke(session_of(request).person, organisation, line)
        to = f"/o/{organisation}/keys/{line.key_id}"
        return Redirect(to, status_code=SEE_OTHER)

    return [revoke_page, revoke]


_WINDOW_WORDS: Final = {"day": "each day", "month": "each month", "total": "in total"}


def _order(form: Form) -> KeyOrder:
    """The form as an order.

    Raises:
        RequestInvalid: with the field that is wrong.
    """
    window = next((each for each in WINDOWS if each == form.text("budget_window", "month")), None)
    translations = {"strict": "strict", "warn": "warn", "lenient": "lenient"}
    translation: Any = translations.get(form.text("translation", "warn"))
    if window is None or translation is None:
        raise RequestInvalid("this form is not complete")
    models = form.all("models")
    return KeyOrder(
        workspace=form.text("workspace"),
        project=form.text("project"),
        name=form.text("name"),
        labels=tuple(dict.fromkeys(form.text("labels").replace(",", " ").split())),
        models=models or None,
        expires_days=form.whole("expires_days", NUMBER_MAX) or None,
        translation=translation,
        key_id=form.text("key_id"),
        budget_microusd=form.microusd("budget_microusd"),
        budget_window=window,
        requests_per_minute=form.whole("requests_per_minute", NUMBER_MAX),
        tokens_per_minute=form.whole("tokens_per_minute", NUMBER_MAX),
        concurrent_requests=form.whole("concurrent_requests", NUMBER_MAX),
        issuer=form.text("issuer"),
        subject=form.text("subject"),
        claims=_claims(form.text("claims")),
    )


def _claims(text: str) -> dict[str, str]:
    """`azp=robot tid=north` as claims; a value with blanks is for the JSON API."""
    found: dict[str, str] = {}
    for each in text.split():
        name, is_said, value = each.partition("=")
        if not is_said or name in found:
            raise RequestInvalid("use NAME=VALUE, each name once", parameter="claims")
        found[name] = value
    return found


def _filtered(text: str) -> Filtered:
    try:
        return Filtered(text, key_search(text))
    except RequestInvalid as error:
        return Filtered(text, KeySearch(), error.message)
