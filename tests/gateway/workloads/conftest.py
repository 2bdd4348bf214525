"""An issuer whose tokens are taken, and the gate that takes them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.workloads.callers_of_a_test import RSA, Gate
from tests.token_issuer import TokenIssuer


@pytest.fixture
async def issuer() -> AsyncIterator[TokenIssuer]:
    async with TokenIssuer(k1=RSA) as running:
        yield running


@pytest.fixture
async def gate(issuer: TokenIssuer, tmp_path: Path) -> AsyncIterator[Gate]:
    gate = Gate(issuer, tmp_path)
    yield gate
    await gate.egress.close()
