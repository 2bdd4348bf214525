"""The pages of limits: their tree, and a preview of what changing one would do."""

from typing import Any, Final
from urllib.parse import urlencode

from litestar import MediaType, Response, post, route
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.costs.branches import BranchReader, LimitTree
from admin.costs.limits import LimitKeeper, Standing
from admin.costs.raising import RaiseKeeper
from admin.costs.undoing import limit_undo, rate_undo
from admin.forms import Form, form_of
from admin.keys.filter import QUERY_LENGTH_MAX, key_search
from admin.queries import Query, after_of, first_of
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.undo import offer
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.money.budgets import WINDOWS, Limit, WindowKind
from gateway.money.rates import RateLimit
from gateway.oversight.access import Permission
from gateway.store.identity.key_lists import KeySearch


_P = Permission
_PATH: Final = "/o/{organisation:str}/costs"
_HTML: Final = MediaType.HTML
_KINDS: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
NUMBER_MAX: Final = 10**9
LIMITED: Final = "limited"
OPEN: Final = Query(
    "open",
    "An account whose branches are wanted: `ws:acme/research`; a key opens the project it is in.",
    length_max=255,
)
FIND: Final = Query(
    "q",
    "Words and fields of keys, as in the list of keys: `payroll state:live`; also names of places.",
    length_max=QUERY_LENGTH_MAX,
)
ONLY: Final = Query("only", "Which accounts: those with a limit of their own.", choices=(LIMITED,))
MEANWHILE: Final = (
    "Somebody else changed it meanwhile, so nothing was done. Below is the current state."
)


def limit_page_routes(services: Services) -> list[Any]:
    """Reading and changing."""
    return [*_reading(services), *_limiting(services), *_rating(services)]


class Sought(Struct, frozen=True):
    """What of the tree is asked for; `problem` where a filter is not understood."""

    text: str
    search: KeySearch
    is_limited: bool
    problem: str = ""


def sought_in(request: Asking) -> Sought:
    """What an address asks for."""
    text, is_limited = FIND.of(request).strip(), ONLY.of(request) == LIMITED
    try:
        return Sought(text, key_search(text), is_limited)
    except RequestInvalid as error:
        return Sought(text, KeySearch(), is_limited, error.message)


async def tree_of(reader: BranchReader, request: Asking, organisation: str) -> LimitTree:
    """The branches that an address asks for.

    Raises:
        RequestInvalid: its filter is not understood.
    """
    sought, opened = sought_in(request), OPEN.of(request)
    place = (first_of(request), after_of(request))
    if sought.problem:
        raise RequestInvalid(sought.problem, parameter="q")
    if sought.text:
        return await reader.found(organisation, sought.search, *place)
    if sought.is_limited:
        return await reader.limited(organisation, *place)
    return await reader.opened(organisation, opened, *place)


def _reading(services: Services) -> list[Any]:
    reader, shell = BranchReader(services), services.shell
    keeper = RaiseKeeper(services)

    @route(f"{_PATH}/limits", http_method=READING, media_type=_HTML, opt=needs(_P.BUDGETS_READ))
    async def limits(request: Asking, organisation: FromPath[str]) -> Response[str]:
        sought = sought_in(request)
        tree = await (
            reader.opened(organisation, "")
            if sought.problem
            else tree_of(reader, request, organisation)
        )
        return await shell.page(
            request,
            "costs/limits.html",
            "limits",
            400 if sought.problem else 200,
            tree=tree,
            sought=sought,
            done=bool(request.query_params.get("done", "")),
            asked=await keeper.shown(session_of(request).person, organisation),
        )

    return [limits]


async def _change_page(
    services: Services,
    request: Asking,
    standing: Standing,
    form: Form,
    error: RequestInvalid | None = None,
) -> Response[str]:
    """An account's limit, and what the typed one would do."""
    typed = None
    try:
        typed = form.microusd("limit_microusd")
    except RequestInvalid as unread:
        error = error or unread
    said = error.message if error else ""
    wrong = MEANWHILE if isinstance(error, ChangedMeanwhile) else said
    return await services.shell.page(
        request,
        "costs/change.html",
        "limits",
        error.status if error else 200,
        standing=standing,
        form=form,
        typed=None if wrong else typed,
        wrong=wrong,
        mistakes={error.parameter: wrong} if error and error.parameter else {},
        windows=("day", "month", "total"),
        alerts=services.settings.alerts,
    )


def _limiting(services: Services) -> list[Any]:
    keeper = LimitKeeper(services)
    path = f"{_PATH}/limits/change"

    @route(path, http_method=READING, media_type=_HTML, opt=needs(_P.BUDGETS_SET))
    async def change(request: Asking, organisation: FromPath[str]) -> Response[str]:
        form = Form({name: [value] for name, value in request.query_params.items()})
        standing = await keeper.standing(organisation, form.text("account"), window_in(form))
        return await _change_page(services, request, standing, form)

    @post(path, media_type=_HTML, opt=needs(_P.BUDGETS_SET, records="budget.set"))
    async def set_limit(request: Asking, organisation: FromPath[str]) -> Response[Any]:
        form, person = await form_of(request), session_of(request).person
        account, window, was = form.text("account"), window_in(form), form.text("was")
        standing = await keeper.standing(organisation, account, window)
        try:
            if form.text("deed") == "remove":
                await keeper.remove_limit(person, organisation, account, window, was)
                amount = None
            else:
                amount = form.microusd("limit_microusd")
                if amount is None:
                    raise RequestInvalid("enter an amount", parameter="limit_microusd")
                await keeper.set_limit(person, organisation, Limit(account, amount, window), was)
        except ChangedMeanwhile as error:
            standing = await keeper.standing(organisation, account, window)
            return await _change_page(services, request, standing, form, error)
        except RequestInvalid as error:
            return await _change_page(services, request, standing, form, error)
        if undo := limit_undo(organisation, standing, amount):
            offer(request, services.clock, undo)
        return _back_to(organisation, account)

    return [change, set_limit]


def _rating(services: Services) -> list[Any]:
    keeper, shell = LimitKeeper(services), services.shell
    path = f"{_PATH}/limits/rate"

    async def page(
        request: Asking,
        organisation: str,
        account: str,
        form: Form | None = None,
        wrong: dict[str, str] | None = None,
        status: int = 400,
    ) -> Response[str]:
        standing = await keeper.standing(organisation, account, "total")
        if form is None:
            had = standing.rate or RateLimit(account)
            given = {name: getattr(had, name) for name in _KINDS}
            form = Form({name: [str(value)] for name, value in given.items() if value is not None})
        values: dict[str, object] = {"standing": standing, "form": form, "wrong": wrong or {}}
        return await shell.page(
            request, "costs/rate.html", "limits", status if wrong else 200, **values
        )

    @route(path, http_method=READING, media_type=_HTML, opt=needs(_P.BUDGETS_SET))
    async def rate_page(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await page(request, organisation, request.query_params.get("account", ""))

    @post(path, media_type=_HTML, opt=needs(_P.BUDGETS_SET, records="rate_limit.set"))
    async def set_rate(request: Asking, organisation: FromPath[str]) -> Response[Any]:
        form, person = await form_of(request), session_of(request).person
        account = form.text("account")
        before = await keeper.standing(organisation, account, "total")
        try:
            numbers = [form.whole(name, NUMBER_MAX) for name in _KINDS]
            rate = RateLimit(account, *numbers)
            await keeper.set_rate(person, organisation, rate, form.text("was"))
        except ChangedMeanwhile as error:
            wrong = {"was": MEANWHILE}
            return await page(request, organisation, account, form, wrong, error.status)
        except RequestInvalid as error:
            wrong = {error.parameter or "was": error.message}
            return await page(request, organisation, account, form, wrong)
        offer(request, services.clock, rate_undo(organisation, before, rate))
        return _back_to(organisation, account)

    return [rate_page, set_rate]


def _back_to(organisation: str, account: str) -> Redirect:
    """The tree, open where an account is."""
    at = urlencode({"open": account})
    return Redirect(f"/o/{organisation}/costs/limits?{at}#{account}", status_code=SEE_OTHER)


def window_in(form: Form) -> WindowKind:
    return next((each for each in WINDOWS if each == form.text("window")), "month")
