"""Tells operators by web hook when so much of a budget is used up; each alert once."""

from typing import Any, Protocol

import msgspec
from msgspec import Struct

from gateway.budgets import level_of
from gateway.telemetry import Event, logger


class Due(Protocol):
    """An alert as the store has it."""

    @property
    def account(self) -> str: ...
    @property
    def percent(self) -> int: ...
    @property
    def limit_microusd(self) -> int: ...
    @property
    def spent_microusd(self) -> int: ...
    @property
    def window(self) -> str: ...


class Alerts(Protocol):
    async def due(self) -> list[Any]:
        """Alerts that nobody else sends; each claimed for a minute."""
        ...

    async def sent(self, alert: Any) -> None: ...


class Hook(Protocol):
    async def post(self, body: bytes) -> bool:
        """Whether it was taken."""
        ...


class Message(Struct, frozen=True):
    """What a web hook gets."""

    event: str
    account: str
    level: str
    percent: int
    spent_microusd: int
    limit_microusd: int
    window: str


class Alerting:
    """Sends what is due; what was not taken is due again after a minute."""

    def __init__(self, alerts: Alerts, hook: Hook) -> None:
        self._alerts = alerts
        self._hook = hook
        self._log = logger()

    async def perform(self) -> None:
        for alert in await self._alerts.due():
            if await self._hook.post(_message(alert)):
                await self._alerts.sent(alert)
                self._log.info(Event.ALERT_SENT, component="alerts")
            else:
                self._log.warning(Event.ALERT_NOT_TAKEN, component="alerts")


def _message(alert: Due) -> bytes:
    message = Message(
        event="budget.used",
        account=alert.account,
        level=level_of(alert.account),
        percent=alert.percent,
        spent_microusd=alert.spent_microusd,
        limit_microusd=alert.limit_microusd,
        window=alert.window,
    )
    return msgspec.json.encode(message)
