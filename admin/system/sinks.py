"""Sinks and the second audit device: what was sent, waits or was refused, and sending again."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from litestar import MediaType, Response, get, post, route
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.forms import Form, form_of
from admin.queries import Query
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.system.verdict import listed
from gateway.clock import HOUR_US
from gateway.configuration.disclosing import safe_url
from gateway.configuration.settings import Settings
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.store.evidence.deliveries import REFUSED, Deliveries, Run, SinkState


AT: Final = "/system/sinks"
ONE: Final = f"{AT}/{{sink:str}}/replay"
API: Final = "/api/system/sinks"
RUNS_MAX: Final = 100
LATE_US: Final = 60_000_000
HOURS: Final = (
    (1, "the last hour"),
    (6, "the last 6 hours"),
    (24, "the last day"),
    (168, "the last week"),
    (720, "the last 30 days"),
    (0, "all the time there was"),
)
US_MAX: Final = 2**62
SINCE: Final = Query(
    "since_us", "What would be sent again: all since then.", kind="integer", default="0"
)
_READS: Final = needs(Permission.SYSTEM_READ, "everywhere")
_SEES: Final = needs(Permission.SYSTEM_CONFIGURE, "everywhere")
_SENDS: Final = needs(Permission.SYSTEM_CONFIGURE, "everywhere", records="sink.replayed")


class SinkLine(Struct, frozen=True):
    """One sink: where it is, and how far it got."""

    name: str
    kind: str
    address: str
    """Of an address its host; of a file its path."""
    word: Literal["takes", "refuses", "late", "idle"]
    state: SinkState


class SecondDevice(Struct, frozen=True):
    """Whether the database takes records while a disk cannot, and what it took."""

    setting: str
    is_on: bool
    records: Mapping[str, int]
    """By worker: records that the database took and nobody else has."""


class SinksPage(Struct, frozen=True):
    """All sinks with their log."""

    verdict: str
    kind: Literal["good", "warn", "bad", "idle"]
    lines: tuple[SinkLine, ...]
    runs: tuple[Run, ...]
    second: SecondDevice
    read_us: int


class Again(Struct, frozen=True):
    """What would be sent to a sink again."""

    sink: str
    since_us: int
    records: Mapping[str, int]
    """By organisation."""

    @property
    def count(self) -> int:
        return sum(self.records.values())


class AgainOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Send a sink again what was written since then."""

    since_us: int


class Sent(Struct, frozen=True):
    """How many records come again."""

    records: int


class SinkDesk:
    """Reads how sinks do, and sends again; all may raise NotReady."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._deliveries = Deliveries(services.database, services.clock)

    async def read(self) -> SinksPage:
        settings, now_us = self._services.settings, self._services.clock.utc_us()
        states = await self._deliveries.states(settings.sinks)
        lines = tuple(_line(settings, state, now_us) for state in states)
        verdict, kind = _judged(lines)
        return SinksPage(
            verdict,
            kind,
            lines,
            tuple(await self._deliveries.runs(settings.sinks, RUNS_MAX)),
            SecondDevice(
                settings.audit.second_device,
                _is_second_on(settings),
                await self._deliveries.second_records(),
            ),
            now_us,
        )

    async def would_send(self, sink: str, since_us: int) -> Again:
        """What would come again.

        Raises:
            NotFoundException: there is no such sink.
        """
        self._require(sink, since_us)
        return Again(sink, since_us, await self._deliveries.would_send(sink, since_us))

    async def send(self, person: str, sink: str, since_us: int) -> int:
        """Send again, on record; how many records that is."""
        found = await self.would_send(sink, since_us)
        after = {"sink": sink, "since_us": since_us, "records": found.count}
        async with self._services.deeds.doing(person, "sink.replayed", "", after=after):
            return await self._deliveries.send_back(sink, since_us, person)

    def since_us(self, hours: int) -> int:
        """So many hours ago; 0 for the beginning."""
        return self._services.clock.utc_us() - hours * HOUR_US if hours else 0

    def _require(self, sink: str, since_us: int) -> None:
        if sink not in self._services.settings.sinks:
            raise NotFoundException
        if not 0 <= since_us <= US_MAX:
            raise RequestInvalid("this is no time", parameter="since_us")


def sink_routes(services: Services) -> list[Any]:
    """The pages, and the JSON behind them."""
    desk = SinkDesk(services)
    return [*_reading(services, desk), *_sending(services, desk), *_api(desk)]


def _reading(services: Services, desk: SinkDesk) -> list[Any]:
    @route(AT, http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def sinks(request: Asking) -> Response[str]:
        return await services.shell.page(
            request, "system/sinks.html", "sinks", found=await desk.read()
        )

    return [sinks]


def _sending(services: Services, desk: SinkDesk) -> list[Any]:
    @route(ONE, http_method=READING, media_type=MediaType.HTML, opt=_SEES)
    async def replay_page(request: Asking, sink: FromPath[str]) -> Response[str]:
        asked = request.query_params.get("hours", "1")
        hours = next((number for number, _ in HOURS if str(number) == asked), 1)
        again = await desk.would_send(sink, desk.since_us(hours))
        return await services.shell.page(
            request, "system/replay.html", "sinks", again=again, hours=hours, choices=HOURS
        )

    @post(ONE, status_code=SEE_OTHER, opt=_SENDS)
    async def replay(request: Asking, sink: FromPath[str]) -> Redirect:
        form: Form = await form_of(request)
        since_us = form.whole("since_us", US_MAX)
        if since_us is None:
            raise RequestInvalid("say since when", parameter="since_us")
        await desk.send(session_of(request).person.name, sink, since_us)
        return Redirect(AT, status_code=SEE_OTHER)

    return [replay_page, replay]


def _api(desk: SinkDesk) -> list[Any]:
    @get(API, opt=_READS)
    async def sinks_api() -> SinksPage:
        return await desk.read()

    @get(f"{API}/{{sink:str}}/replay", opt=_SEES)
    async def replay_preview_api(request: Asking, sink: FromPath[str]) -> Again:
        text = SINCE.of(request)
        if not (text.isascii() and text.isdigit() and len(text) < 20):  # noqa: PLR2004
            raise RequestInvalid("this is no time", parameter="since_us")
        return await desk.would_send(sink, int(text))

    @post(f"{API}/{{sink:str}}/replay", opt=_SENDS, status_code=200)
    async def replay_api(request: Asking, sink: FromPath[str]) -> Sent:
        order = await body_of(request, AgainOrder)
        return Sent(await desk.send(session_of(request).person.name, sink, order.since_us))

    return [sinks_api, replay_preview_api, replay_api]


def _line(settings: Settings, state: SinkState, now_us: int) -> SinkLine:
    sink = settings.sinks[state.sink]
    address = sink.file if sink.kind == "jsonl" else safe_url(sink.url, host_only=True)
    word: Literal["takes", "refuses", "late", "idle"] = "takes"
    if state.newest is not None and state.newest.state == REFUSED:
        word = "refuses"
    elif state.oldest_us and now_us - state.oldest_us > LATE_US:
        word = "late"
    elif state.newest is None:
        word = "idle"
    return SinkLine(state.sink, sink.kind, address, word, state)


def _judged(lines: tuple[SinkLine, ...]) -> tuple[str, Literal["good", "warn", "bad", "idle"]]:
    if not lines:
        return (
            "No sink is configured: records stay here, and on the auditors' own machines.",
            "idle",
        )
    refusing = [line.name for line in lines if line.word == "refuses"]
    late = [line.name for line in lines if line.word == "late"]
    waiting = sum(line.state.records_behind for line in lines)
    if refusing:
        verb = "refuses" if len(refusing) == 1 else "refuse"
        return f"{listed(refusing)} {verb} what is delivered; {waiting:,} records wait.", "bad"
    if late:
        verb = "is" if len(late) == 1 else "are"
        return f"{listed(late)} {verb} more than a minute behind; {waiting:,} records wait.", "warn"
    one = "The one sink has" if len(lines) == 1 else f"All {len(lines)} sinks have"
    if waiting:
        return f"{one} taken all but the newest {waiting:,} records.", "good"
    return f"{one} taken every record there is.", "good"


def _is_second_on(settings: Settings) -> bool:
    chosen = settings.audit.second_device
    is_shared = settings.database.url.startswith("postgresql")
    return chosen == "database" or (chosen == "auto" and is_shared)
