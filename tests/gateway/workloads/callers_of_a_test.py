"""`Callers` who trust a `TokenIssuer`, with a clock of their own, over the real egress."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.assembly.trusted_issuers import make_callers
from gateway.configuration.reading import parse_settings
from gateway.errors import Unauthenticated
from gateway.identity import KeyRecord, KeyTable, Workload, accounts_of, key_table
from gateway.metrics import Metrics
from gateway.providers.egress.client import Egress
from gateway.types import Principal
from gateway.workloads.callers import REFUSAL_OF_TOKENS, Callers
from tests.token_issuer import SUBJECT, TokenIssuer, rsa_key


RSA = rsa_key()
BOUND = Workload("cluster", SUBJECT)


class SetClock:
    """As the issuer's, until a test moves it."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self._issuer = issuer
        self.later_s = 0.0

    def utc_us(self) -> int:
        return self._issuer.clock.utc_us() + round(self.later_s * 1_000_000)

    def monotonic_s(self) -> float:
        return self._issuer.clock.monotonic_s() + self.later_s


def key_record(workload: Workload = BOUND, *, number: int = 1, **changes: Any) -> KeyRecord:
    named = f"{number:012d}"
    principal = Principal(
        key_id=named,
        key_name="pods",
        organisation="acme",
        workspace="payments",
        project="assistant",
        labels=(),
        models=None,
        accounts=accounts_of("acme", "payments", "assistant", named),
    )
    return KeyRecord(named, (), principal, 0, "a test", workload=workload, **changes)


class Gate:
    """What stands between a token and a principal, with what was counted of it."""

    def __init__(self, issuer: TokenIssuer, folder: Path, sections: str = "") -> None:
        self.issuer = issuer
        self.clock = SetClock(issuer)
        self.table: KeyTable = key_table(1, [key_record()])
        self.counted: Counter[tuple[str, str]] = Counter()
        text = sections or issuer.settings()
        settings = parse_settings(text, "a test", folder, {})
        self.egress = Egress()
        table: Callable[[], KeyTable] = lambda: self.table  # noqa: E731
        self.callers: Callers = make_callers(settings, self.egress, table, self.clock, Metrics())
        self.callers._count = lambda *said: self.counted.update([said])

    async def asks(self, token: str) -> str:
        """The key that a token proves."""
        headers = [(b"authorization", f"Bearer {token}".encode())]
        return (await self.callers.principal(headers, self.clock.utc_us())).key_id

    async def refuses(self, token: str) -> str:
        """Why, in the words of the metric; the caller's words are always the same."""
        before = Counter(self.counted)
        with pytest.raises(Unauthenticated) as caught:
            await self.asks(token)
        assert caught.value.message == REFUSAL_OF_TOKENS
        ((_, outcome),) = self.counted - before
        return outcome
