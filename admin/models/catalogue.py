"""What is configured to serve requests: providers, their targets, and prices with date and source.

Read from the settings and the catalogue in force; nobody is called, and no credential is shown:
only whether there is one.
"""

from typing import Any, Final

from litestar import MediaType, Request, Response, get, route
from msgspec import Struct

from admin.access import needs, session_of
from admin.services import Services
from admin.sign_in import READING
from gateway.access import Permission, allows
from gateway.catalogue import Catalogue, Entry
from gateway.credentials import credential_problem
from gateway.errors import GatewrightError
from gateway.price_file import catalogue_in_force
from gateway.settings import ProviderSettings, Settings


IN_HOUSE: Final = "engine"
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


class TargetLine(Struct, frozen=True):
    """A model that policies may choose, and what it costs at list price."""

    name: str
    provider: str
    route: str
    model: str
    entry: Entry | None
    """None: the catalogue does not know it, and it is not served."""


class ModelsPage(Struct, frozen=True):
    """All of it; `problem` is why there are no prices."""

    providers: tuple[ProviderLine, ...]
    targets: tuple[TargetLine, ...]
    problem: str = ""


def models_routes(services: Services) -> list[Any]:
    """The page, and the JSON behind it."""

    @route("/models", http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def models(request: Request[Any, Any, Any]) -> Response[str]:
        found = read_models(services.settings)
        leads_on = allows(session_of(request).person, Permission.SYSTEM_READ)
        return await services.shell.page(
            request, "models/models.html", "models", found=found, leads_on=leads_on
        )

    @get("/api/models", opt=_READS)
    async def models_api() -> ModelsPage:
        return read_models(services.settings)

    return [models, models_api]


def read_models(settings: Settings) -> ModelsPage:
    """Everything that is configured; without prices where their file is at fault."""
    catalogue, problem = Catalogue({}), ""
    try:
        catalogue = catalogue_in_force(settings)
    except GatewrightError as error:
        problem = error.message
    counts = [target.provider for target in settings.targets.values()]
    return ModelsPage(
        providers=tuple(
            ProviderLine(
                name=name,
                kind=provider.kind,
                jurisdiction=provider.jurisdiction,
                route=_route(provider),
                has_credential=_has_credential(settings, name, provider),
                targets=counts.count(name),
            )
            for name, provider in settings.providers.items()
        ),
        targets=tuple(
            TargetLine(
                name=name,
                provider=target.provider,
                route=_route(settings.providers[target.provider]),
                model=target.model,
                entry=catalogue.models.get(target.catalogue or target.model),
            )
            for name, target in settings.targets.items()
        ),
        problem=problem,
    )


def _route(provider: ProviderSettings) -> str:
    return "in-house" if provider.kind == IN_HOUSE else "managed"


def _has_credential(settings: Settings, name: str, provider: ProviderSettings) -> bool | None:
    if provider.credential is None or not provider.credential.is_local:
        return None
    return not credential_problem(settings, name)
