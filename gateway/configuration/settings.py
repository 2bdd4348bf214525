"""Settings: everything that can be configured, as types; `configuration` reads and checks them.

Relative paths are relative to the folder of the file they were read from.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from gateway.configuration.kinds import kind_of
from gateway.configuration.sections import (
    AlertSettings,
    AwsSettings,
    BatchSettings,
    CallerSettings,
    CurrencySettings,
    DriftSettings,
    InspectionSettings,
    MetricsSettings,
    ObligationSettings,
    OidcSettings,
    PolicySettings,
    PriceSettings,
    RatesSettings,
    ResponseCacheSettings,
    ResponsesSettings,
    RetentionSettings,
    SecretReference,
    SecretsSettings,
    SinkSettings,
    VaultSettings,
)


_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - looked for, not bound to


class Listener(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a listener is bound."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls_certificate_file: str = ""
    """A chain in PEM, its own certificate first; with it the listener speaks TLS, and only TLS."""
    tls_key_file: str = ""
    tls_client_ca_file: str = ""
    """Authorities in PEM: callers need a certificate of one of them, besides their keys."""
    tls_client_crl_file: str = ""
    """Revocation lists in PEM, one from each of those authorities."""
    probe_port: int = 0
    """Where only `/health` and `/metrics` are served, without TLS; 0 for nowhere."""
    probe_host: str = "127.0.0.1"

    @property
    def is_encrypted(self) -> bool:
        return bool(self.tls_certificate_file)

    @property
    def url(self) -> str:
        """Its address on this machine, without a slash at the end."""
        host = _ANYWHERE.get(self.host, self.host)
        scheme = "https" if self.is_encrypted else "http"
        return (
            f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"
        )


class AdminListener(Listener, frozen=True, forbid_unknown_fields=True):
    """On the same machine as a data plane, so it has a port of its own by default."""

    port: int = 8081


class DatabaseSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`sqlite+aiosqlite:///path` for one data plane, `postgresql+asyncpg://…` for several."""

    url: str = "sqlite+aiosqlite:///var/gatewright.db"


class AuditSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The first audit device; `worker` names this process's own segment files."""

    directory: str = "var/audit"
    worker: str = "w0"
    segment_bytes_max: int = 64 * 1024 * 1024
    free_bytes_min: int = 256 * 1024 * 1024
    append_deadline_s: float = 2.0
    log_name: str = "gatewright"
    """Names the logs in their checkpoints: the origin is `log_name/organisation`."""
    checkpoint_directory: str = "var/checkpoints"
    """Where signed checkpoints go; best a place that restoring a backup does not touch."""
    checkpoint_period_s: float = 30.0
    pack_directory: str = "var/packs"
    """Where evidence packs wait to be fetched."""
    clock_source: str = ""
    """What the machines' clocks follow; if named, every worker records it and its offset hourly."""
    second_device: Literal["auto", "database", "none"] = "auto"
    """Whether the database takes records while the disk cannot: `auto` if it is PostgreSQL."""


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """The one table of limits on everything a stranger sends."""

    body_bytes_max: int = 10 * 1024 * 1024
    header_bytes_max: int = 16 * 1024
    header_receive_s: float = 10.0
    body_receive_s: float = 30.0
    request_deadline_s: float = 300.0
    first_byte_s: float = 120.0
    stream_idle_s: float = 60.0
    ping_every_s: float = 15.0
    output_tokens_default: int = 16_384
    reply_bytes_max: int = 32 * 1024 * 1024
    concurrent_requests_max: int = 2048
    held_body_bytes_max: int = 512 * 1024 * 1024
    audited_reply_bytes_max: int = 1024 * 1024
    messages_max: int = 2000
    tools_max: int = 256
    keys_max: int = 100_000
    attachments_max: int = 200
    schema_bytes_max: int = 256 * 1024
    choices_max: int = 16
    prompts_max: int = 64
    input_tokens_max: int = 2_000_000
    file_bytes_max: int = 64 * 1024 * 1024
    project_bytes_max: int = 1024 * 1024 * 1024
    batch_lines_max: int = 50_000
    batch_line_bytes_max: int = 1024 * 1024


class RequestSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What a request may name outside itself; by default nothing at all."""

    media_hosts: tuple[str, ...] = ()
    """Hosts from which an upstream may fetch images and documents that a request names."""
    tool_server_hosts: tuple[str, ...] = ()
    """Hosts of remote tool servers (MCP) that a request may have an upstream call."""
    prompt_cache: bool = True
    """Set a prompt-cache breakpoint in long conversations whose caller set none."""


class ProviderSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One upstream. `jurisdiction` is the label that decisions and the egress compare."""

    kind: str
    jurisdiction: str
    base_url: str = ""
    credential: SecretReference | None = None
    allow_plain_http: bool = False
    connect_timeout_s: float = 5.0
    ca_file: str = ""
    """PEM file of the authorities to trust for it, instead of the system's."""
    client_certificate: str = ""
    """PEM file of our certificate there, and its chain."""
    client_key: str = ""
    """PEM file of that certificate's key, which only its owner can read."""
    proxy: str = ""
    """`http://host:port` of a forward proxy that tunnels to it (CONNECT)."""
    proxy_credential: SecretReference | None = None
    """`user:password` for that proxy."""
    assurances: tuple[str, ...] = ()
    """What its contract promises: `no_training`, `no_retention`."""
    native_batches: bool = False
    """Whether lines of batches are handed to its vendor's own batch API, at the batch price."""
    members: tuple[str, ...] = ()
    """For a pool: names of providers of kind `engine`, all in the pool's jurisdiction."""
    engine: str = "gatewright"
    """What kind of engine it is, for its paths and abilities."""
    priorities: bool = False
    """For an engine that schedules by priority: calls carry their tier's number."""
    events: str = ""
    """For a pool's member: where it publishes its KV events; on this machine only."""
    events_replay: str = ""
    credential_header: str = "authorization"
    """The header that carries it: `authorization`, or Microsoft's `api-key`, `x-api-key`."""
    region: str = ""
    """For `bedrock` and `vertex`: the cloud region that is asked."""
    project: str = ""
    """For `vertex`: the id of the project that pays."""
    identity: str = "credential"
    """What proves us to a cloud: `credential`, `access_key` (ID:SECRET), or `ambient`."""
    service: str = ""
    """For `bedrock`: `bedrock-mantle`, or `bedrock-runtime`."""
    cross_region: bool = False
    """Whether the cloud may choose among several regions: profiles, and `global`."""
    token_url: str = ""
    """For `vertex`: where a service account's key is exchanged for tokens, instead of at Google."""

    @property
    def is_in_house(self) -> bool:
        """Judged by its kind; its label is only what an administrator wrote."""
        return kind_of(self.kind).is_in_house


class TargetSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A model at a provider. Numbers left out come from the price catalogue's entry for `model`."""

    provider: str
    model: str
    tier: Literal["cheap", "mid", "frontier"] | None = None
    catalogue: str = ""
    """The catalogue entry whose prices and limits apply; default: `model`."""
    vendor_tools: Literal["refuse", "leave_out"] = "refuse"
    """What to do with requests for tools that only another vendor runs, such as its search."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be configured."""

    source: str
    folder: str
    data_plane: Listener = Listener()
    admin: AdminListener = AdminListener()
    database: DatabaseSettings = DatabaseSettings()
    audit: AuditSettings = AuditSettings()
    secrets: SecretsSettings = SecretsSettings()
    policy: PolicySettings = PolicySettings()
    inspection: InspectionSettings = InspectionSettings()
    limits: Limits = Limits()
    requests: RequestSettings = RequestSettings()
    rates: RatesSettings = RatesSettings()
    responses: ResponsesSettings = ResponsesSettings()
    batches: BatchSettings = BatchSettings()
    response_cache: ResponseCacheSettings = ResponseCacheSettings()
    vault: VaultSettings = VaultSettings()
    aws: AwsSettings = AwsSettings()
    oidc: OidcSettings = OidcSettings()
    callers: CallerSettings = CallerSettings()
    alerts: AlertSettings = AlertSettings()
    metrics: MetricsSettings = MetricsSettings()
    drift: DriftSettings = DriftSettings()
    prices: PriceSettings = PriceSettings()
    currencies: Mapping[str, CurrencySettings] = {}
    retention: RetentionSettings = RetentionSettings()
    obligations: ObligationSettings = ObligationSettings()
    sinks: Mapping[str, SinkSettings] = {}
    admin_url: str = ""
    """Where browsers reach the admin listener, e.g. behind a proxy."""
    data_plane_url: str = ""
    """Where application teams reach the data plane; its own listener if this is empty."""
    providers: Mapping[str, ProviderSettings] = {}
    targets: Mapping[str, TargetSettings] = {}
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def path(self, relative: str) -> Path:
        """A configured path, resolved against the folder of the configuration file."""
        return Path(self.folder, relative)

    @property
    def database_url(self) -> str:
        """The database URL with a relative SQLite path resolved."""
        scheme, separator, path = self.database.url.partition(":///")
        if scheme.startswith("sqlite") and separator and not path.startswith("/"):
            return f"{scheme}:///{self.path(path)}"
        return self.database.url
