"""Turns what somebody types into the finder into ways that lead somewhere. Pure.

The way to something weighty leads to the page that says what it would do, never to the deed itself.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct

from gateway.oversight.access import Permission, Person, allows


Kind = Literal["action", "request", "batch", "file", "key", "team", "policy", "person", "engine"]
LENGTH_MAX: Final = 200
WAYS_MAX: Final = 12
_REQUEST: Final = re.compile(r"req_[0-9a-z]{1,40}", re.ASCII)
_BATCH: Final = re.compile(r"(?:msg)?batch_[0-9A-Za-z_-]{1,100}", re.ASCII)
_FILE: Final = re.compile(r"file-[0-9A-Za-z_-]{1,100}", re.ASCII)
_UPSTREAM: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{5,127}", re.ASCII)
_P = Permission


class Way(Struct, frozen=True):
    """One line of the finder."""

    kind: Kind
    title: str
    href: str
    detail: str = ""
    asks_first: bool = False
    """Whether what follows is weighty: its page says what will happen before it does."""


class Action(Struct, frozen=True):
    """Something to begin that belongs to no object yet."""

    title: str
    path: str
    needs: Permission
    is_everywhere: bool = False


ACTIONS: Final = (
    Action("Issue a new key", "/o/{organisation}/keys/new", _P.KEYS_ISSUE),
    Action("Make a new team", "/o/{organisation}/new-team", _P.KEYS_ISSUE),
    Action("Draft a policy rule", "/o/{organisation}/policies/new", _P.POLICIES_EDIT),
    Action("Ask to reveal content", "/o/{organisation}/compliance/reveals/new", _P.AUDIT_READ),
    Action("Make an evidence pack", "/o/{organisation}/compliance/packs/new", _P.AUDIT_EXPORT),
    Action("Invite a person", "/new-person", _P.PEOPLE_MANAGE, is_everywhere=True),
    Action("See lost workers and retire one", "/system/gone", _P.SYSTEM_READ, is_everywhere=True),
    Action(
        "See engines, drain or resume one", "/models/engine", _P.SYSTEM_READ, is_everywhere=True
    ),
    Action("Run a full check of the log", "/o/{organisation}/integrity", _P.AUDIT_READ),
)


class Asked(Struct, frozen=True):
    """Words that must all be there, and perhaps the beginning of a request's id, or a batch's."""

    text: str
    words: tuple[str, ...] = ()
    request_id: str = ""
    batch_id: str = ""
    """A whole one, if it is any; and so the others."""
    file_id: str = ""
    upstream_name: str = ""
    """What an upstream may call a call, a batch or a file."""

    def takes(self, *said: str) -> bool:
        """Whether every word is in something that is said of an object."""
        text = " ".join(said).casefold()
        return all(word in text for word in self.words)


def asked(text: str) -> Asked:
    """Read what was typed; too much of it is cut, and nothing of it is refused."""
    text = text[:LENGTH_MAX].strip()
    words = tuple(text.casefold().split())
    found = _REQUEST.fullmatch(words[0]) if len(words) == 1 else None
    whole = (pattern.fullmatch(text) for pattern in (_BATCH, _FILE, _UPSTREAM))
    ids = (each[0] if each is not None else "" for each in whole)
    return Asked(text, words, found[0] if found else "", *ids)


def is_batch_id(text: str) -> bool:
    """Whether it is one of ours, by its form."""
    return _BATCH.fullmatch(text) is not None


def may(person: Person, needs: Permission, organisation: str, *, is_everywhere: bool) -> bool:
    return allows(person, needs, None if is_everywhere else organisation)


def actions_for(question: Asked, person: Person, organisation: str) -> list[Way]:
    """What this person may begin here."""
    return [
        Way("action", each.title, each.path.replace("{organisation}", organisation))
        for each in ACTIONS
        if may(person, each.needs, organisation, is_everywhere=each.is_everywhere)
        and question.takes(each.title)
    ]


def request_way(question: Asked, organisation: str) -> list[Way]:
    """The requests whose id begins as it was typed."""
    if not question.request_id:
        return []
    href = f"/o/{organisation}/traffic?q={question.request_id}"
    return [Way("request", f"Requests {question.request_id}…", href)]


def ways_of(
    question: Asked,
    kind: Kind,
    name: str,
    href: str,
    *,
    said: Iterable[str] = (),
    verbs: Sequence[tuple[str, str]] = (),
    detail: str = "",
) -> list[Way]:
    """The way to an object, and those to what can be done with it, where the words fit.

    `verbs` are pairs of a word and the page that asks first.
    """
    found = []
    texts = (kind, name, detail, *said)
    if question.takes("open", *texts):
        found.append(Way(kind, name, href, detail))
    found += [
        Way(kind, f"{verb} {name} …", page, detail, asks_first=True)
        for verb, page in verbs
        # Only who says the verb is offered it: a name alone means its page.
        if any(word in verb.casefold() for word in question.words) and question.takes(verb, *texts)
    ]
    return found
