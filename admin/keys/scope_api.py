"""Scopes of keys (what they may do) over the JSON API: changed, proposed, decided."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.keys.reader import KeyReader
from admin.keys.scoping import KeyScopeOrder, ScopeImpact, ScopeKeeper, ScopeOutcome
from admin.long_lists import list_of
from admin.queries import PAGE_ROWS
from admin.services import Services
from admin.wrong_fields import taken_as
from gateway.oversight.access import Permission
from gateway.store.identity.key_scopes import KeyProposal
from gateway.store.pages import Part


_P = Permission
_ORGANISATION: Final = "/api/organisations/{organisation:str}"
_ALL: Final = f"{_ORGANISATION}/key_proposals"
_ONE: Final = f"{_ALL}/{{proposal:str}}"


class WideningVerdict(Struct, frozen=True, forbid_unknown_fields=True):
    """What is said of a proposal."""

    comment: str


class WaitingWidening(Struct, frozen=True):
    """A proposal that waits, with what it would have let through."""

    proposal: KeyProposal
    impact: ScopeImpact


def scope_api_routes(services: Services) -> list[Any]:
    """All routes; each says what it needs, and what it records."""
    reader, keeper = KeyReader(services), ScopeKeeper(services)

    @post(
        f"{_ORGANISATION}/keys/{{key_id:str}}/change",
        opt=needs(_P.KEYS_ISSUE, records="key.narrowed"),
        status_code=200,
    )
    async def change_key(
        request: Asking, organisation: FromPath[str], key_id: FromPath[str]
    ) -> ScopeOutcome:
        order = await body_of(request, KeyScopeOrder)
        line = await reader.line(organisation, key_id)
        return await keeper.change(session_of(request).person, organisation, line, order)

    @get(_ALL, opt=needs(_P.KEYS_READ))
    async def list_widenings(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[KeyProposal]]:
        whole = partial(keeper.scopes.of, organisation)
        return await list_of(request, whole, partial(keeper.scopes.page, organisation))

    @get(f"{_ALL}/waiting", opt=needs(_P.KEYS_READ))
    async def waiting_widenings(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[WaitingWidening]]:
        async def part(
            first: int = 0, limit: int = PAGE_ROWS, after: str = ""
        ) -> Part[WaitingWidening]:
            found = await keeper.scopes.waiting(organisation, first, limit, after)
            impacts = [await keeper.impact(organisation, each) for each in found.rows]
            return found.of(map(WaitingWidening, found.rows, impacts))

        async def whole() -> Sequence[WaitingWidening]:
            return (await part()).rows

        return await list_of(request, whole, part)

    return [change_key, list_widenings, waiting_widenings, *_deciding(keeper)]


def _deciding(keeper: ScopeKeeper) -> list[Any]:
    approves = needs(_P.KEYS_APPROVE, records="key.widened")
    declines = needs(_P.KEYS_APPROVE, records="key.widening_declined")
    withdraws = needs(_P.KEYS_ISSUE, records="key.widening_withdrawn")

    @post(f"{_ONE}/approve", opt=approves, status_code=200)
    async def approve_widening(
        request: Asking, organisation: FromPath[str], proposal: FromPath[str]
    ) -> KeyProposal:
        said = await body_of(request, WideningVerdict)
        person = session_of(request).person
        with taken_as("proposal", id="proposal", reason="comment"):
            return await keeper.approve(person, organisation, proposal, said.comment)

    @post(f"{_ONE}/decline", opt=declines, status_code=200)
    async def decline_widening(
        request: Asking, organisation: FromPath[str], proposal: FromPath[str]
    ) -> KeyProposal:
        said = await body_of(request, WideningVerdict)
        person = session_of(request).person
        with taken_as("proposal", id="proposal", reason="comment"):
            return await keeper.decline(person, organisation, proposal, said.comment)

    @post(f"{_ONE}/withdraw", opt=withdraws, status_code=200)
    async def withdraw_widening(
        request: Asking, organisation: FromPath[str], proposal: FromPath[str]
    ) -> KeyProposal:
        with taken_as("proposal", id="proposal", reason="comment"):
            return await keeper.withdraw(session_of(request).person, organisation, proposal)

    return [approve_widening, decline_widening, withdraw_widening]
