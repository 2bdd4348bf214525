"""Sections of the settings beside `settings`: inspection, secrets, outside services, others."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.configuration.guarding import GuardRules
from gateway.obligations import Regime
from gateway.roles import Role


EXPLORATION_MAX = 0.05
OPAQUE_KINDS = ("image", "document", "audio", "video", "binary", "unknown")
"""Kinds of content that no classifier can read."""
WINDOW_LEAST = 50
"""A day, or an hour, with fewer requests is left out of a reference."""


class InspectionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Content no classifier can read makes a request S4; `tolerated_opaque` names kinds that pass.

    Tolerating `image` or `document` means that such content may leave for a managed target unread.
    """

    tolerated_opaque: tuple[str, ...] = ()
    deadline_s: float = 0.025
    deadline_s_per_mib: float = 8.0
    """Added to the deadline for every MiB of the request: a long one may take longer."""
    queue_s: float = 5.0
    """How long a request waits for earlier ones in a worker thread; then it counts as late."""
    inline_bytes_max: int = 8 * 1024
    """Longer requests are inspected in a worker thread, off the event loop."""
    ability_file: str = ""
    """The cheap model's abilities, which `weak_suffices` uses instead of the trained pairs'."""
    calibration_file: str = ""
    """A calibration table: which organisations and routes have a guarantee for the cheap tier."""
    cascade_exploration: float = 0.0
    """Share, up to 0.05, of good cheap answers in cascades that a dearer tier is asked for too."""
    injection: bool = False
    """Score untrusted text of every request, also where no policy asks."""
    output_masked_from: Literal["S1", "S2", "S3", "S4"] = "S3"
    """If policy says to mask answers: the class of findings from which on to mask."""
    verdicts_kept: int = 10_000
    """Verdicts on messages, kept by digest: a conversation's history is read once. 0: none."""


class ResponsesSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Answers that callers may continue with `previous_response_id`; encrypted, per project."""

    keep_days: int = 30
    """0 keeps none; requests that want to continue one are then refused."""
    project_bytes_max: int = 1024 * 1024 * 1024
    """How much space one project's may take, with its conversations; beyond it the oldest go."""
    conversation_keep_days: int = 30
    """Days since a conversation last changed; 0 keeps none."""
    conversations_max: int = 10_000
    """The most conversations of one project; more are refused."""
    background_running_max: int = 32
    """Answers that a worker makes at once while their callers are away; 0 makes none."""
    background_waiting_max: int = 128
    """How many more may wait on a worker for their turn; beyond that they are refused."""
    background_bytes_max: int = 256 * 1024 * 1024
    """How much memory a worker uses for the requests of both."""
    background_project_max: int = 64
    """How many may be under way for one project, on all workers together."""
    background_deadline_s: float = 3600.0
    """How long one may take, including its wait."""


class SecretReference(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a secret is kept; exactly one of these."""

    env: str = ""
    file: str = ""
    db: str = ""
    """The name of a secret that is sealed in the database."""
    vault: str = ""
    """`path#field` below the KV mount of HashiCorp Vault."""
    aws_sm: str = ""
    """`name` or `name#field` in AWS Secrets Manager."""

    @property
    def is_local(self) -> bool:
        return not (self.db or self.vault or self.aws_sm)

    @property
    def places(self) -> int:
        return sum(map(bool, (self.env, self.file, self.db, self.vault, self.aws_sm)))


class SecretsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Keys the gateway itself needs; `gatewright init` makes the files with mode 0600."""

    pepper: SecretReference = SecretReference(file="var/pepper.key")
    pepper_version: int = 1
    other_peppers: Mapping[str, SecretReference] = {}
    """By version: former ones, for keys that were issued under them, and the next one."""
    master_key: SecretReference = SecretReference(file="var/master.key")
    other_master_keys: tuple[SecretReference, ...] = ()
    """They decrypt what they encrypted, and encrypt nothing: former ones, and the next one early.
    """
    key_service: str = ""
    """The service that unwraps the master keys: `vault:NAME` of a transit key, or `aws-kms:KEY`."""
    admin_token: SecretReference = SecretReference(file="var/admin.token")
    refresh_s: float = 5.0
    outage_tolerance_s: float = 3600.0
    """How long a credential stays valid while its store cannot confirm it."""
    former_kept_s: float = 86_400.0
    """How long a credential of the database can be put back after a switch to its next version."""


class VaultSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """HashiCorp Vault, for references with `vault`."""

    url: str = ""
    mount: str = "secret"
    namespace: str = ""
    auth: Literal["approle", "kubernetes", "token"] = "approle"
    auth_mount: str = ""
    role: str = ""
    credential: SecretReference = SecretReference(file="var/vault.secret")
    """The AppRole's secret id, or the token."""
    transit_mount: str = "transit"
    kubernetes_token_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105


class GroupRole(Struct, frozen=True, forbid_unknown_fields=True):
    """A role that everybody in a group of the OpenID provider holds."""

    group: str
    """Exactly as the provider writes it."""
    role: Role
    organisation: str
    """The organisation in which it holds; `*` means all of them, and has to be written."""


class OidcSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """An OpenID provider by which people sign in to the admin listener."""

    issuer: str = ""
    client_id: str = ""
    client_secret: SecretReference | None = None
    scope: str = "openid profile email"
    hosts: tuple[str, ...] = ()
    """Other hosts that the provider's addresses may have; its issuer's own is always allowed."""
    groups_claim: Annotated[tuple[str, ...], Meta(min_length=1)] = ("groups",)
    """Where an identity token names groups: a claim, or names of claims within claims."""
    group_roles: tuple[GroupRole, ...] = ()


class IssuerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer of tokens (JWT) that prove callers; bindings to keys say who they may be."""

    issuer: str
    """The `iss` of its tokens, letter by letter."""
    audience: str
    """The name of this gateway in their `aud`."""
    jwks_url: str = ""
    """Where it publishes its keys; read through the egress."""
    jwks_file: str = ""
    """Or a file with them, if nothing outside is to be asked."""
    ca_file: str = ""
    """PEM file of the authorities to trust for `jwks_url`, instead of the system's."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    other_audiences: tuple[str, ...] = ()
    """Audiences that a token may name besides this gateway; any other is refused."""
    organisations: tuple[str, ...] = ()
    """Organisations in whose projects its subjects may be bound; none means all."""
    leeway_s: float = 30.0
    token_lifetime_s: float = 86_400.0
    """The longest from a token's `iat` to its `exp`."""
    outage_s: float = 3600.0
    """How long its keys are trusted while it cannot be reached."""


class CallerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Who is trusted to prove callers, besides the keys that are issued here."""

    issuers: Mapping[str, IssuerSettings] = {}


class OutletSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A place outside that is sent something, and the way there."""

    url: str = ""
    credential: SecretReference | None = None
    """Sent as a bearer token."""
    headers: Mapping[str, SecretReference] = {}
    """Complete values of headers by name, such as `api-key`; kept like any secret."""
    allow_plain_http: bool = False
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


class AlertSettings(OutletSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A web hook that is called when a given share of a budget is used up."""

    signing_key: SecretReference | None = None
    """Signs the messages, by the Standard Webhooks specification."""
    percents: tuple[int, ...] = (50, 80, 100)
    dear_hour_microusd: int = 5_000_000
    """How far an hour of a team or a key must exceed the usual cost; 0 watches no hours."""


class MetricsSettings(OutletSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An OpenTelemetry collector that metrics are pushed to; `/metrics` works without it.

    Its `url` is `https://…/v1/metrics`. The resource attributes are the same as those of spans.
    """

    period_s: float = 60.0
    installation: str = ""
    """Sent as `service.namespace`: two installations may each have a worker `w0`."""
    environment: str = ""
    """Sent as `deployment.environment.name`, such as `production`."""


class DriftSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Profiles of prompts and answers, compared with the four weeks before; counts only."""

    enabled: bool = True
    index_least: float = 0.1
    """Population stability index from which a difference beyond chance is a drift."""
    requests_least: int = 200
    """In a window of one, six or twenty-four hours; fewer are not judged."""
    withdraws_guarantee: bool = True
    """While a route's prompts drift, its calibration promises nothing: no request is `cheap`."""


class PriceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The enterprise's own prices."""

    file: str = ""
    """Entries in the form of `gateway/money/prices.toml`; each stands before the shipped one."""


class SinkSettings(OutletSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A place outside that gets every record of the audit log, and its checkpoints.

    Its `url` is `https://…` (http, otlp), or `tls://HOST:PORT`, `tcp://HOST:PORT` (syslog).
    """

    kind: Literal["jsonl", "syslog", "http", "otlp"]
    file: str = ""
    """Of `jsonl`."""
    signing_key: SecretReference | None = None
    """Signs what is sent (http, otlp), by the Standard Webhooks specification."""


class RetentionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How long content can be read; records and proofs stay."""

    run: Literal["typed", "daily"] = "typed"
    """Who destroys expired content: a person by a command, or each process once a day."""
    classes: Mapping[str, int] = {}
    """Days per class; with 0, or without an entry, content is kept for ever."""
    default: str = ""
    """The class of organisations without one of their own."""
    organisations: Mapping[str, str] = {}
    """Classes by organisation."""


class ObligationSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The rules that organisations say bind them; clocks and the checklist follow from these."""

    default: tuple[Regime, ...] = ()
    """For organisations that are not named."""
    organisations: Mapping[str, tuple[Regime, ...]] = {}

    def of(self, organisation: str) -> tuple[Regime, ...]:
        return self.organisations.get(organisation, self.default)


class CurrencySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How amounts are shown in another currency; nothing is booked in it."""

    per_usd: str
    """A decimal number, as text so that no digit is lost."""
    as_of: str


class AwsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """AWS, for references with `aws_sm`; empty values mean boto3's defaults."""

    region: str = ""
    endpoint_url: str = ""


class BatchSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Files and batches of projects; encrypted, processed line by line beside other requests."""

    enabled: bool = True
    """Without it these addresses do not exist, and existing batches stand still."""
    open_max: int = 100
    """Unfinished batches of one project; more are refused with 429."""
    concurrent_lines: int = 8
    """Lines that a worker processes at once."""
    window_hours: float = 24.0
    """How long a batch may take; lines that were not sent by then expire."""
    native_lines_max: int = 10_000
    """Lines that are handed to a vendor's own batch API together."""
    native_poll_s: float = 15.0
    """How soon a vendor is first asked for a batch's state; later, up to twenty times as rarely."""
    erasure_cancels: bool = True
    """Whether an erasure ends a vendor's batch that also holds others' lines; they go alone then.
    """
    keep_days: float = 30.0
    """How long files, and batches with their results, can be read."""


class ResponseCacheSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Answers that policy allows to be repeated: in memory, and where workers share them."""

    memory_bytes_max: int = 64 * 1024 * 1024
    """0 keeps none, whatever policies say."""
    organisation_bytes_max: int = 16 * 1024 * 1024
    """How much of it one organisation's answers may take."""
    reply_bytes_max: int = 512 * 1024
    """A longer answer is not kept."""
    wait_s: float = 30.0
    """How long a request waits for the answer to an equal one under way; 0: not at all."""
    embeddings: str = ""
    """An in-house target that makes vectors, for policies that compare questions."""
    vectors_max: int = 4096
    """Questions that can be compared; each takes four bytes a dimension and eight a word."""
    url: str = ""
    """`redis://host:port/number` of a store that workers share; `rediss://` with TLS."""
    password: SecretReference | None = None
    deadline_s: float = 0.005
    """After this time without an answer, the shared store counts as empty."""


class RatesSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where workers share rate limits; without a URL each worker has its own."""

    url: str = ""
    """`redis://host:port/number`, also for Valkey; `rediss://` with TLS."""
    password: SecretReference | None = None


class PolicySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The policy document; empty means the default document that is shipped."""

    file: str = ""
    headers: tuple[str, ...] = ()
    """Request headers that policies may look at; they are also recorded."""
    guard: GuardRules = GuardRules()
    """Limits for a canary whose version has no rules of its own."""
