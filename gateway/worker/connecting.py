"""Runs the connection tests that people order in the control plane, one at a time per worker.

The control plane opens no connection upstream: it leaves an order in the database, and a worker
takes it, tests what its own settings have under that name, and reports each step. Start and end are
on record.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.dialects.registry import DIALECTS
from gateway.errors import ConfigurationInvalid
from gateway.oversight.checkup import Checkup, Step, skipped
from gateway.oversight.deeds import Deeds
from gateway.pacing import rhythm
from gateway.pacing.upkeep import Duty
from gateway.ports import AuditLog, Provider
from gateway.providers.checking import Checker
from gateway.providers.http_provider import HttpProvider
from gateway.routing.board import TargetBoard
from gateway.secrets.credentials import master_key
from gateway.secrets.envelope import MasterKey
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.secret import Secret
from gateway.store.checkups import CheckupOrder, CheckupTable
from gateway.store.engine import Database
from gateway.telemetry import Event


MISSING: Final = (
    *skipped("not_tried", "name", "connection"),
    Step("credential", "bad", "missing"),
    *skipped("not_tried", "call"),
)
"""Reason if the next version is no longer there, or does not decrypt."""
Board = Callable[[], TargetBoard]
Trial = Callable[[str], Awaitable[Provider]]


def connection_tests(
    settings: Settings,
    database: Database,
    audit: AuditLog,
    clock: Clock,
    *,
    providers: Mapping[str, Provider],
    board: Board,
    trial: Trial,
    due: Callable[[], bool] | None = None,
) -> Duty:
    """The worker's duty that carries out ordered tests."""
    tests = ConnectionTests(
        CheckupTable(database, clock),
        settings.audit.worker,
        providers=providers,
        board=board,
        trial=trial,
        master=master_key(settings),
        audit=audit,
        clock=clock,
    )
    return Duty("connections", rhythm.CHECKUPS_S, tests.perform, Event.UPKEEP_FAILED, due=due)


class ConnectionTests:
    """Carries out ordered tests on one worker."""

    def __init__(
        self,
        table: CheckupTable,
        worker: str,
        *,
        providers: Mapping[str, Provider],
        board: Board,
        trial: Trial,
        master: MasterKey,
        audit: AuditLog,
        clock: Clock,
    ) -> None:
        """`providers` gives the current ones: a credential that changed is tested, too.

        `trial` makes an adapter with the next version of a provider's credential.
        """
        self._table = table
        self._worker = worker
        self._providers = providers
        self._board = board
        self._trial = trial
        self._master = master
        self._deeds = Deeds(audit, clock)
        self._clock = clock

    async def perform(self) -> None:
        """Take one order, if there is one, and see it through."""
        order = await self._table.claim(self._worker, self._providers)
        if order is None:
            return
        try:
            provider = await self._provider(order)
        except (SecretUnavailableError, ConfigurationInvalid):
            await self._end(order, Checkup(MISSING))
            return
        fingerprint = self._fingerprint(provider)

        async def told(found: Checkup) -> None:
            await self._table.tell(order, _marked(found, fingerprint))

        target = self._board().targets.get(order.target)
        if order.target and target is None:
            steps = skipped("unknown_here", "name", "connection", "credential", "call")
            found = Checkup(steps)
        else:
            tester = Checker(provider, target, DIALECTS, self._clock)
            found = _marked(await tester.run(told), fingerprint)
        await self._end(order, found)

    async def _provider(self, order: CheckupOrder) -> Provider:
        if order.spare:
            return await self._trial(order.provider)
        return self._providers[order.provider]

    async def _end(self, order: CheckupOrder, found: Checkup) -> None:
        await self._record(order, found)
        await self._table.tell(order, found, is_end=True)

    async def _record(self, order: CheckupOrder, found: Checkup) -> None:
        after = {
            "provider": order.provider,
            "target": order.target,
            "test": order.id,
            "worker": self._worker,
            "steps": {step.name: step.code for step in found.steps},
            "input_tokens": found.input_tokens,
            "output_tokens": found.output_tokens,
            "cost_microusd": found.cost_microusd,
            "fingerprint": found.fingerprint,
        }
        await self._deeds.record(order.asked_by, "provider.tested", "", after=after)

    def _fingerprint(self, provider: Provider) -> str:
        if not isinstance(provider, HttpProvider) or provider.credential is None:
            return ""
        return self._master.fingerprint(Secret(provider.credential.reveal()))


def _marked(found: Checkup, fingerprint: str) -> Checkup:
    return msgspec.structs.replace(found, fingerprint=fingerprint)
