"""Makes evidence packs, one at a time, in the background of the admin process.

A pack does not depend on the page that started it. One that was being written when the process
ended says so.
"""

import asyncio
from typing import Final

from litestar.exceptions import NotFoundException
from msgspec import Struct
from msgspec.structs import replace

from admin.services import Services
from gateway.audit.disk import Disk
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.proving.integrator import LogForked, TreeDamaged
from gateway.audit.proving.pack import PackRefused
from gateway.errors import GatewrightError, RequestInvalid
from gateway.oversight.deeds import OPERATORS
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.packing import (
    KEPT_US,
    RECORDS_MAX,
    EvidencePack,
    EvidencePacks,
    PackOrder,
    make_pack,
)
from gateway.store.pages import Part
from gateway.store.policies.documents import PolicyStore


WAITING_MAX: Final = 8
RECIPIENT_CHARS_MAX: Final = 200
TIME_US_MAX: Final = 221_876_000_000 * 1_000_000
"""In the year 9000: every zone has it, and what a day later is."""
ENDED: Final = "the control plane was stopped while it was written; create it again"


LOGS: Final = ("requests", "deeds")


class Wish(Struct, frozen=True, forbid_unknown_fields=True):
    """A pack as somebody asks for it; times in microseconds UTC, the end exclusive."""

    log: str
    """`requests`: the organisation's own; `deeds`: what operators did, of all organisations."""
    since_us: int
    until_us: int
    recipient: str
    with_policies: bool = True


class Span(Struct, frozen=True):
    """What a pack would hold: the numbers of the first and the last record, 0 for none."""

    first: int = 0
    last: int = 0

    @property
    def records(self) -> int:
        return self.last - self.first + 1 if self.last else 0


class PackDesk:
    """One for the whole process."""

    def __init__(self, services: Services, parts: Integration) -> None:
        settings = services.settings
        self._settings = settings
        self._parts = parts
        self._clock = services.clock
        self._deeds = services.deeds
        self._policies = PolicyStore(services.database, services.clock)
        self._folder = settings.path(settings.audit.pack_directory)
        self.store = EvidencePacks(services.database, self._folder, services.clock)
        self._turn = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._done: dict[str, tuple[int, int]] = {}

    async def span(self, organisation: str, wish: Wish) -> Span:
        """What a pack would hold, if it were made now."""
        await self._parts.projector.catch_up()
        found = await self._parts.sink.span(
            _log_of(organisation, wish), wish.since_us, wish.until_us
        )
        return Span(*found) if found else Span()

    async def ask(self, actor: str, organisation: str, wish: Wish) -> EvidencePack:
        """Begin one, or let it wait for its turn.

        Raises:
            RequestInvalid: too many wait already, or the wish is none.
        """
        if len(self._tasks) >= WAITING_MAX:
            raise RequestInvalid("Too many packs are being made; wait for one to finish.")
        if wish.log not in LOGS:
            raise RequestInvalid(f"The log is one of {', '.join(LOGS)}.", parameter="log")
        if wish.until_us <= wish.since_us:
            raise RequestInvalid("The period ends before it begins.", parameter="until")
        if wish.since_us < 0 or wish.until_us > TIME_US_MAX:
            raise RequestInvalid("A time is in microseconds since 1970.", parameter="since")
        pack = EvidencePack(
            id=self.store.new_id(),
            organisation=organisation,
            log=_log_of(organisation, wish),
            recipient=recipient_of(wish.recipient),
            since_us=wish.since_us,
            until_us=wish.until_us,
            with_policies=wish.with_policies,
            made_by=actor,
            made_us=self._clock.utc_us(),
            state="waiting",
        )
        after = {"pack": pack.id, "log": pack.log, "recipient": pack.recipient}
        period = {"since_us": pack.since_us, "until_us": pack.until_us}
        async with self._deeds.doing(actor, "pack.asked", organisation, after=after | period):
            await self.store.ask(pack)
        self._tasks[pack.id] = asyncio.create_task(self._make(pack))
        self._tasks[pack.id].add_done_callback(lambda _: self._tasks.pop(pack.id, None))
        return pack

    async def packs(self, organisation: str) -> list[EvidencePack]:
        return [self._seen(each) for each in await self.store.packs(organisation)]

    async def page(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[EvidencePack]:
        """Some of all of them, the newest first."""
        part = await self.store.page(organisation, first, limit, after)
        return part.of(map(self._seen, part.rows))

    async def pack(self, organisation: str, pack_id: str) -> EvidencePack:
        found = await self.store.pack(organisation, pack_id)
        if found is None:
            raise NotFoundException
        return self._seen(found)

    def progress(self, pack: EvidencePack) -> tuple[int, int]:
        """How many records are written, and of how many."""
        return self._done.get(pack.id, (0, 0))

    def _seen(self, pack: EvidencePack) -> EvidencePack:
        if pack.state == "ready" and self._clock.utc_us() - pack.made_us > KEPT_US:
            return replace(pack, state="expired")  # Its file goes within the hour.
        if pack.state in ("waiting", "writing") and pack.id not in self._tasks:
            return replace(pack, state="failed", problem=ENDED)
        return pack

    async def _make(self, pack: EvidencePack) -> None:
        async with self._turn:
            try:
                await self._write(pack)
            except (PackRefused, LogForked, TreeDamaged, ProjectionBroken) as error:
                await self._failed(pack, str(error))
            except GatewrightError as error:
                await self._failed(pack, error.message)
            except OSError as error:
                await self._failed(pack, f"it cannot be written: {error.strerror}")
            finally:
                self._done.pop(pack.id, None)

    async def _write(self, pack: EvidencePack) -> None:
        await self.store.drop_expired()
        await asyncio.to_thread(Disk().make_folder, self._folder)
        await self.store.change(pack.id, state="writing")
        order = PackOrder(
            organisation=pack.log,
            since_us=pack.since_us,
            until_us=pack.until_us,
            recipient=pack.recipient,
            records_max=RECORDS_MAX,
            policies=self._policies if pack.with_policies else None,
        )

        def progress(done: int, total: int) -> None:
            self._done[pack.id] = (done, total)

        first, last = await make_pack(
            self._parts,
            self._settings,
            order,
            self.store.path(pack),
            created_us=self._clock.utc_us(),
            progress=progress,
        )
        await self.store.change(pack.id, records=last - first + 1)
        await self.store.settle(pack)

    async def _failed(self, pack: EvidencePack, problem: str) -> None:
        await self.store.change(pack.id, state="failed", problem=problem[:500])


def recipient_of(text: str) -> str:
    """For whom a pack is, as it stands in it; raises RequestInvalid where that is too long."""
    said = text.strip()
    if len(said) > RECIPIENT_CHARS_MAX:
        reason = f"Use at most {RECIPIENT_CHARS_MAX} characters."
        raise RequestInvalid(reason, parameter="recipient")
    return said


def _log_of(organisation: str, wish: Wish) -> str:
    return OPERATORS if wish.log == "deeds" else organisation
