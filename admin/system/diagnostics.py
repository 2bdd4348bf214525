"""The diagnostics bundle: what somebody who helps needs to know, and nothing that users said.

Gathered from the database and this process; a part that cannot be gathered says why in its place.
No prompt, answer, key, name of a key or of an organisation is asked for.
"""

import platform
import sys
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from litestar import MediaType, get, post, route
from litestar.response import Response, Stream
from msgspec import Struct, to_builtins
from sqlalchemy.engine import make_url

from admin.access import needs, session_of
from admin.asking import Asking
from admin.services import Services
from admin.sign_in.pages import READING
from admin.system.bundle import Part, Scrubber, archived, written
from admin.system.checks import start_checks
from admin.system.configuration import features_of
from admin.system.verdict import positions
from admin.system.workers import WorkersReader
from gateway.clock import HOUR_US
from gateway.configuration.disclosing import disclosed, settings_digest
from gateway.configuration.outlets import outlet_references
from gateway.configuration.settings import Settings
from gateway.errors import GatewrightError
from gateway.oversight.access import Permission
from gateway.secrets.credentials import (
    admin_token,
    answers_password,
    key_bytes_at,
    named_master_keys,
    named_peppers,
    oidc_secret,
    pepper_at,
    provider_credential,
    proxy_credential,
    rates_password,
    source_of,
)
from gateway.secrets.secret import Secret
from gateway.store.attention import Attention
from gateway.store.evidence.unended import UnendedReader
from gateway.store.schema.version import known_migrations, newest_schema, schema_of


AT: Final = "/system/diagnostics"
HOURS: Final = 72
SINKS_MAX: Final = 100
WORD_CHARS_MIN: Final = 24
"""So long a word of a secret is one by itself, such as each of two signing keys."""
PACKAGES: Final = (
    *("gatewright", "litestar", "uvicorn", "uvloop", "sqlalchemy", "alembic", "asyncpg"),
    *("aiosqlite", "msgspec", "cryptography", "numpy", "google-re2", "openai", "anthropic"),
)
_P = Permission
_MAKES: Final = needs(_P.SYSTEM_CONFIGURE, "everywhere", records="diagnostics.made")
_READS: Final = needs(_P.SYSTEM_CONFIGURE, "everywhere")


class PartView(Struct, frozen=True):
    """What a part of the bundle will hold."""

    name: str
    title: str
    length_bytes: int
    """Before it is compressed."""
    problem: str = ""


class Gatherer:
    """Gathers the parts of a bundle."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._workers = WorkersReader(services)

    async def parts(self) -> list[Part]:
        """All of them; one that the database does not give says so."""
        sources: tuple[tuple[str, str, Callable[[], Awaitable[object]]], ...] = (
            ("versions", "Versions of the program, its packages and the machine", self._versions),
            ("settings", "Settings in force, without secrets", self._settings),
            ("checks", "The checks of a start, made again", self._checks),
            ("migrations", "The schema of the database, and the newest one", self._migrations),
            ("workers", "What each worker last said, with its engines", self._reports),
            ("breakers", "Breakers that are not closed, by target and worker", self._breakers),
            ("metrics", "Metrics of each worker, added up over their labels", self._metrics),
            ("figures", f"Requests, errors and tokens by hour, last {HOURS} hours", self._figures),
            ("sinks", "How far each sink is behind", self._sinks),
            ("unended", "Requests without an outcome, of workers that are gone", self._unended),
        )
        found = []
        for name, title, source in sources:
            try:
                found.append(Part(name, title, to_builtins(await source())))
            except GatewrightError as error:
                found.append(Part(name, title, problem=error.message))
        return found

    async def _versions(self) -> object:
        return {
            "packages": {name: _version(name) for name in PACKAGES},
            "python": sys.version.split()[0],
            "platform": platform.platform(),
            "machine": platform.machine(),
            "database": self._services.database.kind,
        }

    async def _settings(self) -> object:
        settings = self._services.settings
        return {
            "digest": settings_digest(settings),
            "features": features_of(settings),
            "in_force": disclosed(settings),
        }

    async def _checks(self) -> object:
        return await start_checks(self._services.settings, self._services.database)

    async def _migrations(self) -> object:
        found = await schema_of(self._services.database)
        return {"schema": found, "newest": newest_schema(), "known": known_migrations()}

    async def _reports(self) -> object:
        return await self._workers.read()

    async def _breakers(self) -> object:
        return positions([line.report for line in (await self._workers.read()).lines])

    async def _metrics(self) -> object:
        lines = (await self._workers.read()).lines
        return {line.report.worker: line.report.metrics for line in lines}

    async def _figures(self) -> object:
        since_us = self._services.clock.utc_us() - HOURS * HOUR_US
        by = ("hour_us", "target", "provider", "jurisdiction")
        sums = await self._services.figures.by_hour(None, since_us, by)
        return [dict(zip(by, each.group, strict=True)) | _counted(each) for each in sums]

    async def _unended(self) -> object:
        return await UnendedReader(self._services.database, self._services.clock).read()

    async def _sinks(self) -> object:
        attention = Attention(self._services.database)
        delays = await attention.delays(self._services.settings.sinks, SINKS_MAX)
        behind = dict.fromkeys(self._services.settings.sinks, 0)
        for delay in delays:
            behind[delay.sink] += delay.records
        return {"records_behind": behind}


def diagnostics_routes(services: Services) -> list[Any]:
    """The page that says what a bundle holds, the JSON behind it, and the bundle."""
    gatherer = Gatherer(services)

    @route(AT, http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def diagnostics(request: Asking) -> Response[str]:
        views = [_view(part) for part in await gatherer.parts()]
        return await services.shell.page(
            request, "system/diagnostics.html", "diagnostics", parts_of=views
        )

    @get("/api/system/diagnostics", opt=_READS)
    async def diagnostics_api() -> list[PartView]:
        return [_view(part) for part in await gatherer.parts()]

    @post(AT, opt=_MAKES, status_code=200)
    async def bundle(request: Asking) -> Stream:
        parts = await gatherer.parts()
        after = {"parts": [part.name for part in parts]}
        person = session_of(request).person.name
        await services.deeds.record(person, "diagnostics.made", "", after=after)
        scrubber = Scrubber(list(known_secrets(services.settings)))
        name = f'attachment; filename="gatewright-diagnostics-{services.clock.utc_us()}.tar.gz"'
        return Stream(
            archived(parts, scrubber, services.clock.utc_us()),
            media_type="application/gzip",
            headers={"content-disposition": name},
        )

    return [diagnostics, diagnostics_api, bundle]


def known_secrets(settings: Settings) -> Iterator[str]:
    """Every secret that this process can read; what it cannot read it cannot write either."""
    asked: list[Callable[[], object]] = [
        *(lambda named=named: pepper_at(settings, *named) for named in named_peppers(settings)),
        *(
            lambda named=named: key_bytes_at(settings, *named, plain_too=True)
            for named in named_master_keys(settings)
        ),
        *(
            lambda file=named.file: settings.path(file).read_bytes()
            for _, named in named_master_keys(settings)
        ),
        lambda: admin_token(settings),
        lambda: rates_password(settings),
        lambda: answers_password(settings),
        lambda: oidc_secret(settings),
        *(
            lambda key=key, place=place: source_of(settings, place, key).load()
            for key, place in outlet_references(settings).items()
        ),
        *(lambda name=name: provider_credential(settings, name) for name in settings.providers),
        *(
            lambda name=name, place=provider.proxy_credential: proxy_credential(
                settings, place, f"providers.{name}"
            )
            for name, provider in settings.providers.items()
        ),
        lambda: make_url(settings.database_url).password,
    ]
    for ask in asked:
        try:
            found = ask()
        except (GatewrightError, OSError):
            continue
        value = found.reveal() if isinstance(found, Secret) else found
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str):
            yield value
            yield from (word for word in value.split() if len(word) >= WORD_CHARS_MIN)


def _view(part: Part) -> PartView:
    return PartView(part.name, part.title, len(written(part, Scrubber(()))), part.problem)


def _counted(sums: Any) -> dict[str, int]:
    names = ("requests", "failed", "refused", "input_tokens", "output_tokens", "duration_us")
    return {name: getattr(sums, name) for name in names}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
