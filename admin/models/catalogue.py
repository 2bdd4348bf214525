"""The configured providers, their targets, and prices with date and source.

Read from the settings and the catalogue in force; nobody is called, and no credential is shown:
only whether there is one.
"""

from typing import Any, Final

from litestar import MediaType, Response, get, route
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.models.lately import LatelyReader, ProviderState
from admin.overview.credentials import told_here
from admin.services import Services
from admin.sign_in.pages import READING
from gateway.configuration.settings import ProviderSettings, TargetSettings
from gateway.errors import GatewrightError
from gateway.money.catalogue import Catalogue, Entry
from gateway.oversight.access import Permission, allows, organisations_of
from gateway.oversight.homes import IN_HOUSE, MANAGED


_READS: Final = needs(Permission.SYSTEM_READ, "some")


class ProviderLine(Struct, frozen=True):
    """Where requests may go, and under whose law."""

    name: str
    kind: str
    jurisdiction: str
    route: str
    """in-house or managed."""
    has_credential: bool | None
    """None where none is asked for, or where it is kept elsewhere and only the data plane asks."""
    targets: int
    assurances: tuple[str, ...] = ()
    """What its contract promises of the data."""
    prices_from: str = ""
    """The oldest date of its targets' prices."""


class TargetLine(Struct, frozen=True):
    """A model that policies may choose, and what it costs at list price."""

    name: str
    provider: str
    route: str
    model: str
    entry: Entry | None
    """None: the catalogue does not know it, and it is not served."""
    tier: str = ""
    """By which policies choose it: the settings' own, or else the entry's; empty without either."""


class ModelsPage(Struct, frozen=True):
    """All of it; `problem` is why there are no prices."""

    providers: tuple[ProviderLine, ...]
    targets: tuple[TargetLine, ...]
    problem: str = ""


def models_routes(services: Services) -> list[Any]:
    """The page, and the JSON behind it."""
    reader = LatelyReader(services)

    @route("/models", http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def models(request: Asking) -> Response[str]:
        found = await read_models(services)
        person = session_of(request).person
        return await services.shell.page(
            request,
            "models/models.html",
            "models",
            found=found,
            lately=await reader.read(organisations_of(person, Permission.SYSTEM_READ)),
            leads_on=allows(person, Permission.SYSTEM_READ),
        )

    @get("/api/models", opt=_READS)
    async def models_api() -> ModelsPage:
        return await read_models(services)

    @get("/api/models/lately", opt=_READS)
    async def lately_api(request: Asking) -> dict[str, ProviderState]:
        visible = organisations_of(session_of(request).person, Permission.SYSTEM_READ)
        return await reader.read(visible)

    return [models, models_api, lately_api]


async def read_models(services: Services) -> ModelsPage:
    """Everything that is configured; without prices where their file is at fault."""
    settings, catalogue, problem = services.settings, Catalogue({}), ""
    try:
        catalogue = (await services.prices.in_force(settings)).catalogue
    except GatewrightError as error:
        problem = error.message
    counts = [target.provider for target in settings.targets.values()]
    dates: dict[str, list[str]] = {}
    for target in settings.targets.values():
        entry = catalogue.models.get(target.catalogue or target.model)
        dates.setdefault(target.provider, []).append(entry.as_of if entry else "")
    return ModelsPage(
        providers=tuple(
            ProviderLine(
                name=name,
                kind=provider.kind,
                jurisdiction=provider.jurisdiction,
                route=_route(provider),
                has_credential=told_here(settings, name),
                targets=counts.count(name),
                assurances=provider.assurances,
                prices_from=min(dates.get(name, [""])),
            )
            for name, provider in settings.providers.items()
        ),
        targets=tuple(
            _target_line(name, target, _route(settings.providers[target.provider]), catalogue)
            for name, target in settings.targets.items()
        ),
        problem=problem,
    )


def _target_line(name: str, target: TargetSettings, route: str, catalogue: Catalogue) -> TargetLine:
    entry = catalogue.models.get(target.catalogue or target.model)
    tier = target.tier or (entry.tier if entry else "")
    return TargetLine(name, target.provider, route, target.model, entry, tier)


def _route(provider: ProviderSettings) -> str:
    return IN_HOUSE if provider.is_in_house else MANAGED
