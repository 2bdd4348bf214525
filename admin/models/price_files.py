"""Price files that are kept, and putting one in force: what it changes first, then the order.

A file is kept only when it is right as a whole and every target has a price in it. Its page says
what it would change, at any time; who may set prices puts it in force there, with a fresh proof.
"""

from typing import Any, Final

from litestar import MediaType, Request, Response, get, post, route
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.bodies import body_of
from admin.forms import form_of
from admin.models.price_diff import PriceDiff
from admin.models.prices import AT, DAYS, GIVEN, Comparison, PriceDesk, given
from admin.services import Services
from admin.sign_in import READING, SEE_OTHER
from gateway.access import Permission, Person
from gateway.errors import RequestInvalid
from gateway.price_file import configured_prices
from gateway.store.money.price_files import CONFIGURED, OrderedMeanwhile, PriceFile, PriceOrder


CONFLICT: Final = 409
LISTED_MAX: Final = 1_000
REASON_CHARS_MAX: Final = 1_000
_HTML: Final = MediaType.HTML
_ONE: Final = f"{AT}/files/{{number:int}}"
_READS: Final = needs(Permission.SYSTEM_READ, "everywhere")
_KEEPS: Final = needs(Permission.SYSTEM_CONFIGURE, "everywhere", records="prices.kept")
_ORDERS: Final = needs(Permission.PRICES_SET, "everywhere", records="prices.ordered")
Asked = Request[Any, Any, Any]


class NewFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file to be kept."""

    text: str
    name: str = GIVEN


class Kept(Struct, frozen=True):
    """The number that it has."""

    number: int


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """To be put in force; `seen` is the place of the order before it, 0 before the first."""

    reason: str
    seen: int


class Given(Struct, frozen=True):
    """What was given and what was ordered, both the newest first."""

    files: list[PriceFile]
    orders: list[PriceOrder]


class PriceKeeper:
    """Keeps files and puts them in force for whoever is signed in; a deed is recorded first."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._desk = PriceDesk(services)

    async def compared(self, number: int) -> Comparison:
        """What a file would change now; raises NotFoundException."""
        if number == CONFIGURED:
            return await self._desk.with_prices(await configured_prices(self._services.settings))
        try:
            return await self._desk.with_prices(await self._services.prices.text(number))
        except RequestInvalid:
            raise NotFoundException from None

    async def keep(self, person: Person, name: str, text: str) -> int:
        """Keep a file that could be put in force; raises RequestInvalid where it could not."""
        comparison = await self._desk.with_text(text, name)
        _check(comparison)
        after = {"name": name[:100], "length_bytes": len(text.encode())}
        async with self._services.deeds.doing(person.name, "prices.kept", "", after=after):
            return await self._services.prices.add(name, text, person.name)

    async def order(self, person: Person, number: int, reason: str, seen: int) -> PriceOrder:
        """Put a file in force.

        Raises:
            NotFoundException: there is none of this number.
            OrderedMeanwhile: something else was put in force since it was looked at.
            RequestInvalid: it is in force, has no reason, or leaves a target without a price.
        """
        services = self._services
        now, comparison = await services.prices.standing(), await self.compared(number)
        _check(comparison)
        if not reason or len(reason) > REASON_CHARS_MAX:
            raise RequestInvalid("say why: it stands in the history", parameter="reason")
        if now.place != seen:
            raise OrderedMeanwhile("Other prices were put in force meanwhile.", parameter="seen")
        if now.number == number:
            raise RequestInvalid("these prices are in force", parameter="number")
        before = {"number": now.number, "place": now.place}
        after = {"number": number, "place": seen + 1, "reason": reason}
        found = comparison.found
        if found is not None:
            after["last_days_more_microusd"] = found.would_microusd - found.paid_microusd
        async with services.deeds.doing(
            person.name, "prices.ordered", "", before=before, after=after
        ):
            return await services.prices.order(number, person.name, reason, seen=seen)


def price_file_routes(services: Services) -> list[Any]:
    """The page of a file, what is done to it, and the JSON of both."""
    return [*_pages(services), *_api(services)]


def _pages(services: Services) -> list[Any]:
    keeper, desk, shell = PriceKeeper(services), PriceDesk(services), services.shell

    async def showing(
        request: Asked, number: int, wrong: str = "", reason: str = "", status: int = 400
    ) -> Response[str]:
        comparison = await keeper.compared(number)
        return await shell.page(
            request,
            "models/price_file.html",
            "prices",
            status if wrong else 200,
            number=number,
            file=await services.prices.file(number),
            in_force=await desk.in_force(),
            comparison=comparison,
            orders=[
                each for each in await services.prices.orders(LISTED_MAX) if each.number == number
            ],
            days=DAYS,
            wrong=wrong,
            reason=reason,
        )

    @post(f"{AT}/files", media_type=_HTML, opt=_KEEPS, status_code=SEE_OTHER)
    async def keep(request: Asked) -> Response[Any]:
        name, text = await given(request)
        number = await keeper.keep(session_of(request).person, name, text)
        return Redirect(f"{AT}/files/{number}", status_code=SEE_OTHER)

    @route(_ONE, http_method=READING, media_type=_HTML, opt=_READS)
    async def price_file(request: Asked, number: FromPath[int]) -> Response[str]:
        return await showing(request, number)

    @post(f"{_ONE}/force", media_type=_HTML, opt=_ORDERS, status_code=SEE_OTHER)
    async def put_in_force(request: Asked, number: FromPath[int]) -> Response[Any]:
        form = await form_of(request)
        reason, seen = form.text("reason"), form.whole("seen", 10**9) or 0
        try:
            await keeper.order(session_of(request).person, number, reason, seen)
        except OrderedMeanwhile as error:
            return await showing(request, number, error.message, reason, CONFLICT)
        except RequestInvalid as error:
            return await showing(request, number, error.message, reason)
        return Redirect(AT, status_code=SEE_OTHER)

    return [keep, price_file, put_in_force]


def _api(services: Services) -> list[Any]:
    keeper = PriceKeeper(services)

    @get("/api/prices/files", opt=_READS)
    async def list_files() -> Given:
        prices = services.prices
        return Given(await prices.files(LISTED_MAX), await prices.orders(LISTED_MAX))

    @get("/api/prices/files/{number:int}/compared", opt=_READS)
    async def compared_file(number: FromPath[int]) -> PriceDiff:
        comparison = await keeper.compared(number)
        if comparison.found is None:
            raise RequestInvalid(comparison.problem, parameter="number")
        return comparison.found

    @post("/api/prices/files", opt=_KEEPS)
    async def keep_file(request: Asked) -> Kept:
        order = await body_of(request, NewFile)
        person = session_of(request).person
        return Kept(await keeper.keep(person, order.name, order.text))

    @post("/api/prices/files/{number:int}/force", opt=_ORDERS, status_code=200)
    async def order_file(request: Asked, number: FromPath[int]) -> PriceOrder:
        order = await body_of(request, Order)
        person = session_of(request).person
        return await keeper.order(person, number, order.reason.strip(), order.seen)

    return [list_files, compared_file, keep_file, order_file]


def _check(comparison: Comparison) -> None:
    """Raises RequestInvalid where a worker would refuse such a file."""
    if comparison.found is None:
        raise RequestInvalid(comparison.problem, parameter="text")
    unserved = comparison.found.unserved
    if unserved:
        raise RequestInvalid(f"{', '.join(unserved)} would have no price", parameter="text")
