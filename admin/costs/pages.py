"""The pages of cost: what was spent, the tree of limits, and what a change of one would do."""

from datetime import date
from typing import Any, Final

from litestar import MediaType, Request, Response, post, route
from litestar.params import FromPath
from litestar.response import Redirect

from admin.access import needs, session_of
from admin.costs.limits import ChangedMeanwhile, LimitKeeper, Standing
from admin.costs.reader import GROUPS, CostReader, Group, Question, check
from admin.forms import Form, form_of
from admin.services import Services
from admin.sign_in import READING, SEE_OTHER
from gateway import costs as arithmetic
from gateway.access import Permission
from gateway.budgets import WINDOWS, Limit, WindowKind
from gateway.errors import RequestInvalid
from gateway.rates import RateLimit


GROUPS_SHOWN: Final = 400
"""More lines than that no page needs: a file holds all of them."""
UNUSUAL_SHOWN: Final = 30
_P = Permission
_PATH: Final = "/o/{organisation:str}/costs"
_HTML: Final = MediaType.HTML
_KINDS: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
NUMBER_MAX: Final = 10**9
CONFLICT: Final = 409
MEANWHILE: Final = "Somebody changed it meanwhile; nothing was done. Below is what holds now."


def cost_page_routes(services: Services) -> list[Any]:
    """Reading and changing."""
    return [*_reading(services), *_limiting(services), *_rating(services)]


def _reading(services: Services) -> list[Any]:
    reader, shell = CostReader(services), services.shell

    @route(_PATH, http_method=READING, media_type=_HTML, opt=needs(_P.COSTS_READ))
    async def costs(request: Request[Any, Any, Any], organisation: FromPath[str]) -> Response[str]:
        today, _ = await reader.today(organisation)
        problem = ""
        try:
            question = question_of(request, today)
            check(question)
        except RequestInvalid as error:
            problem, question = error.message, Question(today.replace(day=1), today)
        found = await reader.summary(organisation, question)
        return await shell.page(
            request,
            "costs/costs.html",
            "costs",
            400 if problem else 200,
            costs=found,
            groups=list(GROUPS),
            groups_shown=GROUPS_SHOWN,
            unusual_shown=UNUSUAL_SHOWN,
            problem=problem,
            in_house=_in_house(services),
        )

    @route(f"{_PATH}/export.csv", http_method=READING, opt=needs(_P.COSTS_READ))
    async def export(
        request: Request[Any, Any, Any], organisation: FromPath[str]
    ) -> Response[bytes]:
        today, _ = await reader.today(organisation)
        question = question_of(request, today)
        groups = await reader.groups(organisation, question)
        currency = (await shell.frame(request, "costs")).way.currency
        text = chargeback(services, question.by, groups, currency)
        name = f"costs-{organisation}-{question.by}-{question.since}-{question.until}.csv"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(text.encode(), media_type="text/csv; charset=utf-8", headers=headers)

    @route(f"{_PATH}/limits", http_method=READING, media_type=_HTML, opt=needs(_P.BUDGETS_READ))
    async def limits(request: Request[Any, Any, Any], organisation: FromPath[str]) -> Response[str]:
        branches = await reader.tree(organisation)
        return await shell.page(request, "costs/limits.html", "limits", branches=branches)

    return [costs, export, limits]


async def _change_page(
    services: Services,
    request: Request[Any, Any, Any],
    standing: Standing,
    form: Form,
    wrong: str = "",
    status: int = 200,
) -> Response[str]:
    """An account's limit, and what the typed one would do."""
    typed = None
    try:
        typed = form.microusd("limit_microusd")
    except RequestInvalid as error:
        wrong = wrong or error.message
    return await services.shell.page(
        request,
        "costs/change.html",
        "limits",
        400 if wrong and status < CONFLICT else status,
        standing=standing,
        form=form,
        typed=None if wrong else typed,
        wrong=wrong,
        windows=("day", "month", "total"),
    )


def _limiting(services: Services) -> list[Any]:
    keeper = LimitKeeper(services)
    path = f"{_PATH}/limits/change"

    @route(path, http_method=READING, media_type=_HTML, opt=needs(_P.BUDGETS_SET))
    async def change(request: Request[Any, Any, Any], organisation: FromPath[str]) -> Response[str]:
        form = Form({name: [value] for name, value in request.query_params.items()})
        standing = await keeper.standing(organisation, form.text("account"), _window(form))
        return await _change_page(services, request, standing, form)

    @post(path, media_type=_HTML, opt=needs(_P.BUDGETS_SET, records="budget.set"))
    async def set_limit(
        request: Request[Any, Any, Any], organisation: FromPath[str]
    ) -> Response[Any]:
        form, person = await form_of(request), session_of(request).person
        account, window, was = form.text("account"), _window(form), form.text("was")
        try:
            if form.text("deed") == "remove":
                await keeper.remove_limit(person, organisation, account, window, was)
            else:
                amount = form.microusd("limit_microusd")
                if amount is None:
                    raise RequestInvalid("say how much", parameter="limit_microusd")
                await keeper.set_limit(person, organisation, Limit(account, amount, window), was)
        except RequestInvalid as error:
            standing = await keeper.standing(organisation, account, window)
            return await _change_page(services, request, standing, form, error.message)
        except ChangedMeanwhile:
            standing = await keeper.standing(organisation, account, window)
            return await _change_page(services, request, standing, form, MEANWHILE, CONFLICT)
        return Redirect(f"/o/{organisation}/costs/limits", status_code=SEE_OTHER)

    return [change, set_limit]


def _rating(services: Services) -> list[Any]:
    keeper, shell = LimitKeeper(services), services.shell
    path = f"{_PATH}/limits/rate"

    async def page(
        request: Request[Any, Any, Any],
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
    async def rate_page(
        request: Request[Any, Any, Any], organisation: FromPath[str]
    ) -> Response[str]:
        return await page(request, organisation, request.query_params.get("account", ""))

    @post(path, media_type=_HTML, opt=needs(_P.BUDGETS_SET, records="rate_limit.set"))
    async def set_rate(
        request: Request[Any, Any, Any], organisation: FromPath[str]
    ) -> Response[Any]:
        form, person = await form_of(request), session_of(request).person
        account = form.text("account")
        try:
            numbers = [form.whole(name, NUMBER_MAX) for name in _KINDS]
            rate = RateLimit(account, *numbers)
            await keeper.set_rate(person, organisation, rate, form.text("was"))
        except RequestInvalid as error:
            wrong = {error.parameter or "was": error.message}
            return await page(request, organisation, account, form, wrong)
        except ChangedMeanwhile:
            return await page(request, organisation, account, form, {"was": MEANWHILE}, CONFLICT)
        return Redirect(f"/o/{organisation}/costs/limits", status_code=SEE_OTHER)

    return [rate_page, set_rate]


def question_of(request: Request[Any, Any, Any], today: date) -> Question:
    """What the address asks for; this month where it says nothing.

    Raises:
        RequestInvalid: a day is none.
    """
    query = request.query_params
    since = day_of(query.get("since", ""), "since") or today.replace(day=1)
    until = day_of(query.get("until", ""), "until") or today
    return Question(since, until, query.get("by", "team"))


def day_of(text: str, name: str) -> date | None:
    """A day such as `2026-11-30`; None for an empty text. Raises RequestInvalid."""
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise RequestInvalid("a day is written as 2026-11-30", parameter=name) from None


def chargeback(services: Services, by: str, groups: list[Group], currency: str) -> str:
    """Groups as CSV, a line each."""
    rows = [
        arithmetic.CostRow(
            (each.value, each.label),
            each.requests,
            each.input_tokens,
            each.output_tokens,
            each.cost_microusd,
        )
        for each in groups
    ]
    return arithmetic.chargeback(rows, (by, "name"), currency, services.settings.currencies)


def _window(form: Form) -> WindowKind:
    return next((each for each in WINDOWS if each == form.text("window")), "month")


def _in_house(services: Services) -> frozenset[str]:
    """Jurisdictions of engines of ours."""
    providers = services.settings.providers.values()
    return frozenset(each.jurisdiction for each in providers if each.kind == "engine")
