"""The test pane: what a document would decide for a request that somebody describes."""

from collections.abc import Mapping

from msgspec import Struct

from admin.policy_room.asking import PREFIX, Asked
from admin.policy_room.places import Place
from admin.policy_room.proposing import Offer, case_of, offer_of
from admin.policy_room.room import PolicyRoom
from gateway.errors import RequestInvalid
from policies.explain import Explanation
from policies.program import PolicyDocument


class Tried(Struct, frozen=True):
    """What came out, or what was wrong with the question."""

    asked: Asked | None = None
    explanation: Explanation | None = None
    problem: str = ""
    field: str = ""
    """The field that is wrong."""
    case: Offer | None = None
    """The same as a test case of the document; None where it cannot be one."""


def wants_answer(said: Mapping[str, str]) -> bool:
    """Whether a form asks about a request at all."""
    return any(name in ("request", "body") or name.startswith(PREFIX) for name in said)


async def tried(
    room: PolicyRoom,
    organisation: str,
    place: Place,
    document: PolicyDocument | None,
    said: Mapping[str, str],
    text: str = "",
    *,
    is_any: bool = False,
) -> Tried | None:
    """What the document would decide in its level's place; None when nothing is asked.

    `text` is the document's own, in whose form a test case is offered. `is_any` says that no
    document is one as well: then the other levels decide alone.
    """
    if not wants_answer(said):
        return None
    if document is None and not is_any:
        return Tried(problem="the document has mistakes; nothing can be decided under it")
    try:
        asked = await room.asker.ask(organisation, said)
    except RequestInvalid as error:
        return Tried(problem=error.message, field=error.parameter or "")
    explanation = await room.weigher.explain(place, document, asked.facts)
    case = case_of(document, asked.facts) if document else None
    return Tried(asked, explanation, case=offer_of(case, text))
