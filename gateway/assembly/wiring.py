"""Settings → the parts of a worker that depend on no other part: egress, upstreams, audit log."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

from gateway.audit.device import AuditLimits
from gateway.audit.second import TwoDeviceLog
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock
from gateway.configuration.kinds import OF_WAYS_OUT, kind_of
from gateway.configuration.settings import ProviderSettings, Settings
from gateway.continuing.conversing import Conversations
from gateway.continuing.threads import Threads
from gateway.errors import ConfigurationInvalid
from gateway.ports import AuditLog, Provider
from gateway.providers.clouds.provider import CloudProvider
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.egress.reply import EgressLimits
from gateway.providers.egress.way_out import WayOut
from gateway.providers.registry import (
    build_pool,
    build_provider,
    clouds_among,
    is_pool,
    parcel_service,
)
from gateway.secrets.credentials import master_key, provider_credential
from gateway.secrets.secret import Secret
from gateway.store.conversations import DatabaseConversations
from gateway.store.engine import Database
from gateway.store.erasure.folder_erasures import FolderErasures
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.second_device import DatabaseDevice
from gateway.store.kept_answers import DatabaseAnswers
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.types import DialectName


ALONE_FLUSH_S = 1.0
"""On SQLite this worker is the only one: no other waits to hear what it has spent."""
SHARED_FLUSH_S = 0.2
IDLE_S = 2.0
"""For so long money may lie idle in a slice beyond its size, or where nobody asks for it."""


def make_egress(settings: Settings) -> Egress:
    """The one way out, with the limits of the settings."""
    limits = settings.limits
    return Egress(
        EgressLimits(
            first_byte_s=limits.first_byte_s,
            idle_s=limits.stream_idle_s,
            reply_bytes_max=limits.reply_bytes_max,
        )
    )


def make_providers(
    settings: Settings, egress: Egress, monotonic_s: Callable[[], float]
) -> dict[str, Provider]:
    """An adapter per configured upstream, its credential resolved; pools after their members.

    Raises:
        ConfigurationInvalid: with the file, the key and the reason.
    """
    with as_setting(settings, "providers."):
        return _providers(settings, egress, monotonic_s)


@contextmanager
def as_setting(settings: Settings, section: str, key: str = "") -> Iterator[None]:
    """Errors of an adapter name the file too: adapters know their settings, not where these stand.

    Those whose source begins with `section` are told as errors of `key`, or of what they say.
    """
    try:
        yield
    except ConfigurationInvalid as error:
        if not error.source.startswith(section):
            raise
        key = key or f"{error.source}.{error.key}"
        raise ConfigurationInvalid(settings.source, key, error.reason) from error


def _providers(
    settings: Settings, egress: Egress, monotonic_s: Callable[[], float]
) -> dict[str, Provider]:
    configs = {
        name: provider_config(
            name, provider, provider_credential(settings, name), way_out_of(settings, name)
        )
        for name, provider in settings.providers.items()
    }
    pools = {name: config for name, config in configs.items() if is_pool(config.kind)}
    providers = {
        name: build_provider(config, egress)
        for name, config in configs.items()
        if name not in pools
    }
    for name, setting in settings.providers.items():
        _check_fitting(name, setting)
    for name, provider in providers.items():
        if settings.providers[name].native_batches and parcel_service(provider) is None:
            reason = "its kind has no batch API that we speak"
            raise ConfigurationInvalid(f"providers.{name}", "native_batches", reason)
    for name, config in pools.items():
        members = settings.providers[name].members
        providers[name] = build_pool(config, members, providers, monotonic_s)
    _check_models(settings, clouds_among(providers))
    return providers


def _check_models(settings: Settings, clouds: Mapping[str, CloudProvider]) -> None:
    """What a target asks a cloud for says where it may be answered."""
    for name, target in settings.targets.items():
        cloud = clouds.get(target.provider)
        if cloud is not None and (reason := cloud.check_model(target.model)):
            raise ConfigurationInvalid(settings.source, f"targets.{name}.model", reason)


def _check_fitting(name: str, provider: ProviderSettings) -> None:
    """What says nothing of a provider of this kind is a mistake: somebody thinks that it holds."""
    usual = ProviderSettings(provider.kind, provider.jurisdiction)
    for key in kind_of(provider.kind).unfit:
        if getattr(provider, key) != getattr(usual, key):
            reason = f"says nothing of a provider of kind {provider.kind}"
            raise ConfigurationInvalid(f"providers.{name}", key, reason)


def taking_parcels(
    settings: Settings, providers: Mapping[str, Provider]
) -> Callable[[str, DialectName], bool]:
    """Whether a provider's own batch API may be used, for bodies of a dialect."""

    def takes(provider: str, dialect: DialectName) -> bool:
        service = parcel_service(providers.get(provider))
        is_chosen = settings.providers[provider].native_batches
        return is_chosen and service is not None and dialect in service.dialects

    return takes


def make_audit_log(settings: Settings, clock: Clock) -> SegmentedAuditLog:
    """This worker's own segments."""
    return SegmentedAuditLog(
        settings.path(settings.audit.directory),
        settings.audit.worker,
        keys=master_key(settings),
        clock=clock,
        limits=_audit_limits(settings),
    )


def make_evidence(
    settings: Settings, segments: SegmentedAuditLog, database: Database, clock: Clock
) -> TwoDeviceLog:
    """The log that requests are written to: segments, and the database while they cannot be."""
    chosen = settings.audit.second_device
    has_second = chosen == "database" or (chosen == "auto" and database.kind == "postgresql")
    if not has_second:
        return TwoDeviceLog(segments, None)
    keys, limits = master_key(settings), _audit_limits(settings)
    return TwoDeviceLog(
        segments, DatabaseDevice(database, settings.audit.worker, keys, clock, limits)
    )


def make_erasures(
    settings: Settings, parts: Integration, log: AuditLog, clock: Clock
) -> FolderErasures:
    """What carries erasures out in this worker's audit folder, wherever they were agreed to."""
    worker, keys = settings.audit.worker, master_key(settings)
    return FolderErasures(settings, parts, keys, log, clock, worker=worker)


def make_ledger(settings: Settings, database: Database, clock: Clock) -> LeasedLedger:
    """This worker's part of the budgets."""
    flush_every_s = ALONE_FLUSH_S if database.kind == "sqlite" else SHARED_FLUSH_S
    return LeasedLedger(
        LeaseTable(database, clock),
        clock,
        settings.audit.worker,
        flush_every_s=flush_every_s,
        quiet_rounds=round(IDLE_S / flush_every_s),
    )


def _audit_limits(settings: Settings) -> AuditLimits:
    return AuditLimits(
        segment_max_bytes=settings.audit.segment_bytes_max,
        free_floor_bytes=settings.audit.free_bytes_min,
        deadline_s=settings.audit.append_deadline_s,
    )


def way_out_of(settings: Settings, name: str) -> WayOut | None:
    """A provider's own way out, of files as they are now; None for those that have none.

    Raises:
        ConfigurationInvalid: a file cannot be used, or a setting means nothing without another.
    """
    provider = settings.providers[name]
    if not any(getattr(provider, key) for key in OF_WAYS_OUT):
        return None
    # Who has none does not wait for the parts that read certificates.
    made: WayOut = import_module("gateway.assembly.ways_out").make_way_out(settings, name)
    return made


def provider_config(
    name: str,
    provider: ProviderSettings,
    credential: Secret[str] | None,
    way_out: WayOut | None,
) -> ProviderConfig:
    """What an upstream's adapter is built from, with credential and way out of this moment."""
    return ProviderConfig(
        name=name,
        kind=provider.kind,
        jurisdiction=provider.jurisdiction,
        base_url=provider.base_url,
        credential=credential,
        credential_is_named=provider.credential is not None,
        credential_may_come=provider.credential is not None and not provider.credential.env,
        allow_plain_http=provider.allow_plain_http,
        connect_timeout_s=provider.connect_timeout_s,
        way_out=way_out,
        engine=provider.engine,
        priorities=provider.priorities,
        events=provider.events,
        events_replay=provider.events_replay,
        credential_header=provider.credential_header,
        region=provider.region,
        project=provider.project,
        identity=provider.identity,
        service=provider.service,
        cross_region=provider.cross_region,
        token_url=provider.token_url,
    )


def make_threads(settings: Settings, database: Database, clock: Clock, shared: Clock) -> Threads:
    """What callers may continue, kept in the database; turns end by the clock that is `shared`."""
    master, limits = master_key(settings), settings.limits
    kept = DatabaseConversations(database, master)
    conversations = Conversations(kept, shared, settings.responses, limits)
    answers = DatabaseAnswers(database, master)
    return Threads(answers, clock, settings.responses, limits, conversations)


def visible_headers(settings: Settings) -> dict[bytes, str]:
    """The request headers that policies may look at, with the names they have there."""
    return {name.encode(): name.replace("-", "_") for name in settings.policy.headers}
