"""Changes a key's scope in the browser: shows the effect first, then does or proposes it."""

import hashlib
from typing import Any, Final

from litestar import MediaType, Response, post, route
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import UNSET, Struct, json
from msgspec.structs import replace

from admin.access import needs, session_of
from admin.asking import Asking
from admin.forms import Form, form_of
from admin.keys.lines import KeyLine
from admin.keys.reader import KeyReader
from admin.keys.scoping import KeyScopeOrder, ScopeKeeper, mark_of, scope_in
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.oversight.access import Permission
from gateway.oversight.key_scope import KeyScope, changes, is_widening


NUMBER_MAX: Final = 10**9
_P = Permission
_HTML: Final = MediaType.HTML
_KEY: Final = "/o/{organisation:str}/keys/{key_id:str}"
KEEP, NEVER, DAYS = "keep", "never", "days"


def scope_page_routes(services: Services) -> list[Any]:
    """The form, what it does, and taking back what was proposed."""
    keeper = ScopeKeeper(services)
    return [*_changing(services, keeper), _withdrawing(keeper)]


class Chosen(Struct, frozen=True):
    """A form as it was filled in; `wrong` where it cannot be read, by field."""

    form: Form
    wanted: KeyScope | None = None
    wrong: dict[str, str] = {}
    mark: str = ""
    """By which is known that what is done is what was looked at."""


def _chosen(keeper: ScopeKeeper, line: KeyLine, form: Form) -> Chosen:
    try:
        order = _order(form)
        return Chosen(form, keeper.wanted(line, order), mark=_mark(order))
    except RequestInvalid as problem:
        return Chosen(form, wrong={problem.parameter or "was": problem.message})


async def _shown(
    services: Services,
    keeper: ScopeKeeper,
    request: Asking,
    line: KeyLine,
    chosen: Chosen | None = None,
    error: RequestInvalid | None = None,
) -> Response[str]:
    """The form; with what was chosen, and what that does, where something was."""
    organisation, now = str(request.path_params["organisation"]), scope_in(line)
    chosen = chosen or Chosen(_form_of(line))
    wanted = chosen.wanted
    wider, impact, others = wanted is not None and is_widening(now, wanted), None, []
    if wanted is not None and wider:
        impact = await keeper.impact_of(organisation, line.key_id, now, wanted)
        others = await keeper.others(organisation, session_of(request).person.name)
    status = error.status if error else 400 if chosen.wrong else 200
    return await services.shell.page(
        request,
        "keys/change.html",
        "keys",
        status,
        key=line,
        now=now,
        chosen=chosen,
        wanted=wanted,
        changes=changes(now, wanted) if wanted else (),
        wider=wider,
        impact=impact,
        others=others,
        form=chosen.form,
        wrong=chosen.wrong,
        problem=error.message if error else "",
        is_changed=isinstance(error, ChangedMeanwhile),
        was=mark_of(now),
        targets=sorted({*services.settings.targets, *(now.models or ())}),
    )


def _changing(services: Services, keeper: ScopeKeeper) -> list[Any]:
    reader = KeyReader(services)

    @route(f"{_KEY}/change", http_method=READING, media_type=_HTML, opt=needs(_P.KEYS_ISSUE))
    async def change_page(
        request: Asking, organisation: FromPath[str], key_id: FromPath[str]
    ) -> Response[str]:
        return await _shown(services, keeper, request, await reader.line(organisation, key_id))

    @post(
        f"{_KEY}/change",
        media_type=_HTML,
        opt=needs(_P.KEYS_ISSUE, records="key.narrowed"),
        status_code=200,
    )
    async def change(
        request: Asking, organisation: FromPath[str], key_id: FromPath[str]
    ) -> Response[Any]:
        form, line = await form_of(request), await reader.line(organisation, key_id)
        chosen, person = _chosen(keeper, line, form), session_of(request).person
        is_seen = form.text("looked") == chosen.mark
        if form.text("deed") != "do" or chosen.wanted is None or not is_seen:
            return await _shown(services, keeper, request, line, chosen)
        try:
            await keeper.change(person, organisation, line, _order(form), form.text("was"))
        except RequestInvalid as error:
            line = await reader.line(organisation, key_id)
            return await _shown(services, keeper, request, line, chosen, error)
        return Redirect(f"/o/{organisation}/keys/{line.key_id}#scope", status_code=SEE_OTHER)

    return [change_page, change]


def _withdrawing(keeper: ScopeKeeper) -> Any:
    @post(
        f"{_KEY}/proposals/{{proposal:str}}/withdraw",
        media_type=_HTML,
        opt=needs(_P.KEYS_ISSUE, records="key.widening_withdrawn"),
        status_code=SEE_OTHER,
    )
    async def withdraw(
        request: Asking,
        organisation: FromPath[str],
        key_id: FromPath[str],
        proposal: FromPath[str],
    ) -> Redirect:
        await keeper.withdraw(session_of(request).person, organisation, proposal)
        return Redirect(f"/o/{organisation}/keys/{key_id}#scope", status_code=SEE_OTHER)

    return withdraw


def _form_of(line: KeyLine) -> Form:
    """As a key is now."""
    fields = {"models": list(line.models or ()), "labels": [" ".join(line.labels)]}
    return Form(fields | {"translation": [line.translation], "expires": [KEEP]})


def _mark(order: KeyScopeOrder) -> str:
    """The same for the same choices, whatever the reason and whenever it is asked."""
    return hashlib.sha256(json.encode(replace(order, reason=""))).hexdigest()


def _order(form: Form) -> KeyScopeOrder:
    """The form as an order.

    Raises:
        RequestInvalid: with the field that is wrong.
    """
    translations: Any = {"strict": "strict", "warn": "warn", "lenient": "lenient"}
    translation = translations.get(form.text("translation"))
    expires = form.text("expires", KEEP)
    if translation is None or expires not in (KEEP, NEVER, DAYS):
        raise RequestInvalid("this form is not complete", parameter="was")
    days: Any = {KEEP: UNSET, NEVER: None}.get(expires)
    if expires == DAYS:
        days = form.whole("expires_days", NUMBER_MAX)
        if days is None:
            raise RequestInvalid("in how many days?", parameter="expires_days")
    return KeyScopeOrder(
        models=form.all("models") or None,
        expires_days=days,
        labels=tuple(dict.fromkeys(form.text("labels").replace(",", " ").split())),
        translation=translation,
        reason=form.text("reason"),
    )
