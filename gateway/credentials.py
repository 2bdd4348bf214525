"""Secret references of the settings → secrets. It knows where they are kept, not what they open."""

from gateway.errors import ConfigurationInvalid
from gateway.secrets.envelope import MasterKey, load_master_key
from gateway.secrets.secret import Secret
from gateway.secrets.sources import EnvironmentSecret, FileSecret, SecretSource
from gateway.settings import SecretReference, Settings, read_environment


PEPPER_BYTES_MIN = 32


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
    if reference is None or (reference.env and read_environment(reference.env) is None):
        return None
    return source_of(settings, reference, f"providers.{provider}.credential").load()


def rates_password(settings: Settings) -> Secret[str] | None:
    """The password of the server that keeps shared rate limits; None when it has none.

    Raises:
        ConfigurationInvalid: it cannot be read.
    """
    reference = settings.rates.password
    return source_of(settings, reference, "rates.password").load() if reference else None


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
    return source_of(settings, settings.secrets.admin_token, "secrets.admin_token").load()
