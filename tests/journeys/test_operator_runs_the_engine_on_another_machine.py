"""An engine that others can reach: TLS, a key, and certificates of the gateways that may ask."""

import asyncio
import secrets
import ssl
from pathlib import Path

import aiohttp
import httpx
import openai
import pytest

from tests.certificates import Authority, Pair
from tests.local_engine.engine_process import EngineProcess
from tests.local_engine.models import DEMO_MODEL
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = pytest.mark.anyio
ANSWER = "PII is personally identifiable"
SHOWN = "client_certificate = 'gateway.crt'\nclient_key = 'gateway.key'\n"
TABLES = """
[providers.{name}]
kind = "engine"
base_url = "{url}"
jurisdiction = "in-house"
credential = {{ file = "engine.secret" }}
ca_file = "house.pem"
{shown}
[targets.{name}]
provider = "{name}"
model = "gatewright-demo"
catalogue = "in-house"
"""


async def test_an_engine_behind_tls_and_a_key_answers_who_shows_a_certificate(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> None:
    house = Authority(tmp_path, "house")
    listener, key = house.issue("engine"), secrets.token_hex(16)
    house.issue("gateway")
    (tmp_path / "engine.secret").touch(mode=0o600)
    (tmp_path / "engine.secret").write_text(key)
    options = ("--tls-certificate-file", str(listener.chain), "--tls-key-file", str(listener.key))
    started = EngineProcess.started(
        *("--model", str(DEMO_MODEL), "--api-key-env", "ENGINE_KEY"),
        *(*options, "--tls-client-ca-file", str(house.file)),
        env={"ENGINE_KEY": key},
    )
    with started as engine:
        assert engine.url.startswith("https://")
        more = "".join(
            TABLES.format(name=name, url=engine.url, shown=shown)
            for name, shown in (("shows", SHOWN), ("hides", ""))
        )
        async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
            caller = openai.AsyncOpenAI(
                base_url=f"{gateway.url}/v1", api_key=await gateway.issue_key(), max_retries=0
            )
            assert ANSWER in await said(caller, "shows")
            with pytest.raises(openai.APIStatusError) as refused:
                await said(caller, "hides")
            assert refused.value.status_code == 503

            house.issue("engine")
            await until_renewed(engine, house)
            assert ANSWER in await said(caller, "shows")
            await caller.close()
        await tell_strangers_nothing(engine, house, key)


async def said(caller: openai.AsyncOpenAI, model: str) -> str:
    answer = await caller.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "What is PII?"}]
    )
    return answer.choices[0].message.content or ""


async def until_renewed(engine: EngineProcess, house: Authority) -> None:
    """The engine looks every five seconds."""
    assert engine.process.stdout is not None
    line = await asyncio.wait_for(asyncio.to_thread(engine.process.stdout.readline), 60)
    assert "engine.certificate_renewed" in line


async def tell_strangers_nothing(engine: EngineProcess, house: Authority, key: str) -> None:
    """Neither in clear, nor without a certificate, nor with one and no key."""
    known = house.trusting(
        Pair(house.file.parent / "gateway.crt", house.file.parent / "gateway.key")
    )
    headers = {"authorization": f"Bearer {key}"}
    clear = engine.url.replace("https", "http")
    for url, tls in (
        (clear, False),
        (engine.url, house.trusting()),
        (engine.url, ssl.create_default_context()),
    ):
        async with httpx.AsyncClient(verify=tls) as stranger:
            with pytest.raises(httpx.TransportError):
                await stranger.get(f"{url}/v1/models", headers=headers)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{engine.url}/v1/models", ssl=known) as answer:
            assert answer.status == 401
        async with session.get(f"{engine.url}/v1/models", ssl=known, headers=headers) as answer:
            assert answer.status == 200
        async with session.get(f"{engine.url}/metrics", ssl=known) as answer:
            assert "gatewright_engine_certificate_seconds_left 3" in await answer.text()
