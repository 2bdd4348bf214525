"""What configured models cost at list price, for comparisons; the data plane charges by it."""

from gateway.catalogue import Place, build_targets
from gateway.errors import GatewrightError
from gateway.price_file import catalogue_in_force
from gateway.settings import Settings
from gateway.types import Target


def priced_targets(settings: Settings) -> tuple[Target, ...]:
    """Targets with their prices in force; none where the configuration or price file is at fault.

    Only prices may be read from them: where a provider stands is the data plane's to say.
    """
    places = {
        name: Place(provider.jurisdiction, in_house=provider.kind == "engine")
        for name, provider in settings.providers.items()
    }
    try:
        catalogue = catalogue_in_force(settings)
        return build_targets(settings.targets, places, catalogue, settings.source)
    except GatewrightError:
        return ()
