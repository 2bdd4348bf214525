"""The configured targets at the prices in force, and a price file that may change under a worker.

A price file is taken as a whole or not at all: with a single error in it the prices before it stay
in force. What has been reserved stays at the prices that it was reserved at.
"""

import asyncio
from collections.abc import Callable

from msgspec import structs

from gateway.catalogue import build_targets
from gateway.errors import ConfigurationInvalid
from gateway.price_file import catalogue_of, read_price_file
from gateway.providers.registry import place
from gateway.settings import Settings
from gateway.telemetry import Event, logger
from gateway.types import Target


def configured_targets(settings: Settings) -> tuple[Target, ...]:
    """The targets of a configuration at today's prices.

    Raises:
        ConfigurationInvalid: with the file, the key and the reason.
    """
    return _targets(settings, read_price_file(settings))


class PriceWatch:
    """Follows the price file of a running worker."""

    def __init__(self, settings: Settings, retarget: Callable[[tuple[Target, ...]], None]) -> None:
        """`retarget` is given all targets whenever a file with other prices was taken.

        Raises:
            ConfigurationInvalid: with the file, the key and the reason.
        """
        self._settings = settings
        self._retarget = retarget
        self._seen = read_price_file(settings)
        self._targets = _targets(settings, self._seen)
        self._unreadable = ""
        self._log = logger()

    async def follow(self) -> None:
        """Take the file if it has changed; say so, or why not, once per change."""
        if not self._settings.prices.file:
            return
        try:
            text = await asyncio.to_thread(read_price_file, self._settings)
        except ConfigurationInvalid as error:
            if error.message != self._unreadable:
                self._unreadable = error.message
                self._log.error(Event.PRICES_REFUSED, reason=error.message)
            return
        self._unreadable = ""
        if text == self._seen:
            return
        self._seen = text
        try:
            targets = _targets(self._settings, text)
        except ConfigurationInvalid as error:
            self._log.error(Event.PRICES_REFUSED, reason=error.message)
            return
        changed = sum(new != old for new, old in zip(targets, self._targets, strict=True))
        if changed:
            self._targets = targets
            self._retarget(targets)
        self._log.info(Event.PRICES_CHANGED, count=changed)


def _targets(settings: Settings, price_text: bytes) -> tuple[Target, ...]:
    places = {
        name: place(name, provider.kind, provider.jurisdiction, provider.assurances)
        for name, provider in settings.providers.items()
    }
    catalogue = catalogue_of(price_text, settings.prices.file)
    targets = build_targets(settings.targets, places, catalogue, settings.source)
    if settings.requests.prompt_cache:
        return targets
    return tuple(
        structs.replace(target, capabilities=target.capabilities - {"prompt_cache"})
        for target in targets
    )
