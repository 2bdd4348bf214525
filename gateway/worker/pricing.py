"""The configured targets at the prices in force, and reloading of the price file.

Prices that were put in force in the database take precedence over the file that the configuration
names. Either is accepted in full or not at all: with a single error the previous prices stay in
force. What has been reserved stays at the prices it was reserved at.
"""

from collections.abc import Callable

from msgspec import structs

from gateway.clock import Clock
from gateway.configuration.origins import origin_of
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid
from gateway.money.catalogue import build_targets
from gateway.money.price_file import PriceText, configured_prices, prices_of
from gateway.pool.capabilities import ENGINES
from gateway.providers.registry import place
from gateway.store.engine import Database
from gateway.store.money.price_files import CONFIGURED, NEVER, PriceFiles
from gateway.telemetry import Event, logger
from gateway.types import Target


def configured_targets(settings: Settings, prices: PriceText | None = None) -> tuple[Target, ...]:
    """The targets of a configuration at these prices, or at those that it names.

    Raises:
        ConfigurationInvalid: with the file, the key and the reason.
    """
    return _targets(settings, prices_of(settings) if prices is None else prices)


class PriceWatch:
    """Follows the prices in force on a running worker: the database's, or a price file's."""

    def __init__(
        self,
        settings: Settings,
        retarget: Callable[[tuple[Target, ...]], None],
        files: PriceFiles | None = None,
    ) -> None:
        """`retarget` gets all targets whenever new prices take effect.

        Raises:
            ConfigurationInvalid: with the file, the key and the reason.
        """
        self._settings = settings
        self._retarget = retarget
        self._files = files
        self._place = -1
        self._seen = prices_of(settings)
        self._targets = _targets(settings, self._seen)
        self._unreadable = ""
        self._log = logger()

    async def start(self) -> None:
        """Apply what is in force in the database, before the first request.

        Raises:
            ConfigurationInvalid: a target has no price there: nothing is served at another.
            NotReady: the database does not answer.
        """
        prices = await self._in_force()
        if prices != self._seen:
            self._take(prices, _targets(self._settings, prices))

    async def follow(self) -> None:
        """Apply prices that have changed; log it, or why not, once per change."""
        try:
            prices = await self._in_force()
        except ConfigurationInvalid as error:
            if error.message != self._unreadable:
                self._unreadable = error.message
                self._log.error(Event.PRICES_REFUSED, reason=error.message)
            return
        self._unreadable = ""
        if prices == self._seen:
            return
        try:
            targets = _targets(self._settings, prices)
        except ConfigurationInvalid as error:
            self._seen = prices
            self._log.error(Event.PRICES_REFUSED, reason=error.message)
            return
        self._take(prices, targets)

    async def _in_force(self) -> PriceText:
        """The text is read only if another file was put in force, or a file may have changed."""
        order = NEVER if self._files is None else await self._files.standing()
        if self._files is None or order.number == CONFIGURED:
            self._place = order.place
            return await configured_prices(self._settings)
        if order.place == self._place:
            return self._seen
        prices = await self._files.text(order.number)
        self._place = order.place
        return prices

    def _take(self, prices: PriceText, targets: tuple[Target, ...]) -> None:
        self._seen = prices
        changed = sum(new != old for new, old in zip(targets, self._targets, strict=True))
        if changed:
            self._targets = targets
            self._retarget(targets)
        self._log.info(Event.PRICES_CHANGED, count=changed)


def watched_prices(
    settings: Settings,
    retarget: Callable[[tuple[Target, ...]], None],
    database: Database,
    clock: Clock,
) -> PriceWatch:
    """The watch of a worker, which follows its database; raises ConfigurationInvalid."""
    return PriceWatch(settings, retarget, PriceFiles(database, clock))


def _targets(settings: Settings, prices: PriceText) -> tuple[Target, ...]:
    places = {
        name: place(name, provider.kind, provider.jurisdiction, provider.assurances)
        for name, provider in settings.providers.items()
    }
    targets = build_targets(settings.targets, places, prices.catalogue, settings.source)
    return tuple(
        structs.replace(
            target,
            capabilities=_capabilities(target, settings),
            origin=origin_of(target.provider, settings.providers),
        )
        for target in targets
    )


def _capabilities(target: Target, settings: Settings) -> frozenset[str]:
    """What the model can do, by its entry, its engine and the settings."""
    able = target.capabilities
    if not settings.requests.prompt_cache:
        able -= {"prompt_cache"}
    if target.in_house and target.purpose == "answer":
        # Only engines of our own say what kind they are of.
        able |= {"completions"} if _continues_text(target.provider, settings) else frozenset()
    return able


def _continues_text(provider: str, settings: Settings) -> bool:
    """Whether an engine continues bare text, or every member of a pool does."""
    setting = settings.providers.get(provider)
    if setting is None:
        return False
    if setting.members:
        return all(_continues_text(member, settings) for member in setting.members)
    engine = ENGINES.get(setting.engine)
    return engine is not None and engine.bare_text
