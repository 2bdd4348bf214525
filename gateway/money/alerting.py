"""Alerts operators by web hook to used-up budgets, drift and dear hours; each alert once."""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from gateway.money.budgets import level_of
from gateway.telemetry import Event, logger


CLAIM_US: Final = 60_000_000
"""A worker that claimed an alert and has not sent it by then loses it to others."""
AT_ONCE: Final = 5
"""No more than can be tried, ten seconds each, before the claims are over."""
_ROUNDS_MAX = 20
"""How often to ask at once for due ones, since each claim takes only a few."""


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
    @property
    def window_start_us(self) -> int: ...


class Alerts(Protocol):
    async def due(self) -> list[Any]:
        """Alerts that nobody else is sending; each is claimed for a minute."""
        ...

    async def sent(self, alert: Any) -> None: ...


class Hook(Protocol):
    async def post(self, body: bytes, about: str = "") -> bool:
        """Whether it was accepted; `about` is the same whenever the message is repeated."""
        ...


class Told(Struct, frozen=True):
    """What a web hook is sent, and an id for its subject, which is the same when it is repeated."""

    about: str
    body: bytes


class Message(Struct, frozen=True):
    """The message that a web hook gets."""

    event: str
    account: str
    level: str
    percent: int
    spent_microusd: int
    limit_microusd: int
    window: str
    window_start_us: int


class DriftDue(Protocol):
    """A drift as the store has it."""

    @property
    def id(self) -> str: ...
    @property
    def organisation(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def began_us(self) -> int: ...
    @property
    def said(self) -> str: ...
    @property
    def guarantee(self) -> str: ...


class DriftMessage(Struct, frozen=True):
    """The message about a drift: names and shares, nothing from any request."""

    event: str
    id: str
    organisation: str
    kind: str
    scope: str
    since_us: int
    said: str
    withdraws_guarantee: bool


class HourDue(Protocol):
    """An unusually expensive hour as the store has it."""

    @property
    def organisation(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def hour_us(self) -> int: ...
    @property
    def cost_microusd(self) -> int: ...
    @property
    def usual_microusd(self) -> int: ...
    @property
    def bound_microusd(self) -> int: ...
    @property
    def samples(self) -> int: ...


class HourMessage(Struct, frozen=True):
    """The message about an expensive hour: the figures by which it was judged."""

    event: str
    organisation: str
    account: str
    level: str
    hour_us: int
    cost_microusd: int
    usual_microusd: int
    bound_microusd: int
    samples: int


def budget_message(alert: Due) -> Told:
    """The message about a budget."""
    message = Message(
        event="budget.used",
        account=alert.account,
        level=level_of(alert.account),
        percent=alert.percent,
        spent_microusd=alert.spent_microusd,
        limit_microusd=alert.limit_microusd,
        window=alert.window,
        window_start_us=alert.window_start_us,
    )
    about = (alert.account, alert.window, alert.window_start_us, alert.percent)
    return told(message.event, (*about, alert.limit_microusd), message)


def drift_message(drift: DriftDue) -> Told:
    """The message about a drift."""
    message = DriftMessage(
        event="profile.drifts",
        id=drift.id,
        organisation=drift.organisation,
        kind=drift.kind,
        scope=drift.scope,
        since_us=drift.began_us,
        said=drift.said,
        withdraws_guarantee=bool(drift.guarantee),
    )
    return told(message.event, (drift.organisation, drift.id), message)


def hour_message(hour: HourDue) -> Told:
    """The message about an hour that was unusually expensive."""
    message = HourMessage(
        event="cost.unusual_hour",
        organisation=hour.organisation,
        account=hour.account,
        level=level_of(hour.account),
        hour_us=hour.hour_us,
        cost_microusd=hour.cost_microusd,
        usual_microusd=hour.usual_microusd,
        bound_microusd=hour.bound_microusd,
        samples=hour.samples,
    )
    return told(message.event, (hour.organisation, hour.account, hour.hour_us), message)


def told(event: str, about: tuple[str | int, ...], message: Struct) -> Told:
    """A message, and the id of its subject."""
    return Told(" ".join([event, *map(str, about)]), msgspec.json.encode(message))


class Alerting:
    """Sends what is due; a message that was not accepted is due again after a minute."""

    def __init__(
        self, alerts: Alerts, hook: Hook, message: Callable[[Any], Told] = budget_message
    ) -> None:
        self._alerts = alerts
        self._hook = hook
        self._message = message
        self._log = logger()

    async def perform(self) -> None:
        for _ in range(_ROUNDS_MAX):
            if not (alerts := await self._alerts.due()) or not await self._tell(alerts):
                return

    async def _tell(self, alerts: list[Any]) -> bool:
        """Whether all of them were accepted."""
        all_taken = True
        for alert in alerts:
            told = self._message(alert)
            if await self._hook.post(told.body, told.about):
                await self._alerts.sent(alert)
                self._log.info(Event.ALERT_SENT, component="alerts")
            else:
                all_taken = False
                self._log.warning(Event.ALERT_NOT_TAKEN, component="alerts")
        return all_taken
