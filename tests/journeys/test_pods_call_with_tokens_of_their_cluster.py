"""A bank's pods call with tokens of their cluster, by both SDKs, and no key of ours exists."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import aiohttp
import anthropic
import openai
import pytest
from anyio import to_thread

from gateway.clock import SystemClock
from gateway.identity import Peppers, Workload
from gateway.secrets.credentials import pepper
from gateway.store.engine import open_database
from gateway.store.identity.keys import KeyStore, NewKey
from tests.running_gateway import CLAUDE_TARGET, DEMO, GPT_TARGET, RunningGateway, Upstreams
from tests.token_issuer import SUBJECT, TokenIssuer, curve_key


pytestmark = pytest.mark.anyio
SAYS = "Good morning"


class Bank(NamedTuple):
    workers: list[RunningGateway]
    issuer: TokenIssuer
    key_id: str

    def knows(self, key_id: str) -> bool:
        return any(key_id in each.plane.snapshots.current().keys.records for each in self.workers)


async def bind(running: RunningGateway, workload: Workload, **more: object) -> str:
    """A key that tokens prove; its id."""
    database = open_database(running.settings.database_url)
    try:
        store = KeyStore(database, Peppers({1: pepper(running.settings)}), SystemClock())
        new = NewKey(DEMO, "pods", "a test", workload=workload, **more)  # type: ignore[arg-type]
        return (await store.issue(new)).key_id
    finally:
        await database.close()


@pytest.fixture
async def bank(
    tmp_path: Path, database_url: str, upstreams: Upstreams, request: pytest.FixtureRequest
) -> AsyncIterator[Bank]:
    """Two workers where the database lets there be two."""
    names = ["w0"] if database_url.startswith("sqlite") else ["w0", "w1"]
    async with TokenIssuer() as issuer, AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                RunningGateway(
                    tmp_path, database_url, upstreams, more=issuer.settings(), worker=name
                )
            )
            for name in names
        ]
        key_id = await bind(workers[0], Workload("cluster", SUBJECT))
        for each in workers:
            while key_id not in each.plane.snapshots.current().keys.records:
                await asyncio.sleep(0.01)
        yield Bank(workers, issuer, key_id)


def _ask(url: str, token: str) -> list[str]:
    """Both official SDKs, whole and streamed, as their users call them."""
    said: list[str] = []
    with openai.OpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as gpt:
        chat = gpt.chat.completions.create(
            model=GPT_TARGET, messages=[{"role": "user", "content": SAYS}]
        )
        said.append(chat.choices[0].message.content or "")
        chunks = gpt.chat.completions.create(
            model=GPT_TARGET, messages=[{"role": "user", "content": SAYS}], stream=True
        )
        said.append("".join(each.choices[0].delta.content or "" for each in chunks if each.choices))
        said += [each.id for each in gpt.models.list() if each.id == GPT_TARGET]
    with anthropic.Anthropic(base_url=url, api_key=token, max_retries=0) as claude:
        message = claude.messages.create(
            model=CLAUDE_TARGET, max_tokens=50, messages=[{"role": "user", "content": SAYS}]
        )
        said.append(getattr(message.content[0], "text", ""))
    # A token is also sent as this SDK sends tokens: in the other header.
    with (
        anthropic.Anthropic(base_url=url, auth_token=token, max_retries=0) as claude,
        claude.messages.stream(
            model=CLAUDE_TARGET, max_tokens=50, messages=[{"role": "user", "content": SAYS}]
        ) as stream,
    ):
        said.append(stream.get_final_text())
    return said


async def test_both_sdks_are_answered_whole_and_streamed_by_every_worker(bank: Bank) -> None:
    for worker in bank.workers:
        said = await to_thread.run_sync(_ask, worker.url, bank.issuer.token())
        assert len(said) == 5
        assert all(said)
    records = [each for worker in bank.workers for each in await worker.records()]
    assert {each.key_id for each in records} == {bank.key_id}
    assert {each.stage for each in records} == {"intent", "outcome"}


async def test_both_asynchronous_sdks_are_answered(bank: Bank) -> None:
    url, token = bank.workers[-1].url, bank.issuer.token()
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as gpt,
        anthropic.AsyncAnthropic(base_url=url, api_key=token, max_retries=0) as claude,
    ):
        pieces = await gpt.chat.completions.create(
            model=GPT_TARGET, messages=[{"role": "user", "content": SAYS}], stream=True
        )
        said = [each.choices[0].delta.content or "" async for each in pieces if each.choices]
        async with claude.messages.stream(
            model=CLAUDE_TARGET, max_tokens=50, messages=[{"role": "user", "content": SAYS}]
        ) as stream:
            assert await stream.get_final_text()
    assert "".join(said)


async def test_the_end_of_a_binding_reaches_every_worker_as_that_of_a_key_does(bank: Bank) -> None:
    url, token = bank.workers[-1].url, bank.issuer.token()
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as gpt:
        await gpt.models.list()
        database = open_database(bank.workers[0].settings.database_url)
        try:
            peppers = Peppers({1: pepper(bank.workers[0].settings)})
            await KeyStore(database, peppers, SystemClock()).revoke(bank.key_id)
        finally:
            await database.close()
        while bank.knows(bank.key_id):
            await asyncio.sleep(0.01)
        with pytest.raises(openai.AuthenticationError, match="no caller here is bound"):
            await gpt.models.list()


async def test_a_refusal_is_said_in_the_callers_dialect_and_repeats_nothing_of_the_token(
    bank: Bank,
) -> None:
    url = bank.workers[0].url
    token = bank.issuer.token(sub="system:serviceaccount:payments:stranger")
    body = {"model": CLAUDE_TARGET, "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
    async with aiohttp.ClientSession() as http:
        async with http.post(
            f"{url}/v1/messages", json=body, headers={"x-api-key": token}
        ) as answer:
            claude, status = await answer.json(), answer.status
        async with http.get(f"{url}/metrics") as answer:
            metrics = await answer.text()
    assert (status, claude["type"]) == (401, "error")
    assert claude["error"]["type"] == "authentication_error"
    assert 'outcome="unbound"' in metrics
    for part in token.split("."):
        assert part not in f"{claude}{metrics}"
    assert "stranger" not in f"{claude}{metrics}"


async def test_a_key_that_the_issuer_took_a_moment_ago_is_asked_for(bank: Bank) -> None:
    """Kubernetes signs with a new key at once; nobody is told beforehand."""
    for worker in bank.workers:
        callers = worker.plane._callers
        assert callers is not None
        for each in callers._issuers.values():
            each.keys._asked_s = float("-inf")  # The last time is long over.
    bank.issuer.keys = {"k2": curve_key()}
    said = await to_thread.run_sync(_ask, bank.workers[0].url, bank.issuer.token())
    assert all(said)


async def test_a_batch_is_sent_for_the_key_that_a_token_proved(bank: Bank) -> None:
    """A line is sent for a key that is valid then; nobody is there to show a token."""
    url, token = bank.workers[0].url, bank.issuer.token()
    line: dict[str, object] = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}
    line |= {"body": {"model": GPT_TARGET, "messages": [{"role": "user", "content": SAYS}]}}
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as gpt:
        lines = ("lines.jsonl", json.dumps(line).encode())
        file = await gpt.files.create(file=lines, purpose="batch")
        batch = await gpt.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        while batch.status != "completed":
            await asyncio.sleep(0.05)
            batch = await gpt.batches.retrieve(batch.id)
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 1
