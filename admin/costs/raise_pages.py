"""The page to ask for a larger limit, see what became of the request, and withdraw it."""

from typing import Any, Final

from litestar import MediaType, Response, post, route
from litestar.params import FromPath
from litestar.response import Redirect

from admin.access import needs, session_of
from admin.asking import Asking
from admin.costs.limit_pages import MEANWHILE, window_in
from admin.costs.raising import RaiseKeeper, RaiseOrder
from admin.forms import Form, form_of
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.actors import same_person
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.money.budgets import BudgetKey
from gateway.oversight.access import Permission


_P = Permission
_HTML: Final = MediaType.HTML
_ASK: Final = "/o/{organisation:str}/costs/limits/ask"


def raise_page_routes(services: Services) -> list[Any]:
    """Asking, and taking back."""
    keeper = RaiseKeeper(services)
    return [*_asking(services, keeper), _withdrawing(keeper)]


async def _ask_page(
    services: Services,
    keeper: RaiseKeeper,
    request: Asking,
    organisation: str,
    form: Form,
    error: RequestInvalid | Forbidden | None = None,
) -> Response[str]:
    """A limit as it stands, what was asked of it last, and the form."""
    person, account, window = session_of(request).person, form.text("account"), window_in(form)
    standing = await keeper.standing(organisation, account, window)
    newest = await keeper.raises.newest_of(organisation, BudgetKey(account, window))
    waits = newest is not None and newest.state == "waiting"
    asker = newest.asked_by if newest and waits else person.name
    field = error.parameter if isinstance(error, RequestInvalid) else ""
    said = MEANWHILE if isinstance(error, ChangedMeanwhile) else error.message if error else ""
    return await services.shell.page(
        request,
        "costs/ask.html",
        "limits",
        error.status if error else 200,
        standing=standing,
        form=form,
        newest=newest,
        is_own=newest is not None and same_person(person.name, newest.asked_by),
        others=await keeper.others(organisation, asker),
        zone=await services.spending.zone_of(organisation),
        wrong=said,
        mistakes={field: said} if field in ("limit_microusd", "until", "reason") else {},
    )


def _asking(services: Services, keeper: RaiseKeeper) -> list[Any]:
    @route(_ASK, http_method=READING, media_type=_HTML, opt=needs(_P.BUDGETS_ASK))
    async def ask_page(request: Asking, organisation: FromPath[str]) -> Response[str]:
        form = Form({name: [value] for name, value in request.query_params.items()})
        return await _ask_page(services, keeper, request, organisation, form)

    @post(_ASK, media_type=_HTML, opt=needs(_P.BUDGETS_ASK, records="budget.raise_asked"))
    async def ask(request: Asking, organisation: FromPath[str]) -> Response[Any]:
        form, person = await form_of(request), session_of(request).person
        try:
            await keeper.ask(person, organisation, _order(form))
        except (RequestInvalid, Forbidden) as error:
            return await _ask_page(services, keeper, request, organisation, form, error)
        return Redirect(f"/o/{organisation}/costs/limits?done=1#asked", status_code=SEE_OTHER)

    return [ask_page, ask]


def _withdrawing(keeper: RaiseKeeper) -> Any:
    @post(
        "/o/{organisation:str}/costs/limits/asked/{asked:str}/withdraw",
        media_type=_HTML,
        opt=needs(_P.BUDGETS_ASK, records="budget.raise_withdrawn"),
        status_code=SEE_OTHER,
    )
    async def withdraw(
        request: Asking, organisation: FromPath[str], asked: FromPath[str]
    ) -> Redirect:
        await keeper.withdraw(session_of(request).person, organisation, asked)
        return Redirect(f"/o/{organisation}/costs/limits?done=1#asked", status_code=SEE_OTHER)

    return withdraw


def _order(form: Form) -> RaiseOrder:
    """The form as an order; raises RequestInvalid with the field that is wrong."""
    amount, was = form.microusd("limit_microusd"), form.text("was")
    if amount is None:
        raise RequestInvalid("enter an amount", parameter="limit_microusd")
    return RaiseOrder(
        account=form.text("account"),
        limit_microusd=amount,
        reason=form.text("reason"),
        window=window_in(form),
        until=form.text("until") or None,
        was=int(was) if was.isascii() and was.isdigit() else None,
    )
