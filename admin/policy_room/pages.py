"""Pages that show policies: all levels, one level, one version, and the history of a level."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from litestar import Response

from admin.asking import Asking
from admin.forms import as_sentence
from admin.policy_room.limits import compared, guard_amendments
from admin.policy_room.marks import line_difference
from admin.policy_room.places import Place, place_of
from admin.policy_room.reader import RULES_SHOWN_MAX, PolicyReader
from admin.policy_room.room import (
    Named,
    Numbered,
    PolicyRoom,
    person_of,
    query_of,
    rights_of,
    shows,
    told_of_trials,
)
from admin.policy_room.wording import defaults_in_words
from admin.queries import PAGE_ROWS, after_of, first_of
from admin.wall_clocks import TURNS, moment_of, turns_of
from gateway.actors import same_person
from gateway.configuration.guarding import GuardRules, wider
from gateway.errors import Forbidden, RequestInvalid
from gateway.oversight.access import Permission
from gateway.rollout.trials import Arm
from gateway.rollout.versions import Acting, PolicyEvent, PolicyVersion, acting_at, former_of
from gateway.store.policies.canary_figures import Measured
from gateway.store.policies.guard import ACTOR
from gateway.store.policies.version_lists import ACTS, WENT_LIVE
from policies.checking.difference import Amendment, amendments
from policies.document import PolicyBody
from policies.program import PolicyDocument


AHEAD: Final = ("draft", "approved", "shadow", "canary")
"""States of versions that something may come of yet."""
EMPTY: Final = PolicyBody(name="nothing", version=1)
OUTCOMES_MAX: Final = 8
LATELY_MAX: Final = 10
EVENTS_MAX: Final = 200
ROLLUP_BATCHES: Final = 2


def reading_routes(room: PolicyRoom) -> list[Any]:
    """The routes; none of them changes anything."""
    return [*_list_routes(room), *_version_routes(room)]


def _list_routes(room: PolicyRoom) -> list[Any]:
    shell, reader = room.shell, room.reader

    @shows("/o/{organisation:str}/policies", Permission.POLICIES_READ)
    async def levels(request: Asking, organisation: Named) -> Response[str]:
        views = await reader.levels(organisation)
        wanted = query_of(request).get("q", "").strip()
        return await shell.page(
            request,
            "policy_room/levels.html",
            "policies",
            organisation=organisation,
            views=views,
            others=await reader.places_without(organisation, views),
            rights={v.place.slug: rights_of(request, organisation, v.place) for v in views},
            may_edit=rights_of(request, organisation, place_of(organisation, "organisation")).edit,
            q=wanted,
            shown_max=RULES_SHOWN_MAX,
        )

    @shows("/o/{organisation:str}/policies/{level:str}", Permission.POLICIES_READ)
    async def level(request: Asking, organisation: Named, level: Named) -> Response[str]:
        place = place_of(organisation, level)
        view = await reader.level(organisation, place)
        return await shell.page(
            request,
            "policy_room/level.html",
            "policies",
            organisation=organisation,
            view=view,
            place=place,
            rights=rights_of(request, organisation, place),
            defaults=defaults_in_words(view.body.defaults) if view.body else (),
            text=(await room.desk.working(place)).text if not view.draft and view.body else "",
            history=(await reader.lists.events(place.name, LATELY_MAX)).rows,
            q=query_of(request).get("q", "").strip(),
            shown_max=RULES_SHOWN_MAX,
        )

    return [levels, level]


def _version_routes(room: PolicyRoom) -> list[Any]:
    reader = room.reader

    @shows(
        "/o/{organisation:str}/policies/{level:str}/versions/{number:int}", Permission.POLICIES_READ
    )
    async def version(
        request: Asking,
        organisation: Named,
        level: Named,
        number: Numbered,
    ) -> Response[str]:
        place = place_of(organisation, level)
        shown = await reader.version(place, number)
        return await version_page(room, request, organisation, place, shown)

    @shows("/o/{organisation:str}/policies/{level:str}/history", Permission.POLICIES_READ)
    async def history(request: Asking, organisation: Named, level: Named) -> Response[str]:
        return await history_page(room, request, organisation, place_of(organisation, level))

    return [version, history]


async def version_page(
    room: PolicyRoom,
    request: Asking,
    organisation: str,
    place: Place,
    version: PolicyVersion,
    *,
    error: RequestInvalid | Forbidden | None = None,
    form: dict[str, str] | None = None,
) -> Response[str]:
    """A version: where it stands, what it changes, what it would have done, what may come next."""
    reader = room.reader
    live, before = await reader.live(place)
    document = await reader.document(version)
    text = await reader.text_of(version)
    weigh = room.weigher.weigh
    weight = await weigh(organisation, place, document) if version.state in AHEAD else None
    written = await reader.text_of(live) if live else ""
    events = await reader.lists.events_of(place.name, version.number)
    lives = await reader.lists.acts(place.name, WENT_LIVE)
    await room.services.rollup.catch_up(ROLLUP_BATCHES)
    outcome = await room.outcomes.of(organisation, place, lives, version.number)
    schedule = {one.number: one for one in await reader.open_schedules(place)}.get(version.number)
    same = live is not None and live.number == version.number
    return await room.shell.page(
        request,
        "policy_room/version.html",
        "policies",
        error.status if error else 200,
        organisation=organisation,
        place=place,
        version=version,
        live=live,
        canary=await reader.lists.canary(place.name),
        text=text,
        body=document.body,
        changes=() if same else _changes(reader.guard, before, document, version),
        lines=() if same else await asyncio.to_thread(line_difference, written, text),
        weight=weight,
        guard=version.guard or reader.guard,
        wider=wider(version.guard, reader.guard),
        **await _trial(
            reader, place, version, is_told=told_of_trials(request, organisation, place)
        ),
        schedule=schedule,
        turns=turns_of((form or {}).get("at", ""), (await room.shell.way(request)).zone),
        outcome=outcome,
        conflict=await reader.schedules.conflict(schedule) if schedule else "",
        halted=_halted(events, version),
        former=former_of(lives) if same else 0,
        events=events,
        rights=rights_of(request, organisation, place),
        is_own=same_person(person_of(request).name, version.author),
        problem=as_sentence(error.message) if error else "",
        form=form or {},
        mistakes={error.parameter: error.message} if form and error and error.parameter else {},
    )


async def _trial(
    reader: PolicyReader, place: Place, version: PolicyVersion, *, is_told: bool
) -> dict[str, Any]:
    """What was counted of a version as a canary, and how many keys its share takes."""
    measured = Measured(Arm(), Arm())
    if is_told:
        measured = await reader.figures.measured(place.name, version.number)
    return {
        "is_told": is_told,
        "measured": measured,
        "compared": compared(version.guard, reader.guard, measured.canary, measured.beside),
        "key_share": await reader.key_share(version) if is_told else None,
    }


def _changes(
    usual: GuardRules,
    before: PolicyDocument | None,
    document: PolicyDocument,
    version: PolicyVersion,
) -> tuple[Amendment, ...]:
    """What a version changes of what is live, and of the limits that are usual."""
    body = before.body if before else EMPTY
    return (
        *amendments(body, document.body),
        *guard_amendments(usual, version.guard or usual),
    )


def _halted(events: Sequence[PolicyEvent], version: PolicyVersion) -> str:
    """Why the guard ended the canary of a version that stayed approved; empty if it did not."""
    last = events[-1] if events else None
    is_guards = last is not None and (last.action, last.actor) == ("stop", ACTOR)
    return last.reason if last and is_guards and version.state == "approved" else ""


async def history_page(
    room: PolicyRoom,
    request: Asking,
    organisation: str,
    place: Place,
    *,
    status: int = 200,
    problem: str = "",
) -> Response[str]:
    """All versions and what was done to them; two of them compared; what was live at a moment."""
    reader, asked = room.reader, query_of(request)
    lists = reader.lists
    pair = [await lists.version(place.name, _number(asked.get(name, ""))) for name in ("a", "b")]
    pair_compared = None
    if pair[0] and pair[1]:
        bodies = [(await reader.document(each)).body for each in pair if each]
        texts = [await reader.text_of(each) for each in pair if each]
        lines = await asyncio.to_thread(line_difference, *texts)
        guards = guard_amendments(*((each.guard or reader.guard) for each in pair if each))
        changes = (*amendments(*bodies), *guards)
        pair_compared = (pair[0], pair[1], changes, lines)
    acting: Acting | None = None
    at_us = 0
    zone = (await room.shell.way(request)).zone
    if asked.get("at"):
        try:
            at_us = moment_of(asked["at"], zone, TURNS[0])
            acting = acting_at(await lists.acts(place.name, ACTS, at_us), at_us)
        except RequestInvalid as error:
            status, problem = error.status, error.message
    lives = await lists.acts(place.name, WENT_LIVE)
    outcomes = [
        await room.outcomes.of(organisation, place, lives, number, with_times=False)
        for number in await lists.lived(place.name, OUTCOMES_MAX)
    ]
    return await room.shell.page(
        request,
        "policy_room/history.html",
        "policies",
        status,
        organisation=organisation,
        place=place,
        versions=await lists.page(place.name, first_of(request), PAGE_ROWS, after_of(request)),
        events=await lists.events(place.name, EVENTS_MAX),
        outcomes=[each for each in outcomes if each and each.hours],
        compared=pair_compared,
        acting=acting,
        at=asked.get("at", "")[:40],
        at_us=at_us,
        zone=zone,
        rights=rights_of(request, organisation, place),
        problem=problem,
    )


def _number(text: str) -> int:
    """A version's number as an address names it; 0, which none has, for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004
