"""Secret references of the settings → secrets. It knows where they are kept, not what they open."""

from gateway.errors import ConfigurationInvalid
from gateway.secrets.envelope import MasterKey, load_master_key
from gateway.secrets.secret import Secret
from gateway.secrets.sources import EnvironmentSecret, FileSecret, SecretSource
from gateway.sections import SecretReference
from gateway.settings import Settings, read_environment


PEPPER_BYTES_MIN = 32
TOKEN_LENGTH_MIN = 20
_LETTERS_MIN = 8
"""So many different characters a random text of this length has, all but certainly."""
_EXAMPLES = ("changeme", "change-me", "change_me", "secret", "password", "example", "default")


def source_of(settings: Settings, reference: SecretReference, key: str) -> SecretSource:
    """Where a secret is kept; `key` is the setting that says so, for errors."""
    if reference.env:
        value = read_environment(reference.env) or ""
        return EnvironmentSecret({reference.env: value}, reference.env)
    return FileSecret(settings.path(reference.file), key)


def provider_credential(settings: Settings, provider: str) -> Secret[str] | None:
    """A provider's credential; None when it needs none, or its variable is not set.

    Raises:
        ConfigurationInvalid: it names a file that cannot be used.
    """
    reference = settings.providers[provider].credential
    if reference is None or not reference.is_local:
        return None  # Those of other places are read when the worker starts.
    if reference.env and read_environment(reference.env) is None:
        return None
    return source_of(settings, reference, f"providers.{provider}.credential").load()


def rates_password(settings: Settings) -> Secret[str] | None:
    """The password of the server that keeps shared rate limits; None when it has none.

    Raises:
        ConfigurationInvalid: it cannot be read.
    """
    reference = settings.rates.password
    return source_of(settings, reference, "rates.password").load() if reference else None


def oidc_secret(settings: Settings) -> Secret[str] | None:
    """What we prove ourselves with to the OpenID provider; None for a public client.

    Raises:
        ConfigurationInvalid: it cannot be read.
    """
    reference = settings.oidc.client_secret
    return source_of(settings, reference, "oidc.client_secret").load() if reference else None


def alerts_credential(settings: Settings) -> Secret[str] | None:
    """What the web hook of alerts is sent as a bearer token; None when it takes none.

    Raises:
        ConfigurationInvalid: it cannot be read.
    """
    reference = settings.alerts.credential
    return source_of(settings, reference, "alerts.credential").load() if reference else None


def sink_credential(settings: Settings, sink: str) -> Secret[str] | None:
    """What a sink is sent as a bearer token; None when it takes none.

    Raises:
        ConfigurationInvalid: it cannot be read.
    """
    reference = settings.sinks[sink].credential
    return source_of(settings, reference, f"sinks.{sink}.credential").load() if reference else None


def pepper(settings: Settings) -> bytes:
    """The secret under which digests of virtual keys are made.

    Raises:
        ConfigurationInvalid: it cannot be read, or is too short to be a secret.
    """
    source = source_of(settings, settings.secrets.pepper, "secrets.pepper")
    value = source.load().reveal().encode()
    if len(value) < PEPPER_BYTES_MIN:
        reason = f"must have at least {PEPPER_BYTES_MIN} bytes"
        raise ConfigurationInvalid(settings.source, "secrets.pepper", reason)
    _refuse_default(settings, value.decode(), "secrets.pepper")
    return value


def master_key(settings: Settings) -> MasterKey:
    """The key that wraps the audit log's content keys.

    Raises:
        ConfigurationInvalid: it cannot be read, or is not 32 bytes in base64.
    """
    source = source_of(settings, settings.secrets.master_key, "secrets.master_key")
    return load_master_key(source, "secrets.master_key")


def admin_token(settings: Settings) -> Secret[str]:
    """What an administrator signs in with.

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
    """Whoever copied a secret from an example has none."""
    word = value.lower()
    is_example = any(each in word for each in _EXAMPLES)
    if is_example or len(set(value)) < _LETTERS_MIN:
        reason = "is an example or a default: make one with `gatewright init`"
        raise ConfigurationInvalid(settings.source, key, reason)
