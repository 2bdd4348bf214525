"""Stored price files: what each would change, proposed by one person, decided by another.

A file is stored only if it is valid as a whole and every target has a price in it. Its page says
what it would change, at any time. Whoever may propose prices proposes it there, and somebody else,
who may approve them, puts it in force with a fresh proof.
"""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, Final

from litestar import MediaType, Response, get, post, route
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.forms import form_of
from admin.long_lists import list_of
from admin.models.price_diff import PriceDiff
from admin.models.price_keeping import PriceKeeper
from admin.models.prices import AT, DAYS, GIVEN, PriceDesk, given
from admin.queries import FIRST, PAGE_ROWS
from admin.second_person import refused_prices
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.errors import Forbidden, RequestInvalid
from gateway.oversight.access import Permission
from gateway.store.money.price_files import PriceFile, PriceOrder
from gateway.store.money.price_proposals import PriceProposal


LISTED_MAX: Final = 1_000
_HTML: Final = MediaType.HTML
_ONE: Final = f"{AT}/files/{{number:int}}"
_PROPOSAL: Final = f"{AT}/proposals/{{number:int}}"
_READS: Final = needs(Permission.SYSTEM_READ, "everywhere")
_KEEPS: Final = needs(Permission.SYSTEM_CONFIGURE, "everywhere", records="prices.kept")
_PROPOSES: Final = needs(Permission.PRICES_PROPOSE, "everywhere", records="prices.proposed")
_WITHDRAWS: Final = needs(Permission.PRICES_PROPOSE, "everywhere", records="prices.withdrawn")
_APPROVES: Final = needs(Permission.PRICES_APPROVE, "everywhere", records="prices.approved")
_DECLINES: Final = needs(Permission.PRICES_APPROVE, "everywhere", records="prices.declined")


class NewFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file to be kept."""

    text: str
    name: str = GIVEN


class Kept(Struct, frozen=True):
    """The number that it has."""

    number: int


class NewProposal(Struct, frozen=True, forbid_unknown_fields=True):
    """To be put in force; `seen` is the place of the order before it, 0 before the first."""

    reason: str
    seen: int


class Verdict(Struct, frozen=True, forbid_unknown_fields=True):
    """What is said of a proposal."""

    comment: str


class Given(Struct, frozen=True):
    """What was given and what was ordered, both the newest first.

    Where a part of the files is asked for, only the last hundred orders.
    """

    files: list[PriceFile]
    orders: list[PriceOrder]


def price_file_routes(services: Services) -> list[Any]:
    """The page of a file, what is done to it, and the JSON of both."""
    keeper = PriceKeeper(services)
    return [
        *_pages(services, keeper),
        *_proposal_pages(services, keeper),
        *_api(services, keeper),
        *_proposal_api(keeper),
    ]


async def _file_page(
    services: Services,
    keeper: PriceKeeper,
    request: Asking,
    number: int,
    error: RequestInvalid | Forbidden | None = None,
    reason: str = "",
) -> Response[str]:
    """The page of a file; with an error what was typed stands beside it."""
    comparison, prices = await keeper.compared(number), services.prices
    every = await keeper.proposals.of_file(number, LISTED_MAX)
    waiting = next((each for each in every if each.state == "waiting"), None)
    person = session_of(request).person
    status = error.status if error else 200
    return await services.shell.page(
        request,
        "models/price_file.html",
        "prices",
        status,
        number=number,
        file=await prices.file(number),
        in_force=await PriceDesk(services).in_force(),
        comparison=comparison,
        orders=await prices.orders_of(number, LISTED_MAX),
        proposals=every,
        waiting=waiting,
        refused=refused_prices(person, waiting) if waiting else "",
        others=await keeper.others(waiting.proposed_by if waiting else person.name),
        days=DAYS,
        wrong=error.message if error else "",
        reason=reason,
    )


def _pages(services: Services, keeper: PriceKeeper) -> list[Any]:
    @post(f"{AT}/files", media_type=_HTML, opt=_KEEPS, status_code=SEE_OTHER)
    async def keep(request: Asking) -> Response[Any]:
        name, text = await given(request)
        number = await keeper.keep(session_of(request).person, name, text)
        return Redirect(f"{AT}/files/{number}", status_code=SEE_OTHER)

    @route(_ONE, http_method=READING, media_type=_HTML, opt=_READS)
    async def price_file(request: Asking, number: FromPath[int]) -> Response[str]:
        return await _file_page(services, keeper, request, number)

    @post(f"{_ONE}/propose", media_type=_HTML, opt=_PROPOSES, status_code=SEE_OTHER)
    async def propose(request: Asking, number: FromPath[int]) -> Response[Any]:
        form = await form_of(request)
        reason, seen = form.text("reason"), form.whole("seen", 10**9) or 0
        try:
            await keeper.propose(session_of(request).person, number, reason, seen)
        except RequestInvalid as error:
            return await _file_page(services, keeper, request, number, error, reason)
        return Redirect(f"{AT}/files/{number}", status_code=SEE_OTHER)

    return [keep, price_file, propose]


def _proposal_pages(services: Services, keeper: PriceKeeper) -> list[Any]:
    async def deciding(
        request: Asking, number: int, deed: Awaitable[object], reason: str
    ) -> Response[Any]:
        """The file's page anew; with what went wrong on it, where something did."""
        try:
            await deed
        except (RequestInvalid, Forbidden) as error:
            found = await keeper.proposals.proposal(number)
            assert found is not None
            return await _file_page(services, keeper, request, found.file, error, reason)
        found = await keeper.proposals.proposal(number)
        assert found is not None
        return Redirect(f"{AT}/files/{found.file}", status_code=SEE_OTHER)

    @post(f"{_PROPOSAL}/approve", media_type=_HTML, opt=_APPROVES, status_code=SEE_OTHER)
    async def approve(request: Asking, number: FromPath[int]) -> Response[Any]:
        comment = (await form_of(request)).text("reason")
        person = session_of(request).person
        return await deciding(request, number, keeper.approve(person, number, comment), comment)

    @post(f"{_PROPOSAL}/decline", media_type=_HTML, opt=_DECLINES, status_code=SEE_OTHER)
    async def decline(request: Asking, number: FromPath[int]) -> Response[Any]:
        comment = (await form_of(request)).text("reason")
        person = session_of(request).person
        return await deciding(request, number, keeper.decline(person, number, comment), comment)

    @post(f"{_PROPOSAL}/withdraw", media_type=_HTML, opt=_WITHDRAWS, status_code=SEE_OTHER)
    async def withdraw(request: Asking, number: FromPath[int]) -> Response[Any]:
        person = session_of(request).person
        return await deciding(request, number, keeper.withdraw(person, number), "")

    return [approve, decline, withdraw]


def _api(services: Services, keeper: PriceKeeper) -> list[Any]:
    prices = services.prices

    @get("/api/prices/files", opt=_READS)
    async def list_files(request: Asking) -> Response[Given]:
        listed = await list_of(request, partial(prices.files, LISTED_MAX), prices.files_page)
        count_max = PAGE_ROWS if FIRST.is_in(request) else LISTED_MAX
        given = Given([*listed.content], await prices.orders(count_max))
        return Response(given, headers=listed.headers)

    @get("/api/prices/orders", opt=_READS)
    async def list_orders(request: Asking) -> Response[Sequence[PriceOrder]]:
        return await list_of(request, partial(prices.orders, LISTED_MAX), prices.orders_page)

    @get("/api/prices/files/{number:int}/compared", opt=_READS)
    async def compared_file(number: FromPath[int]) -> PriceDiff:
        comparison = await keeper.compared(number)
        if comparison.found is None:
            raise RequestInvalid(comparison.problem, parameter="number")
        return comparison.found

    @post("/api/prices/files", opt=_KEEPS)
    async def keep_file(request: Asking) -> Kept:
        order = await body_of(request, NewFile)
        person = session_of(request).person
        return Kept(await keeper.keep(person, order.name, order.text))

    return [list_files, list_orders, compared_file, keep_file]


def _proposal_api(keeper: PriceKeeper) -> list[Any]:
    @get("/api/prices/proposals", opt=_READS)
    async def list_proposals(request: Asking) -> Response[Sequence[PriceProposal]]:
        return await list_of(
            request, partial(keeper.proposals.newest, LISTED_MAX), keeper.proposals.page
        )

    @post("/api/prices/files/{number:int}/propose", opt=_PROPOSES)
    async def propose_file(request: Asking, number: FromPath[int]) -> PriceProposal:
        order = await body_of(request, NewProposal)
        return await keeper.propose(session_of(request).person, number, order.reason, order.seen)

    @post("/api/prices/proposals/{number:int}/approve", opt=_APPROVES, status_code=200)
    async def approve_proposal(request: Asking, number: FromPath[int]) -> PriceOrder:
        said = await body_of(request, Verdict)
        return await keeper.approve(session_of(request).person, number, said.comment)

    @post("/api/prices/proposals/{number:int}/decline", opt=_DECLINES, status_code=200)
    async def decline_proposal(request: Asking, number: FromPath[int]) -> PriceProposal:
        said = await body_of(request, Verdict)
        return await keeper.decline(session_of(request).person, number, said.comment)

    @post("/api/prices/proposals/{number:int}/withdraw", opt=_WITHDRAWS, status_code=200)
    async def withdraw_proposal(request: Asking, number: FromPath[int]) -> PriceProposal:
        return await keeper.withdraw(session_of(request).person, number)

    return [list_proposals, propose_file, approve_proposal, decline_proposal, withdraw_proposal]
