"""The gateway's credentials for providers: where each one is kept, never its value.

Read from the settings, the sealed secrets of the database and what this process can see of files
and variables. Only workers ask Vault and AWS, so what those hold is not known here.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.services import Services
from gateway.clock import SECOND_US
from gateway.configuration.sections import SecretReference
from gateway.errors import ConfigurationInvalid
from gateway.oversight.deeds import OPERATORS
from gateway.secrets.credentials import master_key, provider_credential
from gateway.secrets.secret import Secret
from gateway.store.evidence.sink import AuditQuery
from gateway.store.sealing.sealed_secrets import SealedSecret, SealedSecretTable


Kind = Literal["database", "environment", "file", "vault", "aws"]
USED_US: Final = 21 * 86_400_000_000
"""The rollup keeps its hours a little longer."""
DEEDS_MAX: Final = 200
DEEDS: Final = (
    *("secret.set", "secret.removed", "secret.next_set", "secret.next_dropped"),
    *("secret.switched", "secret.put_back", "secret.retired"),
)
OTHER_KEY: Final = "sealed under another master key: set it again"


class CredentialLine(Struct, frozen=True):
    """One credential and where it is kept; never what it is."""

    kind: Kind
    name: str
    """Of a sealed secret its own; of what is kept elsewhere its provider's."""
    place: str
    """A variable, a path, or the address in Vault or AWS; of the database nothing more."""
    providers: tuple[str, ...]
    is_set: bool | None
    """None where only a worker can tell."""
    problem: str = ""
    version: int = 0
    set_us: int = 0
    set_by: str = ""
    fingerprint: str = ""
    last_used_us: int = 0
    """When a provider that uses it last answered; 0 for never in the last weeks."""
    command: str = ""
    """What changes it, where that is not done here."""


class CredentialDeed(Struct, frozen=True):
    """What somebody did to a sealed secret."""

    utc_us: int
    actor: str
    action: str
    error: str = ""


class Credentials(Struct, frozen=True):
    """All of them, and providers that name none."""

    lines: tuple[CredentialLine, ...]
    without: tuple[str, ...]
    refresh_s: float


class CredentialReader:
    """Gathers what may be said about credentials."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._settings = services.settings
        self._master = master_key(services.settings)
        self.table = SealedSecretTable(services.database, self._master, services.clock)

    async def read(self) -> Credentials:
        """Every credential that is configured or sealed; raises NotReady."""
        sealed = {each.name: each for each in await self.table.listed()}
        used = await self._last_used()
        lines = [*self._sealed(sealed, used), *self._elsewhere(used)]
        providers = self._settings.providers
        without = tuple(name for name, each in providers.items() if each.credential is None)
        return Credentials(tuple(lines), without, self._settings.secrets.refresh_s)

    async def line(self, kind: str, name: str) -> CredentialLine:
        """One of them; raises NotFoundException."""
        for line in (await self.read()).lines:
            if (line.kind, line.name) == (kind, name):
                return line
        raise NotFoundException

    async def sealed(self, name: str) -> SealedSecret | None:
        """A sealed secret as it stands now."""
        return next((each for each in await self.table.listed() if each.name == name), None)

    async def deeds(self, name: str) -> tuple[CredentialDeed, ...]:
        """What was done to a sealed secret, newest first, among the newest deeds of each kind."""
        found = []
        for action in DEEDS:
            query = AuditQuery(organisation=OPERATORS, stage="admin", action=action)
            for row in await self._services.records.newest(query, DEEDS_MAX):
                record = row.projected.record
                if _name_in(record.detail) == name:
                    deed = CredentialDeed(record.utc_us, record.actor, action, record.error)
                    found.append(deed)
        return tuple(sorted(found, key=lambda deed: -deed.utc_us))

    async def _last_used(self) -> dict[str, int]:
        since_us = self._services.clock.utc_us() - USED_US
        sums = await self._services.figures.by_hour(None, since_us, ["provider"])
        return {each.group[0]: each.last_us for each in sums}

    def _sealed(
        self, sealed: Mapping[str, SealedSecret], used: Mapping[str, int]
    ) -> list[CredentialLine]:
        by_name: dict[str, list[str]] = {name: [] for name in sealed}
        for provider, each in self._settings.providers.items():
            if each.credential is not None and each.credential.db:
                by_name.setdefault(each.credential.db, []).append(provider)
        return [
            self._sealed_line(name, providers, sealed.get(name), used)
            for name, providers in sorted(by_name.items())
        ]

    def _sealed_line(
        self,
        name: str,
        providers: Sequence[str],
        found: SealedSecret | None,
        used: Mapping[str, int],
    ) -> CredentialLine:
        last_us = max((used.get(each, 0) for each in providers), default=0)
        if found is None:
            return CredentialLine("database", name, "", tuple(providers), is_set=False)
        is_ours = found.master_key_id in self._master.key_ids
        return CredentialLine(
            "database",
            name,
            "",
            tuple(providers),
            is_set=True,
            problem="" if is_ours else OTHER_KEY,
            version=found.version,
            set_us=found.set_us,
            set_by=found.set_by,
            fingerprint=found.fingerprint,
            last_used_us=last_us,
        )

    def _elsewhere(self, used: Mapping[str, int]) -> list[CredentialLine]:
        return [
            self._local(name, each.credential, used.get(name, 0))
            if each.credential.is_local
            else self._remote(name, each.credential, used.get(name, 0))
            for name, each in self._settings.providers.items()
            if each.credential is not None and not each.credential.db
        ]

    def _local(self, provider: str, reference: SecretReference, last_us: int) -> CredentialLine:
        value: Secret[str] | None = None
        problem, set_us, path = "", 0, self._settings.path(reference.file)
        try:
            value = provider_credential(self._settings, provider)
            if value is not None and reference.file:
                set_us = int(path.stat().st_mtime * SECOND_US)
        except ConfigurationInvalid as error:
            problem = error.reason
        except OSError:
            problem = "was taken away a moment ago"
        return CredentialLine(
            "environment" if reference.env else "file",
            provider,
            reference.env or str(path),
            (provider,),
            is_set=value is not None,
            problem=problem,
            set_us=set_us,
            fingerprint=self._master.fingerprint(value) if value is not None else "",
            last_used_us=last_us,
            command="" if reference.env else f"install -m 600 /dev/stdin {shlex.quote(str(path))}",
        )

    def _remote(self, provider: str, reference: SecretReference, last_us: int) -> CredentialLine:
        kind: Kind = "vault" if reference.vault else "aws"
        place = reference.vault or reference.aws_sm
        path, _, field = place.partition("#")
        mount = self._settings.vault.mount
        command = (
            f"vault kv patch -mount={shlex.quote(mount)} {shlex.quote(path)} {shlex.quote(field)}=-"
            if kind == "vault"
            else f"aws secretsmanager put-secret-value --secret-id {shlex.quote(path)} "
            "--secret-string file:///dev/stdin"
        )
        return CredentialLine(
            kind,
            provider,
            place,
            (provider,),
            is_set=None,
            last_used_us=last_us,
            command=command,
        )


def _name_in(detail: Mapping[str, str]) -> str:
    """The secret that a deed was done to; a record of another shape names none."""
    try:
        after: Any = msgspec.json.decode(detail.get("after", "null"))
    except msgspec.DecodeError:
        return ""
    return str(after.get("name", "")) if isinstance(after, dict) else ""
