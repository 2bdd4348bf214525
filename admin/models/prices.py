"""Prices in force, and what another price file would change.

Nothing is fetched: the other file is the one of this release, or one that somebody pastes or picks.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from litestar import MediaType, Response, get, post, route
from litestar.datastructures import UploadFile
from litestar.enums import RequestEncodingType
from msgspec import Struct

from admin.access import needs
from admin.asking import Asking
from admin.bodies import body_of
from admin.forms import form_of
from admin.interrupted import FILE_NAME, FILE_TEXT
from admin.models.price_diff import PriceDiff, Used, compare
from admin.models.price_entries import Begun, Entries, begun_with, entries_of
from admin.queries import Query, after_of, first_of
from admin.services import Services
from admin.sign_in.pages import READING
from gateway.configuration.texts import TEXT_ENCODING
from gateway.errors import ConfigurationInvalid, RequestInvalid
from gateway.money.catalogue import Catalogue, shipped_catalogue, shipped_text
from gateway.money.price_file import PRICE_FILE_BYTES_MAX, PriceText, catalogue_of
from gateway.oversight.access import Permission
from gateway.store.money.price_proposals import PriceProposals


AT: Final = "/models/prices"
DAYS: Final = 30
GIVEN: Final = "the file"
SHIPPED: Final = "shipped"
FILES_SHOWN: Final = 20
ORDERS_SHOWN: Final = 20
NAME_CHARS_MAX: Final = 100
ROLLUP_BATCHES: Final = 2
MODEL: Final = Query(
    "model",
    "The model whose price is to be changed: the form begins with its entry.",
    length_max=100,
)
NOTHING: Final = Begun()
_PICKED_NAME: Final = f"file{FILE_NAME}"
_PICKED_TEXT: Final = f"file{FILE_TEXT}"
_HTML: Final = MediaType.HTML
_READS: Final = needs(Permission.SYSTEM_READ, "everywhere")
_COMPARES: Final = needs(Permission.SYSTEM_READ, "everywhere", records="nothing: a comparison")


class OtherPrices(Struct, frozen=True, forbid_unknown_fields=True):
    """A price file as text."""

    text: str


class InForce(Struct, frozen=True):
    """Where prices come from now; `problem` is why they cannot be read."""

    file: str
    own: tuple[str, ...]
    """Models whose price is the enterprise's own."""
    shipped: int
    newest: str
    """The newest date of all prices."""
    oldest: str
    problem: str = ""
    number: int = 0
    """Of the file in the database; 0 where the configuration names it."""
    since_us: int = 0
    by: str = ""
    """Who agreed to it."""
    reason: str = ""
    proposed_by: str = ""
    """Empty where it was put in force by one person, before that took two."""
    place: int = 0
    """Of the order that put it in force."""


class Comparison(Struct, frozen=True):
    """What a page shows of another file; `problem` is why it was not taken."""

    name: str
    found: PriceDiff | None = None
    problem: str = ""


def price_routes(services: Services) -> list[Any]:
    """The page, a comparison, and both as JSON."""
    desk, shell = PriceDesk(services), services.shell

    async def showing(request: Asking, found: Comparison | None, begun: Begun) -> Response[str]:
        place = (first_of(request), ORDERS_SHOWN, after_of(request))
        orders = await services.prices.orders_page(*place)
        return await shell.page(
            request,
            "models/prices.html",
            "prices",
            400 if found is not None and found.problem else 200,
            in_force=await desk.in_force(),
            files=await services.prices.files_page(0, FILES_SHOWN),
            orders=orders,
            proposers=await desk.proposals.proposers([each.place for each in orders.rows]),
            waiting=(await desk.proposals.waiting()).rows,
            comparison=found,
            entries=await desk.entries(),
            begun=begun,
            text=begun.text,
            days=DAYS,
        )

    @route(AT, http_method=READING, media_type=_HTML, opt=_READS)
    async def prices(request: Asking) -> Response[str]:
        is_shipped = request.query_params.get("with") == SHIPPED
        found = await desk.with_shipped() if is_shipped else None
        return await showing(request, found, await desk.begun_with(MODEL.of(request)))

    @post(AT, media_type=_HTML, opt=_COMPARES, status_code=200)
    async def compared(request: Asking) -> Response[str]:
        try:
            name, text = await given(request)
        except RequestInvalid as error:
            return await showing(request, Comparison(GIVEN, problem=error.message), NOTHING)
        return await showing(request, await desk.with_text(text, name), Begun(text=text))

    @get("/api/prices", opt=_READS)
    async def prices_api() -> InForce:
        return await desk.in_force()

    @post("/api/prices/compared", opt=_COMPARES, status_code=200)
    async def compared_api(request: Asking) -> PriceDiff:
        order = await body_of(request, OtherPrices)
        comparison = await desk.with_text(order.text, GIVEN)
        if comparison.found is None:
            raise RequestInvalid(comparison.problem, parameter="text")
        return comparison.found

    return [prices, compared, prices_api, compared_api]


class PriceDesk:
    """Compares catalogues for whoever asks; changes nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._settings = services.settings
        self.proposals = PriceProposals(services.database, services.clock)

    async def in_force(self) -> InForce:
        """Where today's prices come from."""
        shipped, order = shipped_catalogue(), await self._services.prices.standing()
        name, count = self._settings.prices.file, len(shipped.models)
        by = await self.proposals.proposers([order.place])
        proposed_by = by.get(order.place, "")
        told = (order.number, order.utc_us, order.actor, order.reason, proposed_by, order.place)
        try:
            prices = await self._services.prices.in_force(self._settings)
            name = prices.source if prices.number else name
            now = prices.catalogue
        except ConfigurationInvalid as error:
            return InForce(name, (), count, "", "", error.message, *told)
        dates = [entry.as_of for entry in now.models.values()]
        own = _own(prices, shipped, now)
        return InForce(name, own, count, max(dates), min(dates), "", *told)

    async def entries(self) -> Entries:
        """Models with a price; none where the prices in force cannot be read."""
        try:
            models = (await self._services.prices.in_force(self._settings)).catalogue.models
        except ConfigurationInvalid:
            return Entries((), ())
        return entries_of(models, self._asked_by_targets().values())

    async def begun_with(self, model: str) -> Begun:
        """The file in force with the entry of a model in it; nothing where none is named.

        Raises:
            RequestInvalid: there is no such entry, or the prices in force cannot be read.
        """
        if not model:
            return NOTHING
        try:
            prices = await self._services.prices.in_force(self._settings)
            catalogue_of(prices.text, prices.source)
        except ConfigurationInvalid as error:
            reason = f"The prices in force cannot be read: {error.message}"
            raise RequestInvalid(reason, parameter="model") from error
        return begun_with(model, prices.text.decode(TEXT_ENCODING), shipped_text())

    def _asked_by_targets(self) -> dict[str, str]:
        """By target the entry that it has."""
        targets = self._settings.targets.items()
        return {name: target.catalogue or target.model for name, target in targets}

    async def with_prices(self, prices: PriceText) -> Comparison:
        """With a file that was given before, or with what the configuration names."""
        name = prices.source or "the prices of this release"
        try:
            return await self._compared(prices.catalogue, name)
        except ConfigurationInvalid as error:
            return Comparison(name, problem=error.message)

    async def with_shipped(self) -> Comparison:
        """With the prices of this release alone."""
        return await self._compared(shipped_catalogue(), "the prices of this release")

    async def with_text(self, text: str, name: str) -> Comparison:
        """With a file as it would be in force."""
        if not text.strip():
            return Comparison(name, problem="There is nothing in it: paste a file, or pick one.")
        if len(text.encode()) > PRICE_FILE_BYTES_MAX:
            return Comparison(name, problem=f"It is longer than {PRICE_FILE_BYTES_MAX} bytes.")
        try:
            after = catalogue_of(text.encode(), name)
        except ConfigurationInvalid as error:
            return Comparison(name, problem=error.message)
        return await self._compared(after, name)

    async def _compared(self, after: Catalogue, name: str) -> Comparison:
        try:
            before = (await self._services.prices.in_force(self._settings)).catalogue
        except ConfigurationInvalid as error:
            return Comparison(name, problem=f"The prices in force cannot be read: {error.message}")
        targets = self._asked_by_targets()
        return Comparison(name, compare(before, after, targets, await self._used()))

    async def _used(self) -> list[Used]:
        """What each target was used for in the last days, of all organisations."""
        services = self._services
        await services.rollup.catch_up(ROLLUP_BATCHES)
        today = datetime.fromtimestamp(services.clock.utc_us() / 1e6, UTC).date()
        # A day more on both sides: an organisation's days are those of its own time zone.
        since, until = today - timedelta(days=DAYS), today + timedelta(days=1)
        sums: dict[str, list[int]] = {}
        for organisation in await services.people.organisations():
            rows = await services.figures.by_day(
                organisation, since.isoformat(), until.isoformat(), ["target"]
            )
            for row in rows:
                added = sums.setdefault(row.group[0], [0, 0, 0, 0, 0])
                numbers = (row.requests, row.input_tokens, row.output_tokens, row.cost_microusd)
                for index, number in enumerate((*numbers, row.unpriced)):
                    added[index] += number
        return [Used(target, *numbers) for target, numbers in sorted(sums.items()) if target]


def _own(prices: PriceText, shipped: Catalogue, now: Catalogue) -> tuple[str, ...]:
    if not prices.text:
        return ()
    return tuple(
        name for name, entry in sorted(now.models.items()) if shipped.models.get(name) != entry
    )


async def given(request: Asking) -> tuple[str, str]:
    """The name and the text of the file that a form sends; one that was picked goes first.

    Raises:
        RequestInvalid: it is no text.
    """
    if request.content_type[0] != RequestEncodingType.MULTI_PART:
        # Other fields are cut: here what is cut would be another file, or none.
        form = await form_of(request, PRICE_FILE_BYTES_MAX + 1)
        if picked_name := form.text(_PICKED_NAME):
            # It waited for a proof, in fields whose line ends a browser writes its own way.
            text = form.raw(_PICKED_TEXT).replace("\r\n", "\n")
            return picked_name[:NAME_CHARS_MAX], text
        return form.text("name")[:NAME_CHARS_MAX] or GIVEN, form.raw("text")
    fields = await request.form()
    picked, pasted = fields.get("file"), fields.get("text", "")
    if isinstance(picked, UploadFile) and picked.filename:
        raw = await picked.read()
        try:
            return picked.filename[:NAME_CHARS_MAX], raw.decode()
        except UnicodeDecodeError:
            raise RequestInvalid("This file is no UTF-8 text.") from None
    name = fields.get("name")
    said = name[:NAME_CHARS_MAX] if isinstance(name, str) else ""
    return said or GIVEN, pasted if isinstance(pasted, str) else ""
