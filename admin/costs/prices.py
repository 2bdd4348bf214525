"""List prices of configured models, for comparisons; the data plane charges by the same ones."""

from admin.services import Services
from gateway.errors import ConfigurationInvalid, RequestInvalid
from gateway.money.catalogue import Place, build_targets
from gateway.types import Target


async def priced_targets(services: Services) -> tuple[Target, ...]:
    """Targets with their prices in force; none where the configuration or price file is at fault.

    Only prices may be read from them: where a provider stands is the data plane's to say.
    """
    settings = services.settings
    places = {
        name: Place(provider.jurisdiction, in_house=provider.is_in_house)
        for name, provider in settings.providers.items()
    }
    try:
        prices = await services.prices.in_force(settings)
        return build_targets(settings.targets, places, prices.catalogue, settings.source)
    except (ConfigurationInvalid, RequestInvalid):
        return ()
