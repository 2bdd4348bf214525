"""Next and former versions of a credential: prepared, tried, switched to, put back, destroyed.

Each step is an ordinary deed, recorded with versions and fingerprints and never with a value. The
trial is the connection test of a provider, made by a worker with the next version.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final
from urllib.parse import quote

from litestar import MediaType, Response, get, post
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of, taking, unkept
from admin.asking import Asking
from admin.bodies import body_of
from admin.forms import Form, form_of
from admin.models.credentials import CredentialLine, CredentialReader
from admin.models.provider import ProviderDesk
from admin.models.sealing import check_value
from admin.services import Services
from admin.sign_in.pages import SEE_OTHER
from gateway.errors import Exhausted, RequestInvalid
from gateway.oversight.access import Permission, Person
from gateway.oversight.workers import standing
from gateway.secrets.credentials import master_key
from gateway.secrets.secret import Secret
from gateway.store.checkups import CheckupOrder, CheckupTable
from gateway.store.sealing.sealed_secrets import SealedSecret
from gateway.store.sealing.spare_secrets import (
    FORMER,
    NEXT,
    SpareKind,
    SpareSecret,
    SpareSecretTable,
)
from gateway.store.workers import WorkerTable


API: Final = "/api/credentials/{name:str}"
AT: Final = "/models/secrets/{name:str}"
"""Not below the credential: its address begins with the kind of its place."""
NO_CONTENT: Final = 204
VERSION_MAX: Final = 10**12
_EVERYWHERE: Final = "everywhere"
_READS: Final = needs(Permission.SYSTEM_READ, _EVERYWHERE)
_TESTS: Final = needs(Permission.SYSTEM_CONFIGURE, _EVERYWHERE, records="provider.test_ordered")
Deed = Callable[[Person, str, "Seen"], Awaitable[None]]
Show = Callable[[Asking, str, RequestInvalid | Exhausted], Awaitable[Response[str]]]
"""The page of a credential, with what was wrong."""


class NextOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A value to be kept as the next version; `expected_version` of a next one is replaced."""

    value: str
    expected_version: int = 0

    def __repr__(self) -> str:
        return "NextOrder(•••)"


class Seen(Struct, frozen=True, forbid_unknown_fields=True):
    """The versions that were seen: of what the step is about, and of what it takes the place of."""

    version: int
    in_use: int = 0
    """For a switch, and to put one back."""
    next: int = 0
    """To put one back; 0 where there was none."""


class Trial(Struct, frozen=True):
    """A provider that uses the credential, and how it did with the next version."""

    provider: str
    order: CheckupOrder | None
    """None while it was not tried with this version."""
    state: str = ""


class Spares(Struct, frozen=True):
    """What stands beside the version in use."""

    next: SpareSecret | None
    former: SpareSecret | None
    trials: tuple[Trial, ...]
    workers: int
    """Workers that are heard of: each uses the next version soon after a switch."""
    kept_s: float

    @property
    def is_tried(self) -> bool:
        """Whether every provider that uses it answered a worker that had the next version."""
        verdicts = [each.order and each.order.found.verdict for each in self.trials]
        return bool(verdicts) and all(each == "good" for each in verdicts)


class SpareDesk:
    """What people may do with versions that are not in use."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._master = master_key(services.settings)
        self._reader = CredentialReader(services)
        self._tests = ProviderDesk(services)
        self._checkups = CheckupTable(services.database, services.clock)
        self.table = SpareSecretTable(services.database, self._master, services.clock)

    async def read(self, line: CredentialLine) -> Spares:
        """What stands beside a credential of the database."""
        found = await self.table.of(line.name)
        coming = found.get(NEXT)
        tests, now_us = await self._checkups.all(), self._services.clock.utc_us()
        trials = []
        for provider in line.providers if coming else ():
            test = tests.get(provider)
            if coming is None or test is None or not _is_of(test, coming):
                trials.append(Trial(provider, None))
            else:
                trials.append(Trial(provider, test, test.state(now_us)))
        reports = await WorkerTable(self._services.database).all()
        heard = sum(standing(each, now_us) != "lost" for each in reports)
        kept_s = self._services.settings.secrets.former_kept_s
        return Spares(coming, found.get(FORMER), tuple(trials), heard, kept_s)

    async def prepare(self, person: Person, name: str, value: Secret[str], expected: int) -> None:
        """Keep a next version beside the one in use.

        Raises:
            RequestInvalid: no version of it is in use, or the value is none.
            ChangedMeanwhile: there is another next version by now.
        """
        check_value(value)
        current = await self._require(name)
        mark = self._master.fingerprint(value)
        if mark == current.fingerprint:
            reason = "This is the value that is in use already."
            raise RequestInvalid(reason, parameter="value")
        after = {"name": name, "fingerprint": mark}
        async with self._doing(person, "secret.next_set", after):
            await self.table.prepare(name, value, person.name, expected=expected)

    async def order_test(self, person: Person, name: str, provider: str) -> CheckupOrder:
        """Let a worker test a connection with the next version; raises as any test does."""
        line = await self._reader.line("database", name)
        if provider not in line.providers:
            raise RequestInvalid("This provider does not use it.", parameter="provider")
        if NEXT not in await self.table.of(name):
            raise RequestInvalid("There is no next version.", parameter="version")
        return await self._tests.order(person, provider, "", spare=NEXT)

    async def switch(self, person: Person, name: str, seen: Seen) -> None:
        """Use the next version; raises RequestInvalid or ChangedMeanwhile."""
        keep_s = self._services.settings.secrets.former_kept_s
        after = {"name": name, "version": seen.version, "former_kept_s": keep_s}
        async with self._doing(person, "secret.switched", after):
            await self.table.switch(name, expected=seen.version, in_use=seen.in_use, keep_s=keep_s)

    async def put_back(self, person: Person, name: str, seen: Seen) -> None:
        """Use the former version again; raises RequestInvalid or ChangedMeanwhile."""
        after = {"name": name, "version": seen.version}
        async with self._doing(person, "secret.put_back", after):
            await self.table.put_back(
                name, expected=seen.version, in_use=seen.in_use, coming=seen.next
            )

    async def drop(self, person: Person, name: str, seen: Seen) -> None:
        """Throw the next version away; raises RequestInvalid or ChangedMeanwhile."""
        await self._destroy(person, name, NEXT, seen, "secret.next_dropped")

    async def retire(self, person: Person, name: str, seen: Seen) -> None:
        """Destroy the former version before its time; raises RequestInvalid or ChangedMeanwhile."""
        await self._destroy(person, name, FORMER, seen, "secret.retired")

    async def _destroy(
        self, person: Person, name: str, kind: SpareKind, seen: Seen, action: str
    ) -> None:
        async with self._doing(person, action, {"name": name, "version": seen.version}):
            await self.table.drop(name, kind, expected=seen.version)

    async def _require(self, name: str) -> SealedSecret:
        found = await self._reader.sealed(name)
        if found is None:
            raise RequestInvalid("there is no such secret: set it first", parameter="name")
        return found

    def _doing(
        self, person: Person, action: str, after: object
    ) -> AbstractAsyncContextManager[None]:
        return self._services.deeds.doing(person.name, action, "", after=after)


def _is_of(test: CheckupOrder, coming: SpareSecret) -> bool:
    """Whether a test says something of this version: a worker tells which credential it had."""
    mark = test.found.fingerprint
    return (
        test.spare == NEXT and test.asked_us >= coming.set_us and mark in ("", coming.fingerprint)
    )


def spare_routes(services: Services, show: Show) -> list[Any]:
    """Steps of people, who see the credential's page again, and of programs."""
    desk = SpareDesk(services)
    return [*_preparing(desk, show), *_steps(desk, show), *_api(services, desk)]


def _preparing(desk: SpareDesk, show: Show) -> list[Any]:
    sets = needs(Permission.SECRETS_SET, _EVERYWHERE, records="secret.next_set")

    @post(f"{AT}/next", media_type=MediaType.HTML, opt=unkept(sets), status_code=SEE_OTHER)
    async def set_next(request: Asking, name: FromPath[str]) -> Response[Any]:
        form = await form_of(request)

        async def step() -> None:
            # A paste brings the line break that a terminal put there; no credential has one.
            value, seen = Secret(form.raw("value").strip()), _seen(form)
            await desk.prepare(session_of(request).person, name, value, seen.version)

        return await _done(request, name, step, show)

    @post(f"{AT}/test", media_type=MediaType.HTML, opt=_TESTS, status_code=SEE_OTHER)
    async def test_next(request: Asking, name: FromPath[str]) -> Response[Any]:
        form = await form_of(request)

        async def step() -> None:
            await desk.order_test(session_of(request).person, name, form.text("provider"))

        return await _done(request, name, step, show)

    return [set_next, test_next]


def _steps(desk: SpareDesk, show: Show) -> list[Any]:
    steps = {
        "drop": ("secret.next_dropped", desk.drop),
        "switch": ("secret.switched", desk.switch),
        "put-back": ("secret.put_back", desk.put_back),
        "retire": ("secret.retired", desk.retire),
    }
    return [_posting(show, part, *step) for part, step in steps.items()]


def _posting(show: Show, part: str, records: str, deed: Deed) -> Any:
    opt = needs(Permission.SECRETS_SET, _EVERYWHERE, records=records)

    @post(f"{AT}/{part}", media_type=MediaType.HTML, opt=opt, status_code=SEE_OTHER)
    async def handler(request: Asking, name: FromPath[str]) -> Response[Any]:
        form = await form_of(request)

        async def step() -> None:
            await deed(session_of(request).person, name, _seen(form))

        return await _done(request, name, step, show)

    return handler


async def _done(
    request: Asking, name: str, step: Callable[[], Awaitable[None]], show: Show
) -> Response[Any]:
    """Take a step, and show the page again: what is wrong is said there."""
    try:
        await step()
    except (RequestInvalid, Exhausted) as error:
        return await show(request, name, error)
    return Redirect(f"/models/credentials/database/{quote(name)}#versions", status_code=SEE_OTHER)


def _api(services: Services, desk: SpareDesk) -> list[Any]:
    reader = CredentialReader(services)

    @get(f"{API}/versions", opt=_READS)
    async def versions_api(name: FromPath[str]) -> Spares:
        return await desk.read(await reader.line("database", name))

    @post(
        f"{API}/next",
        opt=needs(Permission.SECRETS_SET, _EVERYWHERE, records="secret.next_set"),
        status_code=NO_CONTENT,
    )
    async def next_api(request: Asking, name: FromPath[str]) -> None:
        order = await body_of(request, NextOrder)
        person = session_of(request).person
        await desk.prepare(person, name, Secret(order.value), order.expected_version)

    @post(f"{API}/next/test/{{provider:str}}", opt=_TESTS, status_code=201)
    async def test_next_api(
        request: Asking, name: FromPath[str], provider: FromPath[str]
    ) -> CheckupOrder:
        return await desk.order_test(session_of(request).person, name, provider)

    steps = [
        _ordering("next/drop", "secret.next_dropped", desk.drop),
        _ordering("switch", "secret.switched", desk.switch),
        _ordering("put-back", "secret.put_back", desk.put_back),
        _ordering("retire", "secret.retired", desk.retire),
    ]
    return [versions_api, next_api, test_next_api, *steps]


def _ordering(part: str, records: str, deed: Deed) -> Any:
    opt = taking(needs(Permission.SECRETS_SET, _EVERYWHERE, records=records), Seen)

    @post(f"{API}/{part}", opt=opt, status_code=NO_CONTENT)
    async def handler(request: Asking, name: FromPath[str]) -> None:
        await deed(session_of(request).person, name, await body_of(request, Seen))

    return handler


def _seen(form: Form) -> Seen:
    return Seen(*(form.whole(name, VERSION_MAX) or 0 for name in Seen.__struct_fields__))
