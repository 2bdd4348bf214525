"""Sections of the settings beside `settings`: inspection, secrets, outside services, others."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.configuration.guarding import GuardRules
from gateway.obligations import Regime
from gateway.roles import Role


EXPLORATION_MAX = 0.05
OPAQUE_KINDS = ("image", "document", "audio", "video", "binary", "unknown")
"""Of content that no classifier can read."""
WINDOW_LEAST = 50
"""A day, or an hour, with fewer requests is no part of a reference."""


class InspectionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Content no classifier can read makes a request S4; `tolerated_opaque` names kinds that pass.

    Tolerating `image` or `document` means that such content may leave for a managed target unread.
    """

    tolerated_opaque: tuple[str, ...] = ()
    deadline_s: float = 0.025
    deadline_s_per_mib: float = 8.0
    """Added to the deadline for every MiB of the request: a long one may take longer."""
    queue_s: float = 5.0
    """A request in a worker thread waits so long for those before it; then it counts as late."""
    inline_bytes_max: int = 8 * 1024
    """Longer requests are inspected in a worker thread, off the event loop."""
    ability_file: str = ""
    """The cheap model's abilities: what `weak_suffices` is of, instead of the trained pairs'."""
    calibration_file: str = ""
    """A calibration table: which organisations and routes have a guarantee for the cheap tier."""
    cascade_exploration: float = 0.0
    """Share, up to 0.05, of good cheap answers in cascades that a dearer tier gives as well."""
    injection: bool = False
    """Score untrusted text of every request, also where no policy asks."""
    output_masked_from: Literal["S1", "S2", "S3", "S4"] = "S3"
    """Where policy says to mask answers: from which class of findings on."""
    verdicts_kept: int = 10_000
    """Verdicts on messages, kept by digest: a conversation's history is read once. 0: none."""


class ResponsesSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Answers that callers may continue with `previous_response_id`; encrypted, per project."""

    keep_days: int = 30
    """0 keeps none; requests that want to continue one are then refused."""
    project_bytes_max: int = 1024 * 1024 * 1024
    """What those of one project may take, with its conversations; beyond that the oldest go."""
    conversation_keep_days: int = 30
    """Since a conversation was changed lastly; 0 keeps none."""
    conversations_max: int = 10_000
    """So many of one project; more are refused."""
    background_running_max: int = 32
    """Answers that a worker makes at once while their callers are away; 0 makes none."""
    background_waiting_max: int = 128
    """How many more wait there for their turn; beyond that they are refused."""
    background_bytes_max: int = 256 * 1024 * 1024
    """What a worker holds of the requests of both."""
    background_project_max: int = 64
    """So many under way of one project, on all workers together."""
    background_deadline_s: float = 3600.0
    """How long one may take, with the time that it waits."""


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
    """By version: those before, for keys that were issued under them, and the next one."""
    master_key: SecretReference = SecretReference(file="var/master.key")
    other_master_keys: tuple[SecretReference, ...] = ()
    """They open what they sealed and seal nothing: former ones, and the next one before its day."""
    key_service: str = ""
    """What unwraps the master keys: `vault:NAME` of a transit key, or `aws-kms:KEY`."""
    admin_token: SecretReference = SecretReference(file="var/admin.token")
    refresh_s: float = 5.0
    outage_tolerance_s: float = 3600.0
    """How long a credential stays good that its place cannot confirm."""
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
    """Where it holds; `*` is everywhere, and has to be said."""


class OidcSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """An OpenID provider by which people sign in to the admin listener."""

    issuer: str = ""
    client_id: str = ""
    client_secret: SecretReference | None = None
    scope: str = "openid profile email"
    hosts: tuple[str, ...] = ()
    """At which else the provider may say that its addresses are; its issuer's own needs no word."""
    groups_claim: Annotated[tuple[str, ...], Meta(min_length=1)] = ("groups",)
    """Where an identity token names groups: a claim, or names of claims within claims."""
    group_roles: tuple[GroupRole, ...] = ()


class IssuerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody whose tokens (JWT) prove callers; whom they may be is bound to keys."""

    issuer: str
    """The `iss` of its tokens, letter by letter."""
    audience: str
    """How this gateway is called in their `aud`."""
    jwks_url: str = ""
    """Where it publishes its keys; asked for through the egress."""
    jwks_file: str = ""
    """Or a file with them, where nothing outside is asked."""
    ca_file: str = ""
    """PEM file of the authorities to trust for `jwks_url`, instead of the system's."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    other_audiences: tuple[str, ...] = ()
    """Whom a token may name beside this gateway; one for anybody else is not taken."""
    organisations: tuple[str, ...] = ()
    """In whose projects its subjects may be bound; none named for all."""
    leeway_s: float = 30.0
    token_lifetime_s: float = 86_400.0
    """The longest from a token's `iat` to its `exp`."""
    outage_s: float = 3600.0
    """So long its keys are believed while it does not say them again."""


class CallerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Who is believed about callers, besides the keys that are issued here."""

    issuers: Mapping[str, IssuerSettings] = {}


class OutletSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A place outside that is told something, and the way there."""

    url: str = ""
    credential: SecretReference | None = None
    """Sent as a bearer token."""
    headers: Mapping[str, SecretReference] = {}
    """Whole values of headers by their names, such as `api-key`; kept like any secret."""
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
    """A web hook that is told when so much of a budget is used up."""

    signing_key: SecretReference | None = None
    """What is sent is signed with it, by the Standard Webhooks specification."""
    percents: tuple[int, ...] = (50, 80, 100)
    dear_hour_microusd: int = 5_000_000
    """So far beyond the usual an hour of a team or a key has to cost; 0 watches no hours."""


class MetricsSettings(OutletSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A collector of OpenTelemetry that metrics are pushed to; `/metrics` is there without it.

    Its `url` is `https://…/v1/metrics`. Who the points are of is told of spans in the same words.
    """

    period_s: float = 60.0
    installation: str = ""
    """Told as `service.namespace`: two installations may each have a worker `w0`."""
    environment: str = ""
    """Told as `deployment.environment.name`, such as `production`."""


class DriftSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Profiles of prompts and answers, compared with the four weeks before; counts only."""

    enabled: bool = True
    index_least: float = 0.1
    """Population stability index from which a difference beyond chance is a drift."""
    requests_least: int = 200
    """In a window of an hour, six or twenty-four; fewer are not judged."""
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
    """What is sent is signed with it (http, otlp), by the Standard Webhooks specification."""


class RetentionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How long content can be read; records and proofs stay."""

    run: Literal["typed", "daily"] = "typed"
    """Who destroys what is past its time: whoever types it, or each process once a day."""
    classes: Mapping[str, int] = {}
    """Days per class; 0, or no entry, keeps for ever."""
    default: str = ""
    """The class of organisations that have none of their own."""
    organisations: Mapping[str, str] = {}
    """Classes by organisation."""


class ObligationSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """By which rules organisations say they are bound: clocks and the checklist follow from it."""

    default: tuple[Regime, ...] = ()
    """Of organisations that are not named."""
    organisations: Mapping[str, tuple[Regime, ...]] = {}

    def of(self, organisation: str) -> tuple[Regime, ...]:
        return self.organisations.get(organisation, self.default)


class CurrencySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How amounts are shown in another currency; nothing is booked in it."""

    per_usd: str
    """A decimal number, as text so that no digit is lost."""
    as_of: str


class AwsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """AWS, for references with `aws_sm`; empty values are those of boto3."""

    region: str = ""
    endpoint_url: str = ""


class BatchSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Files and batches of projects; encrypted, worked off line by line beside other requests."""

    enabled: bool = True
    """Without it there are no such addresses, and batches that exist stand still."""
    open_max: int = 100
    """Batches of one project that are not over at once; more are refused with 429."""
    concurrent_lines: int = 8
    """Lines that a worker has under way at once."""
    window_hours: float = 24.0
    """How long a batch may take; lines that were not sent by then expire."""
    native_lines_max: int = 10_000
    """Lines that are handed to a vendor's own batch API together."""
    native_poll_s: float = 15.0
    """How soon a vendor is asked how its batch stands; later up to twenty times as rarely."""
    erasure_cancels: bool = True
    """Whether an erasure ends a vendor's batch that holds lines of others too; they go alone."""
    keep_days: float = 30.0
    """How long files, and batches with their results, can be read."""


class ResponseCacheSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Answers that policy lets be given again: in memory, and where workers share them."""

    memory_bytes_max: int = 64 * 1024 * 1024
    """0 keeps none, whatever policies say."""
    organisation_bytes_max: int = 16 * 1024 * 1024
    """What one organisation's answers may take of it."""
    reply_bytes_max: int = 512 * 1024
    """A longer answer is not kept."""
    wait_s: float = 30.0
    """How long a request waits for the answer to an equal one under way; 0: not at all."""
    embeddings: str = ""
    """An in-house target that makes vectors, for policies that compare questions."""
    vectors_max: int = 4096
    """Questions that can be compared; each takes four bytes a dimension and eight a word."""
    url: str = ""
    """`redis://host:port/number` of a place that workers share; `rediss://` with TLS."""
    password: SecretReference | None = None
    deadline_s: float = 0.005
    """A shared place that has not answered by then has nothing."""


class RatesSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where workers share rate limits; without a URL each worker limits by itself."""

    url: str = ""
    """`redis://host:port/number`, also for Valkey; `rediss://` with TLS."""
    password: SecretReference | None = None


class PolicySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The policy document; empty means the default document that is shipped."""

    file: str = ""
    headers: tuple[str, ...] = ()
    """Request headers that policies may look at; they are also recorded."""
    guard: GuardRules = GuardRules()
    """What a canary must keep whose version has no rules of its own."""
