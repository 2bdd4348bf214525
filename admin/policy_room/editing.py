"""The editor: one draft per level, as cards or as code, with errors shown where they are.

Everything works as plain forms. A card changes the saved draft; the code is saved as it was typed,
right or wrong. When two people edit, the second one to save is shown both texts.
"""

import asyncio
from typing import Any, Final
from urllib.parse import urlencode

from litestar import Response
from litestar.response import Redirect
from msgspec.structs import replace

from admin.asking import Asking
from admin.policy_room import cards
from admin.policy_room.asking import fields_in_order
from admin.policy_room.begun import revision_in
from admin.policy_room.desk import Working
from admin.policy_room.fact_words import FACT_WORDS
from admin.policy_room.marks import line_difference, marks_of
from admin.policy_room.meanwhile import standing_of
from admin.policy_room.places import Place, place_of
from admin.policy_room.proposing import SHOWN, Offer, case_with, offer_of
from admin.policy_room.room import (
    Named,
    PolicyRoom,
    form_of,
    number_in,
    person_of,
    query_of,
    rights_of,
    shows,
    takes,
)
from admin.policy_room.testing import tried
from admin.policy_room.wording import effects
from admin.sign_in.pages import SEE_OTHER
from admin.undo import Undo, offer
from classifiers.pii.labels import LABELS
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.store.policies.drafts import DraftChanged
from policies.checking.check import CheckReport
from policies.forms import editable_rules
from policies.text.amending import Amended


BASE: Final = "/o/{organisation:str}/policies/{level:str}/edit"
EMPTY_ROWS: Final = 2
NOTHING: Final = "nothing: it is decided and forgotten"


def editing_routes(room: PolicyRoom) -> list[Any]:
    """The routes of the editor."""
    return [*_code_routes(room), *_card_routes(room), *_arranging_routes(room)]


def _code_routes(room: PolicyRoom) -> list[Any]:
    desk = room.desk

    @shows(BASE, Permission.POLICIES_EDIT)
    async def edit(request: Asking, organisation: Named, level: Named) -> Response[str]:
        place, asked, form = place_of(organisation, level), query_of(request), None
        if "from" in asked:
            version = await room.reader.version(place, number_in(asked, "from", 1))
            form = {"text": await room.reader.text_of(version)}
        return await editor_page(room, request, organisation, place, form=form)

    @takes(BASE, Permission.POLICIES_EDIT, "policy.edited")
    async def save(request: Asking, organisation: Named, level: Named) -> Response[Any]:
        place, form = place_of(organisation, level), await form_of(request)
        desk.require_writer(person_of(request), organisation, place)
        text = form.get("text", "").replace("\r\n", "\n")
        try:
            revision = revision_in(form, await desk.working(place))
            await desk.save(person_of(request), organisation, place, text, revision)
        except DraftChanged as error:
            return await conflict_page(room, request, organisation, place, text, error)
        except RequestInvalid as error:
            return await editor_page(
                room, request, organisation, place, form=form, problem=error.message
            )
        return Redirect(f"{_home(organisation, place)}?as=code&saved=1", status_code=SEE_OTHER)

    @takes(f"{BASE}/try", Permission.POLICIES_EDIT, NOTHING, 200)
    async def try_out(request: Asking, organisation: Named, level: Named) -> Response[str]:
        """The same page with what the text would decide; nothing is saved, the text stays."""
        form = await form_of(request)
        place = place_of(organisation, level)
        return await editor_page(room, request, organisation, place, form=form)

    @takes(f"{BASE}/discard", Permission.POLICIES_EDIT, "policy.discarded")
    async def discard(request: Asking, organisation: Named, level: Named) -> Response[Any]:
        place, form = place_of(organisation, level), await form_of(request)
        desk.require_writer(person_of(request), organisation, place)
        try:
            revision = revision_in(form, await desk.working(place))
            await desk.discard(person_of(request), organisation, place, revision)
        except DraftChanged as error:
            text = (await desk.working(place)).text
            return await conflict_page(room, request, organisation, place, text, error)
        return Redirect(f"/o/{organisation}/policies/{place.slug}", status_code=SEE_OTHER)

    return [edit, save, try_out, discard]


def _card_routes(room: PolicyRoom) -> list[Any]:
    desk = room.desk

    @shows(f"{BASE}/rule", Permission.POLICIES_EDIT)
    async def card(request: Asking, organisation: Named, level: Named) -> Response[str]:
        return await card_page(
            room, request, organisation, place_of(organisation, level), query_of(request)
        )

    @shows("/o/{organisation:str}/policies/new", Permission.POLICIES_EDIT)
    async def rule_like(request: Asking, organisation: Named) -> Response[Any]:
        """A new rule, to be filled in: for requests like a recorded one where `from` names it."""
        place, fields = place_of(organisation, "organisation"), {"section": "constraints"}
        if recorded := query_of(request).get("from", "").strip():
            asked = await room.asker.ask(organisation, {"request": recorded})
            fields["when"] = cards.condition_like(asked.facts)
        path = f"{_home(organisation, place)}/rule?{urlencode(fields)}"
        return Redirect(path, status_code=SEE_OTHER)

    @takes(f"{BASE}/rule", Permission.POLICIES_EDIT, "policy.edited")
    async def keep_card(request: Asking, organisation: Named, level: Named) -> Response[Any]:
        place, form = place_of(organisation, level), await form_of(request)
        desk.require_writer(person_of(request), organisation, place)
        working = await desk.working(place)
        try:
            rule = cards.rule_from(form.get("section", ""), form)
            number = number_in(form, "place") if form.get("place") else None
            revision = _same_revision(form, working)
            found = cards.with_rule(working.text, form["section"], number, rule)
            await desk.save(person_of(request), organisation, place, found.text, revision)
        except RequestInvalid as error:
            return await card_page(
                room, request, organisation, place, form, status=error.status, problem=error
            )
        return _back(organisation, place, kept=found.comments_kept)

    return [card, rule_like, keep_card]


def _arranging_routes(room: PolicyRoom) -> list[Any]:
    desk = room.desk

    @takes(f"{BASE}/rules", Permission.POLICIES_EDIT, "policy.edited")
    async def arrange(request: Asking, organisation: Named, level: Named) -> Response[Any]:
        """Move a rule up or down, or take it out."""
        place, form = place_of(organisation, level), await form_of(request)
        desk.require_writer(person_of(request), organisation, place)
        working = await desk.working(place)
        try:
            revision = _same_revision(form, working)
            found = _arranged(working.text, form)
            await desk.save(person_of(request), organisation, place, found.text, revision)
            if undo := _moved_back(organisation, place, form, revision):
                offer(request, room.services.clock, undo)
        except RequestInvalid as error:
            said = f"{error.message}. Nothing was changed."
            return await editor_page(
                room, request, organisation, place, problem=said, status=error.status
            )
        return _back(organisation, place, kept=found.comments_kept, at=_landed(form))

    return [arrange, _case_route(room)]


def _case_route(room: PolicyRoom) -> Any:
    @takes(f"{BASE}/case", Permission.POLICIES_EDIT, "policy.edited")
    async def put_case(request: Asking, organisation: Named, level: Named) -> Response[Any]:
        """Put an offered test case into what is typed, to be saved, or else into the draft."""
        place, form = place_of(organisation, level), await form_of(request)
        working = await room.desk.working(place)
        try:
            if "text" in form:
                text = form["text"].replace("\r\n", "\n")
                form["text"] = cards.with_case(text, form.get("case", "")).text
                return await editor_page(room, request, organisation, place, form=form)
            room.desk.require_writer(person_of(request), organisation, place)
            revision = _same_revision(form, working)
            found = cards.with_case(working.text, form.get("case", ""))
            await room.desk.save(person_of(request), organisation, place, found.text, revision)
        except RequestInvalid as error:
            said = f"{error.message}. Nothing was changed."
            return await editor_page(
                room, request, organisation, place, form=form, problem=said, status=error.status
            )
        return _back(organisation, place, kept=found.comments_kept, at="#cases")

    return put_case


def _same_revision(form: dict[str, str], working: Working) -> int:
    """The revision that a form began from; raises DraftChanged if another one stands now."""
    revision = revision_in(form, working)
    if revision != working.revision:
        raise DraftChanged(working.draft)
    return revision


def _arranged(text: str, form: dict[str, str]) -> Amended:
    section, number = form.get("section", ""), number_in(form, "place")
    match form.get("action"):
        case "up":
            return cards.moved(text, section, number, -1)
        case "down":
            return cards.moved(text, section, number, 1)
        case "remove":
            return cards.without(text, section, number)
    raise RequestInvalid("up, down or remove", parameter="action")


def _landed(form: dict[str, str]) -> str:
    """Where on the page the rule is after it was moved, or what took the place of one taken out."""
    step = {"up": -1, "down": 1}.get(form.get("action", ""), 0)
    return f"#{form.get('section', '')}-{max(number_in(form, 'place') + step, 0)}"


def _moved_back(
    organisation: str, place: Place, form: dict[str, str], revision: int
) -> Undo | None:
    """What moves a rule back that was moved; what was taken out is too long to carry along."""
    step = {"up": -1, "down": 1}.get(form.get("action", ""))
    if step is None:
        return None
    number = number_in(form, "place") + step
    way = {"action": "down" if step < 0 else "up", "place": str(number)}
    fields = {"section": form.get("section", ""), "revision": str(revision + 1)} | way
    said = f"A rule was moved {form['action']}."
    return Undo(said, f"{_home(organisation, place)}/rules", fields)


def _home(organisation: str, place: Place) -> str:
    return f"/o/{organisation}/policies/{place.slug}/edit"


def _back(organisation: str, place: Place, *, kept: bool, at: str = "") -> Redirect:
    lost = "" if kept else "&comments=lost"
    path = f"{_home(organisation, place)}?as=cards&saved=1{lost}{at}"
    return Redirect(path, status_code=SEE_OTHER)


async def editor_page(
    room: PolicyRoom,
    request: Asking,
    organisation: str,
    place: Place,
    *,
    form: dict[str, str] | None = None,
    problem: str = "",
    status: int = 200,
) -> Response[str]:
    """The editor; with a `form` what was typed stands in it instead of what is saved."""
    working = await room.desk.working(place)
    asked = query_of(request)
    said = form or {}
    text = said["text"].replace("\r\n", "\n") if "text" in said else working.text
    report = await room.desk.checked(text)
    body = report.document.body if report.document else None
    first, rest = fields_in_order()
    return await room.shell.page(
        request,
        "policy_room/edit.html",
        "policies",
        status if status != 200 or not problem else 400,  # noqa: PLR2004
        organisation=organisation,
        place=place,
        working=working,
        revision=said.get("revision", working.mark),
        text=text,
        is_typed="text" in said and text != working.text,
        report=report,
        marks=marks_of(text, report),
        rules=await asyncio.to_thread(editable_rules, body, text) if body else (),
        shown_as=_shown_as(asked.get("as", ""), is_right=body is not None, is_typed=bool(said)),
        cards_wait=asked.get("as") == "cards" and body is None and not said,
        problem=problem,
        saved=asked.get("saved") == "1" and not problem,
        comments_lost=asked.get("comments") == "lost",
        rights=rights_of(request, organisation, place),
        fact_fields=first,
        more_fields=rest,
        said=said,
        effects=effects,
        example=_example(report, text),
        tried=await tried(room, organisation, place, report.document, said, text),
        in_house={each.name for each in await room.reader.targets() if each.in_house},
    )


def _shown_as(wanted: str, *, is_right: bool, is_typed: bool) -> str:
    """Cards where the text has any; the code where it is wrong, or somebody typed in it."""
    if wanted == "code" or is_typed or not is_right:
        return "code"
    return "cards"


def _example(report: CheckReport, text: str) -> Offer | None:
    """The case that is offered where a document has none."""
    if report.document is None or report.tests:
        return None
    return offer_of(case_with(report.document, SHOWN), text)


async def conflict_page(
    room: PolicyRoom,
    request: Asking,
    organisation: str,
    place: Place,
    mine: str,
    error: DraftChanged,
) -> Response[str]:
    """Both texts, and how they differ: whoever saves second decides, and nothing is lost."""
    theirs, working = error.theirs, await room.desk.working(place)
    stands = theirs.text if theirs else working.text
    return await room.shell.page(
        request,
        "policy_room/conflict.html",
        "policies",
        error.status,
        organisation=organisation,
        place=place,
        theirs=theirs,
        mark=replace(working, text=stands, revision=theirs.revision if theirs else 0).mark,
        stands=stands,
        mine=mine,
        lines=await asyncio.to_thread(line_difference, stands, mine),
        problem=error.message,
    )


def _with_empty_ones(rows: list[cards.Comparison]) -> list[cards.Comparison]:
    empty = [cards.Comparison()] * min(EMPTY_ROWS, cards.ROWS_MAX - len(rows))
    return [*rows, *empty]


async def card_page(
    room: PolicyRoom,
    request: Asking,
    organisation: str,
    place: Place,
    said: dict[str, str],
    *,
    status: int = 200,
    problem: RequestInvalid | None = None,
) -> Response[str]:
    """One rule as a form; after a problem with what was typed."""
    working = await room.desk.working(place)
    section = said.get("section", "constraints")
    body = cards.body_of(working.text)
    number = number_in(said, "place") if said.get("place") else None
    rule = standing = None
    if body is not None and number is not None and problem is None:
        rule = cards.rule_at(body, section, number)
    if isinstance(problem, DraftChanged) and number is not None:
        typed_rule = cards.rule_from(section, said)
        standing = standing_of(body, section, said.get("was", ""), number, typed_rule)
        number = standing.place
    values = cards.values_of(rule) if rule else {}
    typed = problem is not None or number is None
    shown = said if typed else values
    when = shown.get("when", "")
    rows = cards.comparisons_typed(said) if problem else cards.comparisons_of(when)
    return await room.shell.page(
        request,
        "policy_room/card.html",
        "policies",
        status,
        organisation=organisation,
        place=place,
        section=section,
        number=number,
        groups=[
            (title, fields, any(shown.get(field.key) for field in fields))
            for title, fields in cards.FORMS.get(section, cards.CONSTRAINT)
        ],
        values=shown,
        when=when,
        rows=None if rows is None else _with_empty_ones(rows),
        facts=cards.FACTS,
        known=cards.known_names(await room.reader.targets()),
        fact_words=FACT_WORDS,
        labels=sorted(LABELS),
        written=said.get("written", "") if problem else "rows" if rows is not None else "text",
        revision=said.get("revision") or working.mark,
        working=working,
        is_right=body is not None,
        is_stale=isinstance(problem, DraftChanged),
        was=rule.name if rule else said.get("was", "") if number is not None else "",
        standing=standing,
        problem=problem,
    )
