"""The configuration in force: start checks, schema, features, sign-in, non-secret settings."""

from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from litestar import MediaType, Response, get, route
from msgspec import NODEFAULT, Struct

from admin.access import needs
from admin.asking import Asking
from admin.services import Services
from admin.sign_in.pages import READING
from admin.system.checks import Check, start_checks
from gateway.configuration.disclosing import flat, settings_digest
from gateway.configuration.sections import CurrencySettings, SinkSettings
from gateway.configuration.settings import ProviderSettings, Settings, TargetSettings
from gateway.errors import ConfigurationInvalid, StartupRefused
from gateway.oversight.access import Permission
from gateway.store.schema.version import Migration, known_migrations, newest_schema, schema_of
from gateway.store.sealing.keys_in_use import KeyInUse, keys_in_use


AT: Final = "/system/configuration"
_READS: Final = needs(Permission.SYSTEM_READ, "everywhere")
_TABLES: Final[dict[str, type[Struct]]] = {
    "providers": ProviderSettings,
    "targets": TargetSettings,
    "sinks": SinkSettings,
    "currencies": CurrencySettings,
}
_OWN: Final = frozenset({"source", "folder"})
_OLD_SCHEMA: Final = "The schema of the database has to be migrated first."


class Feature(Struct, frozen=True):
    """Something that settings turn on or off."""

    name: str
    is_on: bool
    said: str
    setting: str


class SettingLine(Struct, frozen=True):
    """One setting in force."""

    key: str
    value: str
    is_default: bool


class SignInBy(Struct, frozen=True):
    """How people sign in; of the OpenID provider its host only."""

    openid_host: str
    is_public_client: bool
    """It proves itself with no secret."""


class ConfigurationPage(Struct, frozen=True):
    """What this process runs by."""

    checks: tuple[Check, ...]
    schema: str
    schema_newest: str
    migrations: tuple[Migration, ...]
    keys: tuple[KeyInUse, ...]
    """Master keys and peppers; none where they could not be counted."""
    keys_problem: str
    sign_in: SignInBy
    features: tuple[Feature, ...]
    settings: tuple[SettingLine, ...]
    settings_digest: str
    source: str

    @property
    def refused(self) -> int:
        return sum(each.outcome == "refused" for each in self.checks)


async def read_configuration(services: Services) -> ConfigurationPage:
    """All of it; raises NotReady where the database does not answer."""
    settings = services.settings
    schema = await schema_of(services.database)
    keys, problem = await _keys_of(services) if schema >= newest_schema() else ((), _OLD_SCHEMA)
    return ConfigurationPage(
        checks=tuple(await start_checks(settings, services.database)),
        schema=schema,
        schema_newest=newest_schema(),
        migrations=tuple(reversed(known_migrations())),
        keys=keys,
        keys_problem=problem,
        sign_in=SignInBy(
            urlsplit(settings.oidc.issuer).hostname or "", settings.oidc.client_secret is None
        ),
        features=features_of(settings),
        settings=setting_lines(settings),
        settings_digest=settings_digest(settings),
        source=settings.source,
    )


async def _keys_of(services: Services) -> tuple[tuple[KeyInUse, ...], str]:
    """What hangs on which key, or why that is not known."""
    try:
        return tuple(await keys_in_use(services.settings, services.database, services.clock)), ""
    except (ConfigurationInvalid, StartupRefused) as error:
        return (), error.message


def setting_lines(settings: Settings) -> tuple[SettingLine, ...]:
    """Every setting in force, without secrets, and whether it is as it comes."""
    default = flat(Settings(source="", folder=""))
    return tuple(
        SettingLine(key, _shown(value), default.get(key, _of_a_table(key)) == value)
        for key, value in flat(settings).items()
        if key not in _OWN
    )


def _of_a_table(key: str) -> object:
    """The default of a setting of one provider, target, sink or currency."""
    section = key.partition(".")[0]
    for field in msgspec.structs.fields(_TABLES[section]) if section in _TABLES else ():
        if key.endswith(f".{field.name}"):
            default = NODEFAULT if field.required else msgspec.to_builtins(field.default)
            return list(default) if isinstance(default, tuple) else default
    return "" if ".credential." in key else NODEFAULT


def features_of(settings: Settings) -> tuple[Feature, ...]:
    """What settings turn on, and what that means."""
    audit, inspection, keeps = settings.audit, settings.inspection, settings.responses.keep_days
    is_shared = settings.database.url.startswith("postgresql")
    second = audit.second_device == "database" or (audit.second_device == "auto" and is_shared)
    classes = settings.retention.classes
    sinks = ", ".join(settings.sinks)
    rows = (
        ("Sign-in by OpenID", settings.oidc.issuer, "beside passwords", "oidc.issuer"),
        ("Several workers", is_shared, "on PostgreSQL", "database.url"),
        ("Second audit device", second, "the database takes records", "audit.second_device"),
        ("Sinks", sinks, sinks, "sinks"),
        ("Metrics by OTLP", settings.metrics.url, "pushed to a collector", "metrics.url"),
        ("Budget alerts", settings.alerts.url, "to a web hook", "alerts.url"),
        ("Shared rate limits", settings.rates.url, "among all workers", "rates.url"),
        ("Shared answers", settings.response_cache.url, "among all workers", "response_cache.url"),
        ("Kept answers", keeps, f"for {keeps} days", "responses.keep_days"),
        ("Prompt caching", settings.requests.prompt_cache, "by us", "requests.prompt_cache"),
        ("Injection score", inspection.injection, "of every request", "inspection.injection"),
        (
            "Calibrated cheap tier",
            inspection.calibration_file,
            "with a table of ours",
            "inspection.calibration_file",
        ),
        ("Retention", classes, f"{len(classes)} classes", "retention.classes"),
        ("Own prices", settings.prices.file, "before those that ship", "prices.file"),
        ("Own first policy", settings.policy.file, "in place of the default", "policy.file"),
        ("Wrapped master key", settings.secrets.key_service, "by a service", "secrets.key_service"),
        ("Secrets in Vault", settings.vault.url, "where they are named", "vault.url"),
    )
    return tuple(
        Feature(name, bool(value), said if value else "off", key) for name, value, said, key in rows
    )


def configuration_routes(services: Services) -> list[Any]:
    """The page, and the JSON behind it."""

    @route(AT, http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def configuration(request: Asking) -> Response[str]:
        found = await read_configuration(services)
        return await services.shell.page(
            request, "system/configuration.html", "configuration", found=found
        )

    @get("/api/system/configuration", opt=_READS)
    async def configuration_api() -> ConfigurationPage:
        return await read_configuration(services)

    return [configuration, configuration_api]


def _shown(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()
