"""Vendors behind a company's proxy and authority: served, tested and renewed while it runs."""

import asyncio
import base64
import secrets
from pathlib import Path

import aiohttp
import pytest

from gateway.clock import SystemClock
from gateway.store.checkups import CheckupTable
from gateway.store.engine import open_database
from tests.certificates import Authority
from tests.faults.envelopes import Caller, Style, ask
from tests.forward_proxy import ForwardProxy
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import RecordingUpstream


pytestmark = pytest.mark.anyio
MODELS: tuple[tuple[Style, str], ...] = (("openai", GPT_TARGET), ("anthropic", CLAUDE_TARGET))


def written(file: Path, user_and_password: str) -> str:
    """What a proxy hears from whoever reads this file."""
    file.touch(mode=0o600)
    file.write_text(f"{user_and_password}\n")
    return f"Basic {base64.b64encode(user_and_password.encode()).decode()}"


async def test_two_vendors_by_a_proxy_with_a_renewed_credential(
    tmp_path: Path,
    sqlite_url: str,
    http: aiohttp.ClientSession,
    capfd: pytest.CaptureFixture[str],
) -> None:
    house, upstreams = Authority(tmp_path), Upstreams()
    shown = house.issue()
    for name in ("anthropic", "openai"):
        tls = house.server("127.0.0.1", wants_from=house)
        setattr(upstreams, name, RecordingUpstream(tls=tls))
    first, second = (f"gateway:{secrets.token_hex(12)}" for _ in range(2))
    async with ForwardProxy() as proxy, upstreams:
        proxy.authorization = written(tmp_path / "proxy.secret", first)
        managed = (
            f"ca_file = '{house.file.name}'\nclient_certificate = '{shown.chain.name}'\n"
            f"client_key = '{shown.key.name}'\nproxy = '{proxy.url}'\n"
            "proxy_credential = { file = 'proxy.secret' }\n"
        )
        async with RunningGateway(tmp_path, sqlite_url, upstreams, managed=managed) as gateway:
            caller = Caller(gateway, http, await gateway.issue_key())

            async def statuses() -> list[int]:
                return [
                    (await caller.post(style, ask(style, model=model, stream=stream))).status
                    for style, model in MODELS
                    for stream in (False, True)
                ]

            assert await statuses() == [200] * 4
            tunnels = proxy.tunnels

            renewed = proxy.authorization = written(tmp_path / "proxy.secret", second)
            while proxy.tunnels < tunnels + 2:
                assert await statuses() == [200] * 4
                await asyncio.sleep(0.05)
            assert f"proxy-authorization: {renewed}".encode() in proxy.heads[-1]

            database = open_database(gateway.settings.database_url)
            table = CheckupTable(database, SystemClock())
            await table.ask("t1", "anthropic", CLAUDE_TARGET, "ann")
            while not (order := (await table.all())["anthropic"]).ended_us:
                await asyncio.sleep(0.05)
            await database.close()
            assert [step.code for step in order.found.steps] == [
                *("by_proxy", "tunnelled", "ok", "ok")
            ]
            records = await gateway.records()

    said = capfd.readouterr()
    told = f"{records} {order} {said.out} {said.err}"
    for word in (first, second, *(head.decode().split()[-1] for head in proxy.heads)):
        assert word not in told
    assert {place.split(":")[0] for place in proxy.asked} == {"127.0.0.1"}
    for upstream in upstreams.managed:
        assert upstream.calls
        assert all("proxy-authorization" not in request.headers for request in upstream.requests)
