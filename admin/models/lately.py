"""The recent state of providers: their latest answers, and each worker's circuit breakers.

Taken from recorded outcomes and from the reports of workers; nobody is called from here.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from admin.overview.credentials import SealedNames, problem_of, told_here
from admin.overview.health import LATELY_US, Part, down_of, provider_parts
from admin.overview.reader import OverviewReader
from admin.services import Services
from gateway.configuration.settings import Settings
from gateway.oversight.workers import WorkerReport, standing
from gateway.store.workers import WorkerTable


class Breakers(Struct, frozen=True):
    """The breakers of a provider's targets on the workers that are heard of."""

    workers: int = 0
    """That have such targets."""
    open: tuple[str, ...] = ()
    """Workers on which one is open: they ask others first."""
    half_open: tuple[str, ...] = ()
    """Workers that are trying it again."""
    targets: tuple[str, ...] = ()
    """Those whose breaker is not closed somewhere."""

    @property
    def word(self) -> str:
        """open, half-open, closed, or nothing where no worker tells."""
        if not self.workers:
            return ""
        return "open" if self.open else "half-open" if self.half_open else "closed"


class ProviderState(Struct, frozen=True):
    """One provider as it was in the last quarter of an hour."""

    part: Part
    breakers: Breakers
    has_credential: bool | None
    """None where only workers can tell, or none is named."""


class LatelyReader:
    """Reads how providers do; raises NotReady."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._overview = OverviewReader(services)
        self._workers = WorkerTable(services.database)
        self._sealed = SealedNames(services)

    async def read(self, visible: Collection[str] | None) -> dict[str, ProviderState]:
        """Every configured provider, by name, as these organisations' requests found it."""
        settings, now_us = self._services.settings, self._services.clock.utc_us()
        sealed = await self._sealed.read()
        known = {name: has_credential(settings, name, sealed) for name in settings.providers}
        targets = {name: target.provider for name, target in settings.targets.items()}
        sample = await self._overview.sample(visible, now_us)
        recent = [record for record in sample if now_us - record.utc_us < LATELY_US]
        reasons = {
            name: ("provider", problem_of(settings, name, sealed)) for name in settings.providers
        }
        reports = await self._workers.all()
        here = [each for each in reports if standing(each, now_us) != "lost"]
        return {
            part.name: ProviderState(part, breakers_of(part.name, targets, here), known[part.name])
            for part in provider_parts(recent, reasons, targets, down_of(here))
        }


def breakers_of(
    provider: str, targets: Mapping[str, str], reports: Sequence[WorkerReport]
) -> Breakers:
    """What workers' breakers say of a provider; `targets` are all of them with their providers."""
    mine = {name for name, each in targets.items() if each == provider}
    found: dict[str, set[str]] = {"open": set(), "half_open": set()}
    troubled, workers = set(), 0
    for report in reports:
        positions = {name: word for name, word in report.breakers.items() if name in mine}
        workers += bool(positions)
        for name, word in positions.items():
            if word in found:
                found[word].add(report.worker)
                troubled.add(name)
    return Breakers(
        workers,
        tuple(sorted(found["open"])),
        tuple(sorted(found["half_open"])),
        tuple(sorted(troubled)),
    )


def has_credential(settings: Settings, provider: str, sealed: Collection[str]) -> bool | None:
    """Whether a provider's credential is there; None where only workers tell, or it wants none."""
    reference = settings.providers[provider].credential
    if reference is not None and reference.db:
        return reference.db in sealed
    return told_here(settings, provider)
