"""Two credentials for one vendor: if one is exhausted, revoked or busy, the other takes over."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.faults.envelopes import Caller, ask
from tests.running_gateway import RunningGateway, Upstreams
from tests.upstreams import Answer, RecordingUpstream


pytestmark = pytest.mark.anyio
POLICY = """
name = "accounts"
version = 1
[[preferences]]
name = "accounts"
route = "accounts"
targets = ["first-small", "first-large", "second"]
order = ["cheap"]
"""
MORE = """
[policy]
file = "{policy}"
[providers.first-account]
kind = "openai"
base_url = "{first}/v1"
jurisdiction = "us"
credential = {{ file = "var/upstream.key" }}
[providers.second-account]
kind = "openai"
base_url = "{second}/v1"
jurisdiction = "us"
credential = {{ file = "var/upstream.key" }}
[targets.first-small]
provider = "first-account"
model = "gpt-6.2-sol"
[targets.first-large]
provider = "first-account"
model = "gpt-6-astra"
[targets.second]
provider = "second-account"
model = "gpt-6.2-sol"
"""
QUOTA = b'{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}'
REVOKED = b'{"error":{"message":"m","type":"invalid_request_error","code":"invalid_api_key"}}'
ASKED = 60
"""More than the retry budget lends: a worker starts with twenty, and earns one for ten requests."""


class Accounts:
    """A gateway with a vendor's two accounts."""

    def __init__(self, gateway: RunningGateway, first: RecordingUpstream, caller: Caller) -> None:
        self.gateway, self.first, self.caller = gateway, first, caller

    async def asks(self) -> str:
        """Who answered."""
        reply = await self.caller.post("openai", ask("openai", model="auto:accounts"))
        assert reply.status == 200, reply.body
        return reply.headers["x-gatewright-target"]


@pytest.fixture
async def accounts(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> AsyncIterator[Accounts]:
    (tmp_path / "policy.toml").write_text(POLICY)
    first, second = own_upstreams.openai, own_upstreams.anthropic
    places = {"first": first.url, "second": second.url, "policy": tmp_path / "policy.toml"}
    more = MORE.format(**places)
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as gateway:
        scope = {"first-small", "first-large", "second"}
        caller = Caller(gateway, http, await gateway.issue_key(models=scope))
        yield Accounts(gateway, first, caller)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(status=429, body=QUOTA), "upstream_unpaid"),
        (Answer(status=401, body=REVOKED), "upstream_refused"),
    ],
    ids=["exhausted", "revoked"],
)
async def test_another_account_takes_over_and_nobody_pays_for_finding_out_again(
    accounts: Accounts, http: aiohttp.ClientSession, answer: Answer, code: str
) -> None:
    accounts.first.answer(answer)
    assert {await accounts.asks() for _ in range(ASKED)} == {"second"}
    assert len(accounts.first.calls) == 1
    async with http.get(f"{accounts.gateway.url}/metrics") as reply:
        counted = await reply.text()
    failed = f'gatewright_attempts_failed_total{{code="{code}",target="first-small"}} 1.0'
    assert failed in counted
    refused = 'gatewright_credentials_refused_total{target="first-small"} 1.0'
    assert (refused in counted) == (answer.status == 401)


async def test_a_limit_of_rate_is_that_of_one_model_so_the_accounts_others_are_asked(
    accounts: Accounts,
) -> None:
    accounts.first.answer(Answer(status=429, retry_after_s=60))
    assert await accounts.asks() == "second"
    records = await accounts.gateway.records()
    tried = [each.target for each in records[-1].attempts]
    assert tried == ["first-small", "first-large", "second"]
    assert await accounts.asks() == "second"
    assert len(accounts.first.calls) == 2


async def test_who_counts_is_not_asked_again_by_another_of_the_accounts_targets(
    accounts: Accounts, http: aiohttp.ClientSession
) -> None:
    accounts.first.answer(Answer(status=401, body=REVOKED))
    url, headers = accounts.gateway.url, accounts.caller.headers("openai")
    for model in ("first-small", "first-large"):
        body = {"model": model, "input": "How old is the bridge?"}
        async with http.post(
            f"{url}/v1/responses/input_tokens", json=body, headers=headers
        ) as reply:
            assert (reply.status, reply.headers["x-gatewright-usage"]) == (200, "estimated")
    assert len(accounts.first.calls) == 1
