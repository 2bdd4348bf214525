"""The approvals inbox over HTTP: one list, and one form for each thing that waits."""

from typing import Any
from urllib.parse import urlencode

from litestar import Response
from litestar.exceptions import NotFoundException
from litestar.response import Redirect

from admin.asking import Asking
from admin.forms import as_sentence
from admin.policy_room.desk import VERDICTS, StepOrder
from admin.policy_room.inbox import KIND, Inbox
from admin.policy_room.places import Place, may, place_of
from admin.policy_room.room import (
    Named,
    PolicyRoom,
    form_of,
    number_in,
    person_of,
    shows,
    takes,
)
from admin.queries import AFTER, FIRST, after_of, first_of
from admin.screens import CONFLICT
from admin.second_person import require_asker
from admin.sign_in.pages import SEE_OTHER
from gateway.errors import Forbidden, RequestInvalid
from gateway.oversight.access import Permission
from gateway.rollout.versions import PolicyVersion
from gateway.store.custody.orders import CustodyRefused


BASE = "/o/{organisation:str}/approvals"
DONE = "1"


def deciding_routes(room: PolicyRoom) -> list[Any]:
    """The routes; a reveal and a release want a second person as much as a policy does."""
    inbox = Inbox(room)

    @shows(BASE, Permission.POLICIES_READ)
    async def approvals(request: Asking, organisation: Named) -> Response[str]:
        return await inbox_page(room, inbox, request, organisation)

    @takes(f"{BASE}/policies", Permission.POLICIES_APPROVE, "policy.approve")
    async def judge(request: Asking, organisation: Named) -> Response[Any]:
        form, person = await form_of(request), person_of(request)
        place = place_of(organisation, form.get("level", ""))
        try:
            number, action = number_in(form, "id", 1), form.get("action", "")
            if action not in VERDICTS:
                raise RequestInvalid("approve or reject", parameter="action")
            accepts = form.get("accepts_wider") == "yes"
            order = StepOrder(action, form.get("reason", ""), accepts_wider=accepts)
            await room.desk.step(person, organisation, place, number, order)
        except (RequestInvalid, Forbidden) as error:
            return await inbox_page(room, inbox, request, organisation, error.status, error.message)
        done = f"{place.slug}.{number}" if action == "approve" else DONE
        return _back(request, organisation, done)

    return [
        approvals,
        judge,
        _price_route(room, inbox),
        _key_route(room, inbox),
        _budget_route(room, inbox),
        _worker_route(room, inbox),
        _erasure_route(room, inbox),
        *_custody_routes(room, inbox),
    ]


def _price_route(room: PolicyRoom, inbox: Inbox) -> Any:
    @takes(f"{BASE}/prices", Permission.PRICES_APPROVE, "prices.approved")
    async def judge_prices(request: Asking, organisation: Named) -> Response[Any]:
        form, person = await form_of(request), person_of(request)
        reason = form.get("reason", "")
        try:
            number = number_in(form, "id", 1)
            decide = inbox.prices.approve if _is_approval(form) else inbox.prices.decline
            await decide(person, number, reason)
        except (RequestInvalid, Forbidden) as error:
            return await inbox_page(room, inbox, request, organisation, error.status, error.message)
        return _back(request, organisation)

    return judge_prices


def _key_route(room: PolicyRoom, inbox: Inbox) -> Any:
    @takes(f"{BASE}/keys", Permission.KEYS_APPROVE, "key.widened")
    async def judge_widening(request: Asking, organisation: Named) -> Response[Any]:
        form, person = await form_of(request), person_of(request)
        reason = form.get("reason", "")
        try:
            decide = inbox.keys.approve if _is_approval(form) else inbox.keys.decline
            await decide(person, organisation, form.get("id", ""), reason)
        except (RequestInvalid, Forbidden) as error:
            return await inbox_page(room, inbox, request, organisation, error.status, error.message)
        return _back(request, organisation)

    return judge_widening


def _budget_route(room: PolicyRoom, inbox: Inbox) -> Any:
    @takes(f"{BASE}/budgets", Permission.BUDGETS_SET, "budget.raised")
    async def judge_raise(request: Asking, organisation: Named) -> Response[Any]:
        form, person = await form_of(request), person_of(request)
        reason = form.get("reason", "")
        try:
            decide = inbox.budgets.approve if _is_approval(form) else inbox.budgets.decline
            await decide(person, organisation, form.get("id", ""), reason)
        except (RequestInvalid, Forbidden) as error:
            return await inbox_page(room, inbox, request, organisation, error.status, error.message)
        return _back(request, organisation)

    return judge_raise


def _worker_route(room: PolicyRoom, inbox: Inbox) -> Any:
    @takes(f"{BASE}/workers", Permission.WORKERS_APPROVE_RETIREMENT, "worker.retired")
    async def judge_retirement(request: Asking, organisation: Named) -> Response[Any]:
        form, person = await form_of(request), person_of(request)
        reason = form.get("reason", "")
        try:
            decide = inbox.workers.approve if _is_approval(form) else inbox.workers.decline
            await decide(person, form.get("id", ""), reason)
        except (RequestInvalid, Forbidden) as error:
            return await inbox_page(room, inbox, request, organisation, error.status, error.message)
        return _back(request, organisation)

    return judge_retirement


def _erasure_route(room: PolicyRoom, inbox: Inbox) -> Any:
    @takes(f"{BASE}/erasures", Permission.CONTENT_APPROVE_ERASURE, "content.erased")
    async def judge_erasure(request: Asking, organisation: Named) -> Response[Any]:
        form, person = await form_of(request), person_of(request)
        reason = form.get("reason", "")
        case = await inbox.erasures.cases.case(organisation, form.get("id", ""))
        if case is None:
            raise NotFoundException
        try:
            require_asker(form.get("asked_by"), case.asked_by)
            if _is_approval(form):
                await inbox.erasures.approve(person.name, case, reason)
            else:
                await inbox.erasures.cases.decline(person.name, case, reason)
        except (RequestInvalid, CustodyRefused) as error:
            return await inbox_page(room, inbox, request, organisation, *_refusal(error))
        return _back(request, organisation)

    return judge_erasure


def _custody_routes(room: PolicyRoom, inbox: Inbox) -> list[Any]:
    @takes(f"{BASE}/reveals", Permission.CONTENT_APPROVE_REVEAL, "reveal.approved")
    async def approve_reveal(request: Asking, organisation: Named) -> Response[Any]:
        form, person = await form_of(request), person_of(request)
        wanted = form.get("id", "")
        if await inbox.custody.reveal(organisation, wanted) is None:
            raise NotFoundException
        try:
            if _is_approval(form):
                await inbox.custody.approve_reveal(person.name, wanted)
            else:
                await inbox.custody.end_reveal(person.name, wanted, form.get("reason", ""))
        except (RequestInvalid, CustodyRefused) as error:
            return await inbox_page(room, inbox, request, organisation, *_refusal(error))
        return _back(request, organisation)

    @takes(f"{BASE}/holds", Permission.HOLDS_SET, "hold.released")
    async def release_hold(request: Asking, organisation: Named) -> Response[Any]:
        form, person = await form_of(request), person_of(request)
        wanted = form.get("id", "")
        asked = await inbox.custody.hold(organisation, wanted)
        if asked is None or asked.released_by or not asked.release_by:
            raise NotFoundException
        try:
            require_asker(form.get("asked_by"), asked.release_by)
            if _is_approval(form):
                await inbox.custody.release_hold(person.name, wanted, asked.release_by)
            else:
                await inbox.custody.keep_hold(person.name, wanted, form.get("reason", ""))
        except (RequestInvalid, CustodyRefused) as error:
            return await inbox_page(room, inbox, request, organisation, *_refusal(error))
        return _back(request, organisation)

    return [approve_reveal, release_hold]


def _back(request: Asking, organisation: str, done: str = DONE) -> Redirect:
    """To the page of the inbox that the form stood on; `done` may name the version approved."""
    page = {KIND.name: KIND.of(request), FIRST.name: str(first_of(request) or "")}
    page[AFTER.name] = after_of(request)
    asked = {name: said for name, said in page.items() if said} | {"done": done}
    return Redirect(f"/o/{organisation}/approvals?{urlencode(asked)}", status_code=SEE_OTHER)


def _is_approval(form: dict[str, str]) -> bool:
    """Whether a form agrees; raises RequestInvalid where it neither agrees nor declines."""
    action = form.get("action", "")
    if action not in VERDICTS:
        raise RequestInvalid("approve or reject", parameter="action")
    return action == "approve"


def _refusal(error: RequestInvalid | CustodyRefused) -> tuple[int, str]:
    """A status, and what to say."""
    if isinstance(error, RequestInvalid):
        return error.status, error.message
    return CONFLICT, as_sentence(str(error))


async def inbox_page(
    room: PolicyRoom,
    inbox: Inbox,
    request: Asking,
    organisation: str,
    status: int = 200,
    problem: str = "",
) -> Response[str]:
    """What waits, with a problem said above it, or what was done and where it goes on."""
    done = "" if problem else request.query_params.get("done", "")
    person = person_of(request)
    place, approved = await _approved(room, organisation, done)
    return await room.shell.page(
        request,
        "policy_room/approvals.html",
        "approvals",
        status,
        organisation=organisation,
        waiting=await inbox.read(
            person,
            organisation,
            KIND.of(request),
            (first_of(request), after_of(request)),
        ),
        after=after_of(request),
        problem=problem,
        done=bool(done),
        place=place,
        approved=approved,
        may_roll_out=bool(place and may(person, Permission.POLICIES_PUBLISH, organisation, place)),
    )


async def _approved(
    room: PolicyRoom, organisation: str, done: str
) -> tuple[Place | None, PolicyVersion | None]:
    """The version that was approved a moment ago, while it acts nowhere yet."""
    slug, _, number = done.rpartition(".")
    try:
        place = place_of(organisation, slug)
        version = await room.reader.version(place, number_in({"number": number}, "number", 1))
    except (NotFoundException, RequestInvalid):
        return None, None
    return (place, version) if version.state == "approved" else (None, None)
