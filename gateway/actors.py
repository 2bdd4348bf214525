"""Who acts: the names that stand in records, and which two names count as two people. Pure.

Three kinds of names act: people of the control plane, users of the machine (`os:NAME`), and the
admin token, which is a way in that belongs to no person. Somebody who types a command may give
another name with it (`NAME, typed by os:USER`); that makes nobody a second person.
"""

from typing import Final


TOKENS_NAME: Final = "admin-token"
"""The name of whoever signs in with the token of the settings; it is no person's name."""
OF_MACHINE: Final = "os:"
"""Prefix of the name of a user who typed a command: no person's name holds a colon."""
_TYPED: Final = ", typed by "
ACTOR_CHARS_MAX: Final = 200
NOBODYS: Final = (
    "Two people are needed for this, and the admin token is nobody's: it neither asks nor agrees, "
    "and neither does whom it let in. Sign in as a person whom another person, or the operator "
    "(gatewright users password NAME), let in."
)


def same_person(one: str, other: str) -> bool:
    """Whether two names count as one person where two are needed.

    Names are compared without case and blanks, so that `Ann` cannot approve for `ann `. A user of
    the machine counts as the person of the same name: nobody can propose something in the pages and
    approve it from a shell. A typed name counts as the user who types it, and also as the person of
    that name. Anybody may hold the admin token, so it counts as everybody. So does an empty name: a
    row that does not say who asked has no second person.
    """
    first, second = _names_of(one), _names_of(other)
    return bool(first & second or {TOKENS_NAME, ""} & (first | second))


def typed_by(name: str, user: str) -> str:
    """The actor, if a user of the machine (`os:USER`) types a name of their choice."""
    if _name_of(name) == _name_of(user):
        return user
    by = f"{_TYPED}{user}"
    return f"{name.strip()[: ACTOR_CHARS_MAX - len(by)]}{by}"


def is_typed(actor: str) -> bool:
    """Whether somebody typed this name at the command line."""
    return f"{_TYPED}{OF_MACHINE}" in actor


def _names_of(actor: str) -> set[str]:
    """All names in it. The user's comes last, so that whatever was typed cannot hide it."""
    name, is_said, user = actor.rpartition(f"{_TYPED}{OF_MACHINE}")
    return {_name_of(name), _name_of(user)} if is_said else {_name_of(actor)}


def _name_of(actor: str) -> str:
    return actor.strip().casefold().removeprefix(OF_MACHINE)
