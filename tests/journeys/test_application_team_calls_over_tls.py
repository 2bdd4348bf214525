"""An application team calls a gateway that speaks TLS itself, by an authority of the company's."""

from collections.abc import AsyncIterator
from pathlib import Path

import anthropic
import openai
import pytest
from anthropic.types import MessageParam

from tests.certificates import Authority
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio

ASKED: MessageParam = {"role": "user", "content": "Good morning"}


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Callers need a certificate of it, too."""
    authority = Authority(tmp_path)
    pair = authority.issue()
    for name, file in (
        ("CERTIFICATE", pair.chain),
        ("KEY", pair.key),
        ("CLIENT_CA", authority.file),
    ):
        monkeypatch.setenv(f"GATEWRIGHT_DATA_PLANE__TLS_{name}_FILE", str(file))
    return authority


@pytest.fixture
async def encrypted(
    authority: Authority, tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    async with RunningGateway(tmp_path / "gateway", sqlite_url, upstreams) as running:
        yield running


async def test_both_sdks_are_answered_whole_and_streamed(
    encrypted: RunningGateway, authority: Authority
) -> None:
    key, tls = await encrypted.issue_key(), authority.trusting(authority.issue("team"))
    async with (
        openai.DefaultAsyncHttpxClient(verify=tls) as http,
        openai.AsyncOpenAI(
            base_url=f"{encrypted.url}/v1", api_key=key, http_client=http, max_retries=0
        ) as gpt,
        anthropic.DefaultAsyncHttpxClient(verify=tls) as other,
        anthropic.AsyncAnthropic(
            base_url=encrypted.url, api_key=key, http_client=other, max_retries=0
        ) as claude,
    ):
        chat = await gpt.chat.completions.create(
            model=GPT_TARGET, messages=[{"role": "user", "content": "Good morning"}]
        )
        pieces = await gpt.chat.completions.create(
            model=GPT_TARGET,
            messages=[{"role": "user", "content": "Good morning"}],
            stream=True,
        )
        streamed = "".join(
            [each.choices[0].delta.content or "" async for each in pieces if each.choices]
        )
        message = await claude.messages.create(model=CLAUDE_TARGET, max_tokens=50, messages=[ASKED])
        async with claude.messages.stream(
            model=CLAUDE_TARGET, max_tokens=50, messages=[ASKED]
        ) as answer:
            told = "".join([text async for text in answer.text_stream])

    assert encrypted.url.startswith("https://")
    assert chat.choices[0].message.content == streamed
    assert message.content[0].type == "text"
    assert message.content[0].text == told
    assert "Hello" in streamed
    assert "Hello" in told


async def test_a_key_alone_does_not_open_a_listener_that_asks_for_certificates(
    encrypted: RunningGateway, authority: Authority
) -> None:
    key = await encrypted.issue_key()
    async with (
        openai.DefaultAsyncHttpxClient(verify=authority.trusting()) as http,
        openai.AsyncOpenAI(
            base_url=f"{encrypted.url}/v1", api_key=key, http_client=http, max_retries=0
        ) as gpt,
    ):
        with pytest.raises(openai.APIConnectionError):
            await gpt.models.list()
