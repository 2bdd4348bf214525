"""Why a provider's credential cannot be used, as far as the control plane can tell."""

from collections.abc import Collection

from admin.services import Services
from gateway.configuration.settings import Settings
from gateway.secrets.credentials import credential_problem, master_key
from gateway.store.sealing.sealed_secrets import SealedSecretTable


ABSENT = "no credential"


class SealedNames:
    """Reads which credentials the database keeps, never a value; raises NotReady."""

    def __init__(self, services: Services) -> None:
        key = master_key(services.settings)
        self._sealed = SealedSecretTable(services.database, key, services.clock)

    async def read(self) -> frozenset[str]:
        """The names of those that are there."""
        return frozenset(each.name for each in await self._sealed.listed())


def problem_of(settings: Settings, provider: str, sealed: Collection[str]) -> str:
    """Empty where there is none, or where only workers can tell."""
    reference = settings.providers[provider].credential
    if reference is not None and reference.db:
        return "" if reference.db in sealed else ABSENT
    return credential_problem(settings, provider)


def told_here(settings: Settings, provider: str) -> bool | None:
    """Whether its credential is there; None where only a worker can tell, or it wants none."""
    if credential_problem(settings, provider):
        return False
    reference = settings.providers[provider].credential
    return True if reference is not None and reference.is_local else None
