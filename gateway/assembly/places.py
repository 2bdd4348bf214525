"""Builds the parts behind optional packages from the settings: credential stores, shared limits.

The only place that imports those packages, and only when a setting needs one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gateway.assembly.approaches import approach_of
from gateway.assembly.wiring import as_setting, provider_config
from gateway.caching.response_cache import AnswerPlace, ResponseCache
from gateway.caching.sealed_replies import ReplySeal
from gateway.clock import Clock
from gateway.configuration.sections import SecretReference
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid
from gateway.metrics import CertificateSeries, Metrics
from gateway.money.alerting import Alerting
from gateway.money.rates import LocalRates, Rates
from gateway.ports import ModelHost, Provider
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.engine import EngineProvider
from gateway.providers.http_provider import HttpProvider
from gateway.providers.outlets.signing import Signer
from gateway.providers.outlets.webhook import WebHook
from gateway.providers.registry import (
    build_provider,
    clouds_among,
    model_hosts,
    pools_among,
)
from gateway.secrets.credentials import (
    alerts_credential,
    alerts_signing_key,
    answers_password,
    master_key,
    provider_credential,
    rates_password,
    source_of,
)
from gateway.secrets.envelope import MasterKey
from gateway.secrets.keeper import (
    LocalPlace,
    SecretKeeper,
    SecretPlace,
    SecretUnavailableError,
)
from gateway.secrets.secret import Secret
from gateway.snapshot import SnapshotKeeper
from gateway.store.engine import Database
from gateway.store.money.alerts import AlertTable, BudgetAlerts
from gateway.store.money.leases import LeaseTable
from gateway.store.sealing.sealed_secrets import DatabasePlace, SealedSecretTable
from gateway.store.sealing.spare_secrets import SpareSecretTable
from gateway.telemetry import Event, logger


if TYPE_CHECKING:
    from gateway.workloads.callers import Callers


class Places:
    """Makes a place per reference; sessions with a store are shared by all of them."""

    def __init__(
        self, settings: Settings, database: Database, master: MasterKey, clock: Clock
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._table = SealedSecretTable(database, master, clock)
        self._sessions: dict[str, Any] = {}

    def of_providers(self) -> Mapping[str, SecretPlace]:
        """Where each provider's credential is, by provider; those without one are left out.

        Raises:
            ConfigurationInvalid: a store is named whose package or settings are missing.
        """
        return {
            name: self._place(provider.credential, f"providers.{name}.credential")
            for name, provider in self._settings.providers.items()
            if provider.credential is not None and not provider.credential.env
        }

    def _place(self, reference: SecretReference, key: str) -> SecretPlace:
        if reference.db:
            return DatabasePlace(self._table, reference.db)
        if reference.vault:
            vault: SecretPlace = self._module("vault", key).VaultPlace(
                self._vault(key), reference.vault
            )
            return vault
        if reference.aws_sm:
            manager: SecretPlace = self._module("aws", key).AwsPlace(
                self._aws(key), reference.aws_sm
            )
            return manager
        return LocalPlace(source_of(self._settings, reference, key))

    def _vault(self, key: str) -> Any:
        settings = self._settings.vault
        if not settings.url:
            raise ConfigurationInvalid(self._settings.source, "vault.url", f"is needed for {key}")
        if "vault" not in self._sessions:
            session = self._module("vault", key).VaultSession
            self._sessions["vault"] = session(settings, self._clock, self._vault_credential)
        return self._sessions["vault"]

    def _vault_credential(self) -> Secret[str]:
        return source_of(self._settings, self._settings.vault.credential, "vault.credential").load()

    def _aws(self, key: str) -> Any:
        if "aws" not in self._sessions:
            make = self._module("aws", key).secrets_manager
            self._sessions["aws"] = make(self._settings.aws)
        return self._sessions["aws"]

    def _module(self, name: str, key: str) -> Any:
        try:
            return import_module(f"gateway.secrets.{name}")
        except ImportError as error:
            reason = f"needs an optional package: pip install 'gatewright[{name}]'"
            raise ConfigurationInvalid(self._settings.source, key, reason) from error


class Rotation:
    """Keeps the credentials of providers as their places have them, without a restart."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        clock: Clock,
        egress: Egress,
        *,
        providers: dict[str, Provider],
        hosts: dict[str, ModelHost],
        publish: Callable[[], None],
    ) -> None:
        """`providers` and `hosts` get a new adapter when a credential changed.

        Raises:
            ConfigurationInvalid: a place is named that cannot be asked.
        """
        self._settings = settings
        self._egress = egress
        self._providers = providers
        self._hosts = hosts
        self._publish = publish
        self.wake = asyncio.Event()
        """Set when something may have changed in the database; whoever sets it does not wait."""
        self._lacking: dict[str, str] = {}
        """By provider at a cloud: why it could not be called, as it was published last."""
        self._log = logger()
        known = {name: provider_credential(settings, name) for name in settings.providers}
        self._spares = SpareSecretTable(database, master_key(settings), clock)
        self._keeper = SecretKeeper(
            Places(settings, database, master_key(settings), clock).of_providers(),
            clock,
            tolerate_s=settings.secrets.outage_tolerance_s,
            changed=self._rotate,
            failed=self._note_failure,
            known={name: credential for name, credential in known.items() if credential},
        )

    async def refresh(self) -> None:
        """Ask every place once."""
        await self._keeper.refresh()

    def ages_s(self) -> Mapping[str, float]:
        """By provider: since its credential was last read from its place."""
        return self._keeper.ages_s()

    async def renew(self) -> None:
        """Fetch anew what proves us to clouds, ahead of its end; others wait for none of it."""
        clouds = clouds_among(self._providers)
        before = {name: each.unavailable_reason for name, each in clouds.items()}
        await asyncio.gather(*(each.proof.renew() for each in clouds.values()))
        changed = False
        for name, each in clouds.items():
            reason = each.unavailable_reason
            if reason != before[name] or reason != self._lacking.get(name, ""):
                changed, self._lacking[name] = True, reason
                if reason:
                    self._note_failure(name, reason)
        if changed:
            self._publish()

    async def trial(self, provider: str) -> Provider:
        """An adapter with the next version of a provider's credential; no request ever uses it.

        Raises:
            SecretUnavailableError: it has none, or it does not open.
            ConfigurationInvalid: no adapter can be built with it.
        """
        settings = self._settings.providers[provider]
        if settings.credential is None or not settings.credential.db:
            raise SecretUnavailableError("the database keeps no credential of this provider")
        credential = await self._spares.open_next(settings.credential.db)
        return build_provider(self._config(provider, credential), self._egress)

    def _rotate(self, provider: str, credential: Secret[str] | None) -> None:
        """Call a provider with another credential from now on.

        The adapter is built anew and swapped: what is in flight ends on the old one.

        Raises:
            SecretUnavailableError: this is none that a provider can be called with.
        """
        try:
            built = build_provider(self._config(provider, credential), self._egress)
        except ConfigurationInvalid as error:
            raise SecretUnavailableError(error.reason) from None
        self.swap(provider, built)
        self._log.info(Event.CREDENTIAL_ROTATED, provider=provider)

    def _config(self, provider: str, credential: Secret[str] | None) -> ProviderConfig:
        """With another credential, and by the way out that the adapter of this moment has."""
        current = self._providers.get(provider)
        way_out = current.config.way_out if isinstance(current, HttpProvider) else None
        return provider_config(provider, self._settings.providers[provider], credential, way_out)

    def swap(self, provider: str, built: Provider) -> None:
        """Call a provider by another adapter from now on."""
        self._providers[provider] = built
        if isinstance(built, EngineProvider):
            for pool in pools_among(self._providers):
                pool.renewed(provider, built)
        self._hosts.update(model_hosts(self._providers))
        self._publish()

    def _note_failure(self, provider: str, reason: str) -> None:
        self._log.warning(Event.CREDENTIAL_UNAVAILABLE, provider=provider, reason=reason)


def make_hook(settings: Settings, egress: Egress, clock: Clock) -> WebHook | None:
    """The web hook of alerts; None where none is configured.

    Raises:
        ConfigurationInvalid: its address is none that the egress may call, or its key is none.
    """
    if not settings.alerts.url:
        return None
    credential, may_be_plain = alerts_credential(settings), settings.alerts.allow_plain_http
    keys = alerts_signing_key(settings)
    signer = Signer("alerts", keys, clock) if keys else None
    approach = approach_of(settings, settings.alerts, "alerts")
    with as_setting(settings, "providers.", "alerts.url"):
        return WebHook(
            "alerts",
            settings.alerts.url,
            credential,
            egress,
            allow_plain_http=may_be_plain,
            signer=signer,
            approach=approach,
        )


def make_alerting(
    settings: Settings, egress: Egress, database: Database, clock: Clock
) -> Alerting | None:
    """Tells a web hook of used-up budgets; None where none is configured.

    Raises:
        ConfigurationInvalid: its address is none that the egress may call.
    """
    hook = make_hook(settings, egress, clock)
    if hook is None:
        return None
    table = AlertTable(database, clock)
    return Alerting(
        BudgetAlerts(LeaseTable(database, clock), table, settings.alerts.percents, clock), hook
    )


def make_callers(
    settings: Settings,
    egress: Egress,
    snapshots: SnapshotKeeper,
    clock: Clock,
    metrics: Metrics,
) -> "Callers | None":
    """Knows callers by tokens of the settings' issuers; None where there are none.

    Raises:
        ConfigurationInvalid: an address that may not be called, or authorities that are none.
    """
    if not settings.callers.issuers:
        return None
    # Whoever names no issuer does not wait for the parts that prove tokens.
    make = import_module("gateway.assembly.trusted_issuers").make_callers
    made: Callers = make(settings, egress, lambda: snapshots.current().keys, clock, metrics)
    return made


def make_shipping(
    settings: Settings, egress: Egress, database: Database, metrics: Metrics, clock: Clock
) -> Callable[[], Awaitable[object]] | None:
    """Delivers the audit log to the sinks of the settings; None where there are none.

    Raises:
        ConfigurationInvalid: a sink has no address, or one that may not be called.
    """
    if not settings.sinks:
        return None
    # Whoever has no sink does not wait for its parts at the start.
    make = import_module("gateway.assembly.outlets").make_shipper
    shipper = make(settings, egress, database, metrics, clock)
    perform: Callable[[], Awaitable[object]] = shipper.perform
    return perform


def make_renewal(
    settings: Settings,
    egress: Egress,
    providers: Mapping[str, Provider],
    swap: Callable[[str, Provider], None],
    clock: Clock,
    series: CertificateSeries,
) -> Callable[[], Awaitable[object]] | None:
    """Takes over renewed certificates of providers; None where none has files of its own."""
    ways_out = [
        each.config.way_out for each in providers.values() if isinstance(each, HttpProvider)
    ]
    if not any(each is not None and each.files for each in ways_out):
        return None
    renewal = import_module("gateway.assembly.ways_out").Renewal
    made = renewal(settings, egress, providers, swap, clock, series)
    perform: Callable[[], Awaitable[object]] = made.perform
    return perform


def make_rates(settings: Settings, clock: Clock) -> Rates:
    """Rate limits of this worker alone, or shared with others where a server is named.

    Raises:
        ConfigurationInvalid: the optional package is missing, or the password cannot be read.
    """
    if not settings.rates.url:
        return LocalRates(clock)
    module = _with_redis(settings, "money.shared_rates", "rates.url")
    password = rates_password(settings)
    shared: Rates = module.SharedRates(
        settings.rates.url,
        clock,
        password=password.reveal() if password else "",
        permit_lease_s=2 * settings.limits.request_deadline_s,
    )
    return shared


def make_cache(settings: Settings, clock: Clock, count: Callable[[str], None]) -> ResponseCache:
    """The answers of this worker, and behind them those that workers share, if a server is named.

    `count` hears of what could not be read there.

    Raises:
        ConfigurationInvalid: the optional package is missing, or a secret cannot be read.
    """
    cache = settings.response_cache
    if not cache.url or not cache.memory_bytes_max:
        return ResponseCache(cache)
    module = _with_redis(settings, "shared_answers", "response_cache.url")
    password = answers_password(settings)
    seal = ReplySeal(master_key(settings), clock)
    shared: AnswerPlace = module.SharedAnswers(
        cache, seal, clock, count, password.reveal() if password else ""
    )
    return ResponseCache(cache, shared)


def _with_redis(settings: Settings, module: str, key: str) -> Any:
    """A module of the store that needs an optional package: who runs one node does without."""
    try:
        return import_module(f"gateway.store.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gateway"):
            raise  # One of ours, which no package brings.
        reason = "needs an optional package: pip install 'gatewright[redis]'"
        raise ConfigurationInvalid(settings.source, key, reason) from error
