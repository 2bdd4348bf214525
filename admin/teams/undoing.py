"""Undoes a change of a team: the form of the inverse change, filled in. Pure.

Forms that began from a revision go back from the one that they made: a change by somebody else in
between is not overwritten.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Final

from msgspec.structs import asdict

from admin.forms import MICRO, Form
from admin.undo import ABSENT, EXPECTS, PRESENT, Undo
from gateway.store.identity.teams import Team


Way = Callable[[Team, Form], Undo | None]
"""From a team before the deed, and the form of the deed; None where it changed nothing."""


def _form(team: Team, part: str, said: str, **fields: object) -> Undo:
    path = f"/o/{team.organisation}/teams/{team.name}/{part}"
    return Undo(said, path, {name: str(value) for name, value in fields.items()})


def _changed(team: Team, _: Form) -> Undo:
    said = f"{team.title}: display name or owner changed."
    return _form(
        team, "change", said, title=team.title, owner=team.owner, revision=team.revision + 1
    )


def _defaults(team: Team, _: Form) -> Undo:
    given = {name: "" if value is None else value for name, value in asdict(team.defaults).items()}
    if team.defaults.budget_microusd is not None:
        given["budget_microusd"] = f"{Decimal(team.defaults.budget_microusd) / MICRO:f}"
    said = f"{team.title}: the defaults of new keys were changed."
    return _form(team, "defaults", said, **given, revision=team.revision + 1)


def _archived(team: Team, _: Form) -> Undo:
    said = f"{team.title} was archived: it gets no new keys."
    return _form(team, "restore", said, revision=team.revision + 1)


def _restored(team: Team, _: Form) -> Undo:
    said = f"{team.title} was restored."
    return _form(team, "archive", said, revision=team.revision + 1)


def _added(team: Team, form: Form) -> Undo | None:
    member = form.text("person")
    if member in team.members:
        return None
    said = f"{member} was added to {team.title}."
    return _form(team, "members/remove", said, person=member, **{EXPECTS: PRESENT})


def _removed(team: Team, form: Form) -> Undo | None:
    member = form.text("person")
    if member not in team.members:
        return None
    said = f"{member} was removed from {team.title}."
    return _form(team, "members", said, person=member, **{EXPECTS: ABSENT})


WAYS_BACK: Final[dict[str, Way]] = {
    "team.changed": _changed,
    "team.defaults_set": _defaults,
    "team.archived": _archived,
    "team.restored": _restored,
    "team.member_added": _added,
    "team.member_removed": _removed,
}
