"""Provider accounts that currently refuse everybody: no money left, or a refused credential.

An account is a provider: all its targets share its credential, so what one of them is told, every
other one would be told too. Such targets are moved to the end of the order and never forbidden.
Pure: the time is passed in. All of it may be lost.
"""

from msgspec import Struct

from gateway.dispatch.breaker import BreakerRules, judge
from gateway.errors import GatewrightError


class _Pause(Struct, frozen=True):
    since_s: float
    until_s: float


def is_of_account(error: GatewrightError) -> bool:
    """Whether an upstream's error concerns our account there, whatever the request was."""
    return judge(error) in {"unpaid", "denied"}


class Accounts:
    """What this worker's attempts have learned of accounts, by provider."""

    def __init__(self, rules: BreakerRules | None = None) -> None:
        self._rules = rules or BreakerRules()
        self._pauses: dict[str, _Pause] = {}

    def is_paused(self, account: str, now_s: float) -> bool:
        pause = self._pauses.get(account)
        return pause is not None and now_s < pause.until_s

    def record(
        self, account: str, began_s: float, now_s: float, error: GatewrightError | None
    ) -> None:
        """Note how an attempt ended; one that began before a pause says nothing about later."""
        if error is not None:
            if is_of_account(error):
                self._pauses[account] = _Pause(now_s, now_s + self._rules.account_s)
        elif self._pauses:
            pause = self._pauses.get(account)
            if pause is not None and began_s >= pause.since_s:
                del self._pauses[account]
