"""Policies over the JSON API: what the pages show and do, typed in and out."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from litestar import Response, get, post
from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.access import needs, taking
from admin.asking import Asking
from admin.bodies import body_of
from admin.long_lists import list_of
from admin.policy_room.asking import PREFIX
from admin.policy_room.begun import require_standing
from admin.policy_room.desk import STEPS, VERDICTS, Appointment, StepOrder
from admin.policy_room.marks import Mark, marks_of
from admin.policy_room.places import place_of
from admin.policy_room.reader import LevelView
from admin.policy_room.room import Named, Numbered, PolicyRoom, person_of, told_of_trials
from admin.policy_room.weighing import DAYS, Weight
from admin.queries import Query
from admin.wall_clocks import moment_of
from admin.wrong_fields import taken_as
from gateway.configuration.guarding import guard_from, wider
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.rollout.seen import Seen
from gateway.rollout.versions import PolicyVersion, acting_at
from gateway.store.policies.schedules import Schedule
from gateway.store.policies.version_lists import WENT_LIVE
from policies.explain import Explanation
from policies.forms import FactField, fact_fields
from policies.language.functions import FUNCTIONS
from policies.program import PolicyDocument


AT: Final = "/api/organisations/{organisation:str}/policies"
LEVEL: Final = f"{AT}/{{level:str}}"
VERSION: Final = f"{LEVEL}/versions/{{number:int}}"
FORGOTTEN: Final = "nothing: it is decided and forgotten"
NO_CONTENT: Final = 204
_P = Permission
MOMENT: Final = Query(
    "at", "Also what acted at this time, in UTC unless it says a zone: `2026-11-30T14:05`."
)
SPAN: Final = Query("days", "Of so many days.", kind="integer", choices=tuple(DAYS), default="7")


class TextOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A document's text; where it is saved, the revision that it began from."""

    text: str = ""
    revision: int = 0
    seen_sha256: str = ""
    """Of the text that was read, in hexadecimal: refused where another stands; empty: not said."""


class DiscardOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A draft to be thrown away, as of the revision that was read."""

    revision: int = 0
    seen_sha256: str = ""
    """Of the text that was read, in hexadecimal: refused where another stands; empty: not said."""


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to decide under a text: a recorded one, a body, or facts by name."""

    text: str = ""
    request: str = ""
    body: str = ""
    facts: dict[str, str] = {}


class SubmitOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A draft to become a version."""

    revision: int = 0
    seen_sha256: str = ""
    """Of the text that was read, in hexadecimal: refused where another stands; empty: not said."""
    reason: str = ""
    guard: dict[str, float | str | None] = {}
    """Limits of its own, by the names of `GuardRules`; what is not named stays as usual."""


class ScheduleOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """`publish` or `canary` at a time, such as `2026-12-01T09:00+05:30`; without a zone in UTC."""

    action: str = "publish"
    at: str = ""
    reason: str = ""
    percent: float = 0.0
    live: int | None = None
    """The version that was seen live, 0 for none: it is refused where another one is by then."""
    canary: int | None = None
    """The same of the version that was seen as a canary."""
    waiting: str | None = None
    """The id of what was seen scheduled for the version, `none` for nothing: it is replaced."""


class CallOff(Struct, frozen=True, forbid_unknown_fields=True):
    """Why what waits is called off; with `waiting`, the id of what was seen, that alone."""

    reason: str = ""
    waiting: str | None = None


class RollbackOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Back to a version that was live; 0 is what was before, which of a level's first is none."""

    to: int = 0
    reason: str = ""
    live: int | None = None
    """The version that was seen live: it is refused where another one is by then."""
    canary: int | None = None
    """The same of the version that was seen as a canary, 0 for none: it ends with the rollback."""


class Checked(Struct, frozen=True):
    """What is wrong with a text, with lines and columns that count from 1."""

    ok: bool
    digest: str
    marks: tuple[Mark, ...]
    tests: int


class Words(Struct, frozen=True):
    """What a condition may say."""

    facts: tuple[FactField, ...]
    functions: tuple[str, ...]


def api_routes_of(room: PolicyRoom) -> list[Any]:
    """The routes; those that change something leave the records of the pages."""
    return [*_reading(room), *_writing(room), *_stepping(room)]


def _reading(room: PolicyRoom) -> list[Any]:
    reads = needs(_P.POLICIES_READ)

    @get(AT, opt=reads)
    async def levels(organisation: Named) -> list[LevelView]:
        return await room.reader.levels(organisation)

    @get(f"{AT}/vocabulary", opt=reads)
    async def vocabulary(organisation: Named) -> Words:  # noqa: ARG001 - the guard reads it
        return Words(fact_fields(), tuple(sorted(FUNCTIONS)))

    @get(LEVEL, opt=reads)
    async def level(organisation: Named, level: Named) -> LevelView:
        return await room.reader.level(organisation, place_of(organisation, level))

    @get(f"{LEVEL}/history", opt=reads)
    async def history(
        request: Asking, organisation: Named, level: Named
    ) -> Response[dict[str, Any]]:
        name = place_of(organisation, level).name
        listed = await list_of(
            request,
            partial(room.reader.store.history, name),
            partial(room.reader.lists.history, name),
        )
        found: dict[str, Any] = {"events": msgspec.to_builtins(listed.content)}
        if at := MOMENT.of(request):
            events = await room.reader.store.history(name)
            found["acting"] = msgspec.to_builtins(acting_at(events, moment_of(at, "UTC")))
        return Response(found, headers=listed.headers)

    @get(f"{LEVEL}/schedules", opt=reads)
    async def schedules(
        request: Asking, organisation: Named, level: Named
    ) -> Response[Sequence[Schedule]]:
        name = place_of(organisation, level).name
        table = room.reader.schedules
        return await list_of(request, partial(table.of, name), partial(table.page, name))

    return [levels, vocabulary, level, history, schedules, *_versions(room)]


def _versions(room: PolicyRoom) -> list[Any]:
    reads = needs(_P.POLICIES_READ)

    @get(f"{LEVEL}/versions", opt=reads)
    async def versions(
        request: Asking, organisation: Named, level: Named
    ) -> Response[Sequence[PolicyVersion]]:
        name = place_of(organisation, level).name
        whole = partial(room.reader.store.versions, name)
        return await list_of(request, whole, partial(room.reader.lists.page, name))

    @get(VERSION, opt=reads)
    async def version(
        request: Asking, organisation: Named, level: Named, number: Numbered
    ) -> dict[str, Any]:
        place = place_of(organisation, level)
        is_told = told_of_trials(request, organisation, place)
        found = await room.reader.version(place, number)
        text = await room.reader.text_of(found)
        lives = await room.reader.lists.acts(place.name, WENT_LIVE)
        usual = room.reader.guard
        return {
            "version": msgspec.to_builtins(found),
            "text": text,
            "guard": msgspec.to_builtins(found.guard or usual),
            "guard_wider": wider(found.guard, usual),
            "outcome": msgspec.to_builtins(
                await room.outcomes.of(organisation, place, lives, number)
            ),
            "keys": msgspec.to_builtins(await room.reader.key_share(found) if is_told else None),
            "measured": msgspec.to_builtins(
                await room.reader.figures.measured(place.name, number) if is_told else None
            ),
        }

    return [versions, version]


def _writing(room: PolicyRoom) -> list[Any]:
    desk = room.desk
    tries = needs(_P.POLICIES_EDIT, records=FORGOTTEN)

    @post(f"{LEVEL}/check", opt=tries, status_code=200)
    async def check(request: Asking, organisation: Named, level: Named) -> Checked:
        place_of(organisation, level)
        order = await body_of(request, TextOrder)
        report = await desk.checked(order.text)
        digest = report.document.digest if report.document else ""
        return Checked(report.is_ok, digest, marks_of(order.text, report), len(report.tests))

    @post(f"{LEVEL}/impact", opt=tries, status_code=200)
    async def weigh(request: Asking, organisation: Named, level: Named) -> Weight:
        place, order = place_of(organisation, level), await body_of(request, TextOrder)
        document = await _document(room, order.text or (await desk.working(place)).text)
        days = DAYS.get(SPAN.of(request), 7)
        return await room.weigher.weigh(organisation, place, document, days)

    @post(f"{LEVEL}/explain", opt=tries, status_code=200)
    async def explain(request: Asking, organisation: Named, level: Named) -> Explanation:
        place, question = place_of(organisation, level), await body_of(request, Question)
        document = await _document(room, question.text or (await desk.working(place)).text)
        asked = await room.asker.ask(organisation, _said(question))
        return await room.weigher.explain(place, document, asked.facts)

    return [check, weigh, explain, *_drafting(room)]


def _drafting(room: PolicyRoom) -> list[Any]:
    desk = room.desk

    @post(f"{LEVEL}/draft", opt=needs(_P.POLICIES_EDIT, records="policy.edited"))
    async def save(request: Asking, organisation: Named, level: Named) -> dict[str, int]:
        place, order = place_of(organisation, level), await body_of(request, TextOrder)
        person = person_of(request)
        desk.require_writer(person, organisation, place)
        require_standing(order.seen_sha256, await desk.working(place))
        draft = await desk.save(person, organisation, place, order.text, order.revision)
        return {"revision": draft.revision}

    @post(f"{LEVEL}/versions", opt=needs(_P.POLICIES_EDIT, records="policy.drafted"))
    async def submit(request: Asking, organisation: Named, level: Named) -> PolicyVersion:
        place, order = place_of(organisation, level), await body_of(request, SubmitOrder)
        person = person_of(request)
        desk.require_writer(person, organisation, place)
        if await room.reader.drafts.draft(place.name) is None:
            raise NotFoundException
        require_standing(order.seen_sha256, await desk.working(place))
        said = {name: "none" if v is None else str(v) for name, v in order.guard.items()}
        guard = guard_from(said, room.reader.guard)
        return await desk.submit(person, organisation, place, order.revision, order.reason, guard)

    discards = needs(_P.POLICIES_EDIT, records="policy.discarded")

    @post(f"{LEVEL}/draft/discard", opt=discards, status_code=NO_CONTENT)
    async def discard(request: Asking, organisation: Named, level: Named) -> None:
        place, order = place_of(organisation, level), await body_of(request, DiscardOrder)
        person = person_of(request)
        desk.require_writer(person, organisation, place)
        if await room.reader.drafts.draft(place.name) is None:
            raise NotFoundException
        require_standing(order.seen_sha256, await desk.working(place))
        await desk.discard(person, organisation, place, order.revision)

    return [save, submit, discard]


def _stepping(room: PolicyRoom) -> list[Any]:
    async def take(
        request: Asking, where: tuple[str, str, int], permitted: tuple[str, ...]
    ) -> PolicyVersion:
        organisation, level, number = where
        order = await body_of(request, StepOrder)
        if order.action not in permitted:
            raise RequestInvalid(f"one of {', '.join(permitted)}", parameter="action")
        place = place_of(organisation, level)
        with taken_as("number"):
            return await room.desk.step(person_of(request), organisation, place, number, order)

    approves = needs(_P.POLICIES_APPROVE, records="policy.approve")
    publishes = needs(_P.POLICIES_PUBLISH, records="policy.publish")

    @post(f"{VERSION}/verdict", opt=taking(approves, StepOrder))
    async def judge(
        request: Asking, organisation: Named, level: Named, number: Numbered
    ) -> PolicyVersion:
        return await take(request, (organisation, level, number), VERDICTS)

    @post(f"{VERSION}/rollout", opt=taking(publishes, StepOrder))
    async def roll_out(
        request: Asking, organisation: Named, level: Named, number: Numbered
    ) -> PolicyVersion:
        return await take(request, (organisation, level, number), STEPS)

    @post(f"{LEVEL}/rollback", opt=needs(_P.POLICIES_PUBLISH, records="policy.rolled_back"))
    async def roll_back(request: Asking, organisation: Named, level: Named) -> PolicyVersion:
        place, order = place_of(organisation, level), await body_of(request, RollbackOrder)
        to, person = order.to or None, person_of(request)
        with taken_as("to"):
            return await room.desk.roll_back(
                person, organisation, place, to, order.reason, live=order.live, canary=order.canary
            )

    return [judge, roll_out, roll_back, *_scheduling(room)]


def _scheduling(room: PolicyRoom) -> list[Any]:
    @post(f"{VERSION}/schedule", opt=needs(_P.POLICIES_PUBLISH, records="policy.scheduled"))
    async def schedule(
        request: Asking, organisation: Named, level: Named, number: Numbered
    ) -> Schedule:
        order = await body_of(request, ScheduleOrder)
        place, at_us = place_of(organisation, level), moment_of(order.at, "UTC")
        seen = Seen(order.live, order.canary, order.waiting)
        wanted = Appointment(order.action, at_us, order.reason, order.percent, seen)
        with taken_as("number"):
            return await room.desk.schedule(person_of(request), organisation, place, number, wanted)

    @post(f"{VERSION}/unschedule", opt=needs(_P.POLICIES_PUBLISH, records="policy.unscheduled"))
    async def unschedule(
        request: Asking, organisation: Named, level: Named, number: Numbered
    ) -> Schedule:
        place, order = place_of(organisation, level), await body_of(request, CallOff)
        person = person_of(request)
        await room.reader.version(place, number)
        with taken_as("number"):
            return await room.desk.unschedule(
                person, organisation, place, number, order.reason, order.waiting
            )

    return [schedule, unschedule]


def _said(question: Question) -> dict[str, str]:
    """As a form's fields."""
    facts = {f"{PREFIX}{name}": value for name, value in question.facts.items()}
    return facts | {"request": question.request, "body": question.body}


async def _document(room: PolicyRoom, text: str) -> PolicyDocument:
    report = await room.desk.checked(text)
    if report.document is None:
        raise RequestInvalid("the text has mistakes: check it first", parameter="text")
    return report.document
