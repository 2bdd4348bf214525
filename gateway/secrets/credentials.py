"""Resolves the settings' references to secrets. It knows where they are, not what they open."""

from collections.abc import Sequence
from importlib import import_module

from gateway.clock import SystemClock
from gateway.configuration.kinds import kind_of
from gateway.configuration.reading import read_environment
from gateway.configuration.sections import OutletSettings, SecretReference
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid
from gateway.secrets.envelope import KEY_BYTES, MasterKey, key_bytes
from gateway.secrets.key_services import KeyService, KeyServiceFailed, is_wrapped
from gateway.secrets.secret import Secret
from gateway.secrets.sources import EnvironmentSecret, FileSecret, SecretSource


PEPPER_BYTES_MIN = 32
TOKEN_LENGTH_MIN = 20
_LETTERS_MIN = 8
"""A random text of this length almost certainly has so many different characters."""
_unwrapped: dict[str, Secret[bytes]] = {}
"""Master keys that a key service unwrapped for this process, by their wrapped text."""
_EXAMPLES = ("changeme", "change-me", "change_me", "secret", "password", "example", "default")


def source_of(settings: Settings, reference: SecretReference, key: str) -> SecretSource:
    """Where a secret is kept; `key` is the setting that says so, for errors."""
    if reference.env:
        value = read_environment(reference.env) or ""
        return EnvironmentSecret({reference.env: value}, reference.env)
    return FileSecret(settings.path(reference.file), key)


def provider_credential(settings: Settings, provider: str) -> Secret[str] | None:
    """A provider's credential; None if it needs none, or its variable is not set.

    Raises:
        ConfigurationInvalid: it names a file that cannot be used.
    """
    reference = settings.providers[provider].credential
    if reference is None or not reference.is_local:
        return None  # Those of other places are read when the worker starts.
    if reference.env and read_environment(reference.env) is None:
        return None
    return source_of(settings, reference, f"providers.{provider}.credential").load()


def credential_problem(settings: Settings, provider: str) -> str:
    """Why a provider's credential cannot be used, as this process sees it; empty if it can.

    Unknown, hence empty, if only workers read it.
    """
    named = settings.providers[provider]
    if named.credential is None:
        is_needed = kind_of(named.kind).needs_credential and named.identity != "ambient"
        return "no credential" if is_needed else ""
    if not named.credential.is_local:
        return ""
    try:
        return "" if provider_credential(settings, provider) else "no credential"
    except ConfigurationInvalid as error:
        return f"its credential {error.reason}"


def _optional(
    settings: Settings, reference: SecretReference | None, key: str
) -> Secret[str] | None:
    """A secret that the setting `key` may name; None if it names none.

    Raises:
        ConfigurationInvalid: it cannot be read.
    """
    return source_of(settings, reference, key).load() if reference else None


def proxy_credential(
    settings: Settings, reference: SecretReference | None, section: str
) -> Secret[str] | None:
    """What authenticates us to a section's proxy, as `user:password`; None if it needs nothing."""
    return _optional(settings, reference, f"{section}.proxy_credential")


def headers_of(settings: Settings, outlet: OutletSettings, section: str) -> dict[str, Secret[str]]:
    """Headers that an outside place requires with each message, by their names.

    Raises:
        ConfigurationInvalid: one cannot be read.
    """
    return {
        name: source_of(settings, reference, f"{section}.headers.{name}").load()
        for name, reference in outlet.headers.items()
    }


def rates_password(settings: Settings) -> Secret[str] | None:
    """The password of the server that keeps shared rate limits; None if it has none."""
    return _optional(settings, settings.rates.password, "rates.password")


def answers_password(settings: Settings) -> Secret[str] | None:
    """The password of the server that keeps shared answers; None if it has none."""
    return _optional(settings, settings.response_cache.password, "response_cache.password")


def oidc_secret(settings: Settings) -> Secret[str] | None:
    """Our secret for the OpenID provider; None for a public client."""
    return _optional(settings, settings.oidc.client_secret, "oidc.client_secret")


def alerts_credential(settings: Settings) -> Secret[str] | None:
    """The bearer token for the web hook of alerts; None if it takes none."""
    return _optional(settings, settings.alerts.credential, "alerts.credential")


def metrics_credential(settings: Settings) -> Secret[str] | None:
    """The bearer token for the collector of metrics; None if it takes none."""
    return _optional(settings, settings.metrics.credential, "metrics.credential")


def alerts_signing_key(settings: Settings) -> Secret[str] | None:
    """The key that signs messages to the web hook of alerts; None if they are not signed."""
    return _optional(settings, settings.alerts.signing_key, "alerts.signing_key")


def sink_signing_key(settings: Settings, sink: str) -> Secret[str] | None:
    """The key that signs a sink's deliveries; None if they are not signed."""
    return _optional(settings, settings.sinks[sink].signing_key, f"sinks.{sink}.signing_key")


def sink_credential(settings: Settings, sink: str) -> Secret[str] | None:
    """The bearer token for a sink; None if it takes none."""
    return _optional(settings, settings.sinks[sink].credential, f"sinks.{sink}.credential")


def pepper(settings: Settings) -> bytes:
    """The secret for the digests of new virtual keys.

    Raises:
        ConfigurationInvalid: it cannot be read, or is too short to be a secret.
    """
    return pepper_at(settings, "secrets.pepper", settings.secrets.pepper)


def all_peppers(settings: Settings) -> dict[int, bytes]:
    """This pepper and the others that the settings name, by version; raises as `pepper`."""
    versions = [settings.secrets.pepper_version, *map(int, settings.secrets.other_peppers)]
    named = zip(versions, named_peppers(settings), strict=True)
    return {version: pepper_at(settings, *each) for version, each in named}


def named_peppers(settings: Settings) -> list[tuple[str, SecretReference]]:
    """Each setting that names a pepper, and where that is; the current one first."""
    others = settings.secrets.other_peppers.items()
    return [
        ("secrets.pepper", settings.secrets.pepper),
        *((f"secrets.other_peppers.{version}", other) for version, other in others),
    ]


def pepper_setting(settings: Settings, version: int) -> str:
    """The setting that names the pepper of a version; empty if none does."""
    if version == settings.secrets.pepper_version:
        return "secrets.pepper"
    is_named = str(version) in settings.secrets.other_peppers
    return f"secrets.other_peppers.{version}" if is_named else ""


def pepper_at(settings: Settings, key: str, reference: SecretReference) -> bytes:
    """A pepper, of the setting `key`; raises as `pepper`."""
    value = source_of(settings, reference, key).load().reveal().encode()
    if len(value) < PEPPER_BYTES_MIN:
        reason = f"must have at least {PEPPER_BYTES_MIN} bytes"
        raise ConfigurationInvalid(settings.source, key, reason)
    _refuse_default(settings, value.decode(), key)
    return value


def master_key(settings: Settings) -> MasterKey:
    """The key that wraps the keys of all content, with the others that the settings name.

    If a key service is configured it unwraps them, once for each process.

    Raises:
        ConfigurationInvalid: one cannot be read, is not 32 bytes in base64, or the key service
            does not unwrap it.
    """
    return assembled([key_bytes_at(settings, *named) for named in named_master_keys(settings)])


def assembled(raw: Sequence[bytes]) -> MasterKey:
    """The first of these keys, with the others beside it."""
    own, *others = (Secret(each) for each in raw)
    return MasterKey(own, [MasterKey(each) for each in others])


def named_master_keys(settings: Settings) -> list[tuple[str, SecretReference]]:
    """Each setting that names a master key, and where that is; the current one first."""
    others = enumerate(settings.secrets.other_master_keys)
    return [
        ("secrets.master_key", settings.secrets.master_key),
        *((f"secrets.other_master_keys[{index}]", other) for index, other in others),
    ]


def key_bytes_at(
    settings: Settings, key: str, reference: SecretReference, *, plain_too: bool = False
) -> bytes:
    """A master key, of the setting `key`; `plain_too` accepts one that is not wrapped yet.

    Raises:
        ConfigurationInvalid: see `master_key`.
    """
    text = source_of(settings, reference, key).load().reveal().strip()
    is_plain = not is_wrapped(text)
    if is_plain and settings.secrets.key_service and not plain_too:
        reason = "is not wrapped: run `gatewright secrets wrap`"
        raise ConfigurationInvalid(settings.source, key, reason)
    if is_plain:
        file = reference.file
        return key_bytes(text, str(settings.path(file)) if file else reference.env, key)
    known = _unwrapped.get(text)
    if known is None:
        service = key_service(settings)
        if service is None:
            reason = f"is missing: what {key} names is wrapped"
            raise ConfigurationInvalid(settings.source, "secrets.key_service", reason)
        try:
            known = Secret(service.unwrap(text))
        except KeyServiceFailed as error:
            setting = "secrets.key_service"
            raise ConfigurationInvalid(settings.source, setting, str(error)) from error
        if len(known.reveal()) != KEY_BYTES:
            # Such as the text of the key's file, wrapped by hand.
            reason = f"unwraps to something else than a key of {KEY_BYTES} bytes"
            raise ConfigurationInvalid(settings.source, key, reason)
        _unwrapped[text] = known
    return known.reveal()


def key_service(settings: Settings) -> KeyService | None:
    """The service that unwraps the master key; None if its file holds it unwrapped.

    Raises:
        ConfigurationInvalid: its kind is unknown, or its optional package is missing.
    """
    kind, _, name = settings.secrets.key_service.partition(":")
    if not kind:
        return None
    modules = {"vault": ("vault", "vault_transit"), "aws-kms": ("aws", "aws_kms")}
    if kind not in modules or not name:
        reason = "must be vault:NAME or aws-kms:KEY"
        raise ConfigurationInvalid(settings.source, "secrets.key_service", reason)
    extra, module = modules[kind]
    try:
        # Optional packages that load slowly: imported only if a service is configured.
        found = import_module(f"gateway.secrets.{module}")
        made: KeyService
        if kind == "aws-kms":
            made = found.AwsKms(settings.aws, name)
            return made
        session = import_module("gateway.secrets.vault").VaultSession
    except ImportError as error:
        reason = f"needs an optional package: pip install 'gatewright[{extra}]'"
        raise ConfigurationInvalid(settings.source, "secrets.key_service", reason) from error
    credential = source_of(settings, settings.vault.credential, "vault.credential")
    opened = session(settings.vault, SystemClock(), credential.load)
    made = found.VaultTransit(opened, name, settings.vault.transit_mount)
    return made


def admin_token(settings: Settings) -> Secret[str]:
    """The token with which an administrator signs in.

    Raises:
        ConfigurationInvalid: it cannot be read.
    """
    key = "secrets.admin_token"
    token = source_of(settings, settings.secrets.admin_token, key).load()
    if len(token.reveal()) < TOKEN_LENGTH_MIN:
        reason = f"must have at least {TOKEN_LENGTH_MIN} characters"
        raise ConfigurationInvalid(settings.source, key, reason)
    _refuse_default(settings, token.reveal(), key)
    return token


def _refuse_default(settings: Settings, value: str, key: str) -> None:
    """A secret that was copied from an example is not a secret."""
    word = value.lower()
    is_example = any(each in word for each in _EXAMPLES)
    if is_example or len(set(value)) < _LETTERS_MIN:
        reason = "is an example or a default: make one with `gatewright init`"
        raise ConfigurationInvalid(settings.source, key, reason)
