"""Who acts, by the name that stands in records, and which two names count as two people. Pure.

Three kinds of names act: people of the control plane, users of the machine (`os:NAME`), and the
admin token, which is a way in that belongs to no person.
"""

from typing import Final


TOKENS_NAME: Final = "admin-token"
"""Whoever signs in with the token of the settings; no name of anybody's."""
OF_MACHINE: Final = "os:"
"""Before the name of whoever typed a command: no person's name holds a colon."""
NOBODYS: Final = (
    "Two people are needed for this, and the admin token is nobody's: it neither asks nor agrees, "
    "and neither does whom it let in. Sign in as a person whom another person, or the operator "
    "(gatewright users password NAME), let in."
)


def same_person(one: str, other: str) -> bool:
    """Whether two names count as one person where two are needed.

    Names are compared without case and blanks, so that `Ann` does not approve `ann `. A user of the
    machine counts as the person of the same name: who proposed something in the pages does not
    approve it from a shell. Anybody may hold the admin token: it counts as everybody.
    """
    names = _name_of(one), _name_of(other)
    return TOKENS_NAME in names or names[0] == names[1]


def _name_of(actor: str) -> str:
    return actor.strip().casefold().removeprefix(OF_MACHINE)
