"""From a draft to a version, and from there to everybody: submit, agree, roll out, roll back."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

from litestar import Response
from litestar.response import Redirect

from admin.asking import Asking
from admin.forms import as_sentence
from admin.policy_room.begun import revision_in
from admin.policy_room.desk import STEPS, VERDICTS, Appointment, StepOrder
from admin.policy_room.limits import limit_fields, limits_of
from admin.policy_room.marks import line_difference, marks_of
from admin.policy_room.pages import EMPTY, history_page, version_page
from admin.policy_room.places import Place, place_of
from admin.policy_room.room import (
    Named,
    Numbered,
    PolicyRoom,
    form_of,
    number_in,
    person_of,
    query_of,
    shows,
    takes,
)
from admin.policy_room.weighing import DAYS
from admin.preferences import is_zone
from admin.sign_in.pages import SEE_OTHER
from admin.undo import MEANWHILE, Undo, offer
from admin.wall_clocks import moment_of
from gateway.clock import SECOND_US
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.oversight.access import Permission
from gateway.rollout.seen import Seen
from gateway.rollout.versions import Action
from gateway.store.policies.documents import PERCENT_MAX
from gateway.store.policies.schedules import Schedule
from policies.checking.difference import amendments


BASE: Final = "/o/{organisation:str}/policies/{level:str}"
ACTING: Final = ("live", "canary")
"""States of versions that a form says it has seen."""


def publishing_routes(room: PolicyRoom) -> list[Any]:
    """The routes; each change is on record under the name that the command line gives it."""
    return [*_submit_routes(room), *_step_routes(room), *_waiting_routes(room)]


def _submit_routes(room: PolicyRoom) -> list[Any]:
    @shows(f"{BASE}/submit", Permission.POLICIES_EDIT)
    async def review(request: Asking, organisation: Named, level: Named) -> Response[str]:
        return await submit_page(room, request, organisation, place_of(organisation, level))

    @takes(f"{BASE}/submit", Permission.POLICIES_EDIT, "policy.drafted")
    async def submit(request: Asking, organisation: Named, level: Named) -> Response[Any]:
        place, form = place_of(organisation, level), await form_of(request)
        room.desk.require_writer(person_of(request), organisation, place)
        try:
            revision = revision_in(form, await room.desk.working(place))
            reason, guard = form.get("reason", ""), limits_of(form, room.reader.guard)
            version = await room.desk.submit(
                person_of(request), organisation, place, revision, reason, guard
            )
        except RequestInvalid as error:
            return await submit_page(
                room, request, organisation, place, problem=error.message, status=error.status,
                form=form,
            )  # fmt: skip
        return _to_version(organisation, place, version.number)

    return [review, submit]


def _step_routes(room: PolicyRoom) -> list[Any]:
    @takes(f"{BASE}/versions/{{number:int}}/verdict", Permission.POLICIES_APPROVE, "policy.approve")
    async def judge(
        request: Asking,
        organisation: Named,
        level: Named,
        number: Numbered,
    ) -> Response[Any]:
        return await _take(room, request, organisation, level, number, VERDICTS)

    @takes(f"{BASE}/versions/{{number:int}}/rollout", Permission.POLICIES_PUBLISH, "policy.publish")
    async def roll_out(
        request: Asking,
        organisation: Named,
        level: Named,
        number: Numbered,
    ) -> Response[Any]:
        return await _take(room, request, organisation, level, number, STEPS)

    @takes(f"{BASE}/rollback", Permission.POLICIES_PUBLISH, "policy.rolled_back")
    async def roll_back(request: Asking, organisation: Named, level: Named) -> Response[Any]:
        place, form = place_of(organisation, level), await form_of(request)
        try:
            to = number_in(form, "to", 1) if form.get("to") else None
            reason = form.get("reason", "")
            live, canary = (_seen_in(form, each) for each in ACTING)
            version = await room.desk.roll_back(
                person_of(request), organisation, place, to, reason, live=live, canary=canary
            )
        except RequestInvalid as error:
            shown = _number(form, "to") or _number(form, "live")
            if not shown:
                said: dict[str, Any] = {"status": error.status, "problem": error.message}
                return await history_page(room, request, organisation, place, **said)
            version = await room.reader.version(place, shown)
            return await version_page(
                room, request, organisation, place, version, error=error, form=form
            )
        return _to_version(organisation, place, version.number)

    return [judge, roll_out, roll_back]


def _waiting_routes(room: PolicyRoom) -> list[Any]:
    @takes(
        f"{BASE}/versions/{{number:int}}/unschedule",
        Permission.POLICIES_PUBLISH,
        "policy.unscheduled",
    )
    async def unschedule(
        request: Asking, organisation: Named, level: Named, number: Numbered
    ) -> Response[Any]:
        place, form = place_of(organisation, level), await form_of(request)
        version = await room.reader.version(place, number)
        try:
            reason = form.get("reason", "")
            ended = await room.desk.unschedule(
                person_of(request), organisation, place, number, reason, form.get("waiting") or None
            )
        except RequestInvalid as error:
            return await version_page(room, request, organisation, place, version, error=error)
        offer(request, room.services.clock, _way_back(organisation, place, ended))
        return _to_version(organisation, place, number)

    return [unschedule]


def _way_back(organisation: str, place: Place, ended: Schedule) -> Undo:
    """What orders a schedule again that was called off."""
    at = datetime.fromtimestamp(ended.at_us / SECOND_US, UTC).isoformat()
    fields = {"action": ended.action, "at": at, "reason": ended.reason, "again": ended.id}
    fields |= {"percent": f"{ended.percent:g}"}
    said = f"The schedule of version {ended.number} was cancelled."
    path = f"/o/{organisation}/policies/{place.slug}/versions/{ended.number}/rollout"
    return Undo(said, path, fields)


async def _require_unchanged(room: PolicyRoom, place: Place, form: dict[str, str]) -> None:
    """Raises ChangedMeanwhile where a schedule cannot come back to what it was made for."""
    if not (again := form.get("again", "")):
        return
    known = await room.reader.schedules.of(place.name)
    ended = next((each for each in known if each.id == again), None)
    numbers = {each.number for each in known if each.state == "waiting"}
    if ended is None or ended.number in numbers:
        raise ChangedMeanwhile(MEANWHILE)
    if said := await room.reader.schedules.conflict(ended):
        raise ChangedMeanwhile(f"{MEANWHILE} {as_sentence(said)}")


async def _take(
    room: PolicyRoom,
    request: Asking,
    organisation: str,
    level: str,
    number: int,
    permitted: tuple[Action, ...],
) -> Response[Any]:
    place, form = place_of(organisation, level), await form_of(request)
    action = form.get("action", "")
    try:
        if action not in permitted:
            raise RequestInvalid(f"one of {', '.join(permitted)}", parameter="action")
        percent = _percent(form) if action == "canary" else 0.0
        # Stopping what does harm waits for nobody to look again.
        live, canary = (_seen_in(form, each) if action != "stop" else None for each in ACTING)
        if form.get("at", "").strip():
            seen = Seen(live, canary, form.get("waiting") or None)
            await room.desk.require_live(place, live, canary)
            await _require_unchanged(room, place, form)
            at_us = await _moment(room, request, form)
            wanted = Appointment(action, at_us, form.get("reason", ""), percent, seen)
            await room.desk.schedule(person_of(request), organisation, place, number, wanted)
            return _to_version(organisation, place, number)
        accepts = form.get("accepts_wider") == "yes"
        order = StepOrder(action, form.get("reason", ""), percent, accepts, live, canary)
        await room.desk.step(person_of(request), organisation, place, number, order)
    except (RequestInvalid, Forbidden) as error:
        version = await room.reader.version(place, number)
        return await version_page(
            room, request, organisation, place, version, error=error, form=form
        )
    return _to_version(organisation, place, number)


async def _moment(room: PolicyRoom, request: Asking, form: dict[str, str]) -> int:
    """A form's time in the zone that the form was shown in."""
    zone = form.get("zone", "")
    if not is_zone(zone):
        zone = (await room.shell.way(request)).zone
    return moment_of(form["at"], zone, form.get("turn", ""))


def _to_version(organisation: str, place: Place, number: int) -> Redirect:
    path = f"/o/{organisation}/policies/{place.slug}/versions/{number}"
    return Redirect(path, status_code=SEE_OTHER)


def _number(form: dict[str, str], name: str) -> int:
    """The version that a field of a form names; 0 where it names none."""
    try:
        return number_in(form, name)
    except RequestInvalid:
        return 0


def _seen_in(form: dict[str, str], state: str) -> int | None:
    """The version that a form's page showed in this state; None where it does not say so."""
    return number_in(form, state) if form.get(state) else None


def _percent(form: dict[str, str]) -> float:
    """A canary's share. A form that is wrong is told so before anything is on record as done."""
    try:
        percent = float(form.get("percent", ""))
    except ValueError:
        percent = 0.0
    if not 0 < percent <= PERCENT_MAX:
        raise RequestInvalid(
            "A canary's share is more than 0 and at most 100 percent.", parameter="percent"
        )
    return percent


async def submit_page(
    room: PolicyRoom,
    request: Asking,
    organisation: str,
    place: Place,
    *,
    status: int = 200,
    problem: str = "",
    form: dict[str, str] | None = None,
) -> Response[str]:
    """What a draft changes, in words, line by line and in numbers, before it is submitted."""
    working = await room.desk.working(place)
    report = await room.desk.checked(working.text)
    live, before = await room.reader.live(place)
    written = await room.reader.text_of(live) if live else ""
    days = DAYS.get(query_of(request).get("days", "7"), 7)
    document = report.document if report.is_ok else None
    weight = await room.weigher.weigh(organisation, place, document, days) if document else None
    body = report.document.body if report.document else None
    return await room.shell.page(
        request,
        "policy_room/submit.html",
        "policies",
        status,
        organisation=organisation,
        place=place,
        working=working,
        report=report,
        marks=marks_of(working.text, report),
        live=live,
        changes=amendments(before.body if before else EMPTY, body) if body else (),
        lines=await asyncio.to_thread(line_difference, written, working.text),
        weight=weight,
        days=days,
        problem=problem,
        form=form or {},
        limits=limit_fields(room.reader.guard, room.reader.guard, form or {}),
        on_harm=(form or {}).get("guard.on_harm", room.reader.guard.on_harm),
    )
