"""The integrity of a log: what was signed and when, how it grew, the full check, the keys."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from litestar import MediaType, Response, get, post, route
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.audit.checking import Checked, LogChecker, Running, with_newest
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.audit.proving import offline
from gateway.audit.proving.checkpoints import verifier_keys
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.audit.proving.integrator import TreeDamaged
from gateway.clock import DAY_US
from gateway.oversight.access import Permission
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.evidence.unended import Unended, UnendedReader


_READ: Final = needs(Permission.AUDIT_READ)
NO_CONTENT: Final = 204
_PAGE: Final = "/o/{organisation:str}/integrity"
_API: Final = "/api/organisations/{organisation:str}/integrity"
_NEWEST: Final = 25
_READ_MAX: Final = 500
"""Of signatures: a log that does not grow is signed again and again, every time alike."""
_POINTS: Final = 200


class Key(Struct, frozen=True):
    """A key that signs checkpoints, as the offline verifier takes it, and its short fingerprint."""

    text: str
    name: str
    fingerprint: str


class SignedAlike(Struct, frozen=True):
    """Signatures in a row of one size and root."""

    newest: SignedCheckpoint
    since_us: int
    """When the first of them was made, of those that were read."""
    count: int


def signed_alike(checkpoints: Iterable[SignedCheckpoint]) -> list[SignedAlike]:
    """What a log that did not grow was signed as, once each; given and told newest first."""
    found = []
    for _, same in groupby(checkpoints, key=lambda each: (each.size, each.root)):
        row = list(same)
        found.append(SignedAlike(row[0], row[-1].signed_us, len(row)))
    return found


class Integrity(Struct, frozen=True):
    """What the page shows."""

    records: int
    newest: Sequence[SignedCheckpoint]
    """Newest first."""
    growth: Sequence[SignedCheckpoint]
    keys: Sequence[Key]
    last: Checked | None
    running: Running | None
    problem: str
    """Why the last check has no end; empty otherwise."""
    damage: str
    """Why the tree cannot grow, where the database holds it damaged; empty otherwise."""
    read_us: int
    alike: Sequence[SignedAlike] = ()
    """The newest sizes and roots, newest first."""
    unended: Sequence[Unended] = ()
    """Requests without an outcome, of workers that are gone."""


class IntegrityReader:
    """Reads for one organisation; all may raise NotReady."""

    def __init__(self, services: Services, checker: LogChecker) -> None:
        self._services = services
        self._trees = DatabaseAuditTrees(services.database)
        self._checker = checker
        self._unended = UnendedReader(services.database, services.clock)

    async def read(self, organisation: str) -> Integrity:
        now_us = self._services.clock.utc_us()
        newest = await self._trees.latest(organisation, _READ_MAX)
        month = now_us - 30 * DAY_US, now_us + DAY_US
        _, growth = await self._trees.spread(organisation, *month, _POINTS)
        damage = ""
        try:
            records = (await self._trees.tree(organisation)).size
        except TreeDamaged as error:
            records, damage = (await self._trees.sizes())[organisation], str(error)
        directory = self._services.settings.path(self._services.settings.audit.directory)
        keys = await asyncio.to_thread(verifier_keys, directory)
        # First, because a check that ends in between is then still told, by what it found.
        running = self._checker.running
        return Integrity(
            records,
            newest[:_NEWEST],
            with_newest(growth, newest[:1]),
            [Key(text, *text.split("+", 2)[:2]) for text in keys],
            await self._checker.last(organisation),
            running,
            self._checker.problem(organisation),
            damage,
            now_us,
            signed_alike(newest)[:_NEWEST],
            await self._unended.read(organisation),
        )


def integrity_routes(services: Services) -> list[Any]:
    """The page, the check, the verifier, and the same for programs."""
    checker = services.checker
    reader = IntegrityReader(services, checker)

    @route(_PAGE, http_method=READING, media_type=MediaType.HTML, opt=_READ)
    async def integrity(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await services.shell.page(
            request,
            "audit/integrity.html",
            "integrity",
            integrity=await reader.read(organisation),
            organisation=organisation,
            period_s=services.settings.audit.checkpoint_period_s,
        )

    @get(f"{_PAGE}/verify.py", media_type="text/x-python", opt=_READ)
    async def verifier(organisation: FromPath[str]) -> Response[bytes]:  # noqa: ARG001 - of the path
        headers = {"content-disposition": 'attachment; filename="verify.py"'}
        return Response(_verifier(), media_type="text/x-python", headers=headers)

    @get(_API, opt=_READ)
    async def tell_integrity(organisation: FromPath[str]) -> Integrity:
        return await reader.read(organisation)

    return [integrity, verifier, tell_integrity, *_checking(services)]


def _checking(services: Services) -> list[Any]:
    checker = services.checker
    checks = needs(Permission.AUDIT_READ, records="integrity.check_began")

    async def began(request: Asking, organisation: str) -> None:
        """Begin to read the log from its start, unless somebody has begun already."""
        if checker.running is None:
            actor = session_of(request).person.name
            await services.deeds.record(actor, "integrity.check_began", organisation)
            checker.begin(organisation, actor)

    @post(f"{_PAGE}/check", opt=checks, status_code=SEE_OTHER)
    async def check(request: Asking, organisation: FromPath[str]) -> Redirect:
        await began(request, organisation)
        return Redirect(f"/o/{organisation}/integrity#check", status_code=SEE_OTHER)

    @post(f"{_API}/check", opt=checks, status_code=NO_CONTENT)
    async def begin_check(request: Asking, organisation: FromPath[str]) -> None:
        await began(request, organisation)

    return [check, begin_check]


def _verifier() -> bytes:
    with open(offline.__file__, "rb") as file:  # noqa: PTH123 - a module's own file
        return file.read()
