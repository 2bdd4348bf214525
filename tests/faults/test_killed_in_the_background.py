"""SIGKILL to a worker that makes background answers: each has failed once, and is paid for."""

import asyncio
from collections import Counter
from pathlib import Path

import openai
import pytest

from gateway.audit.projecting.export import segment_rows
from gateway.background import beats
from gateway.configuration.reading import load_settings
from tests.conformance.test_background import over, under_way
from tests.faults.test_kills import serving
from tests.free_ports import free_port
from tests.running_gateway import BRISK_PROCESS, CLAUDE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SHORT_LEASE = f"""{BRISK_PROCESS}
import gateway.store.background_runs
gateway.store.background_runs.LEASE_US = 2_000_000
"""


@pytest.mark.either
async def test_what_a_killed_worker_made_has_failed_elsewhere_and_is_settled_once(
    tmp_path: Path,
    database_url: str,
    own_upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(beats, "LOOK_S", 0.2)
    monkeypatch.setattr(beats, "AMNESTY_S", 0.2)
    more = "[inspection]\ndeadline_s = 30.0\n[responses]\nbackground_running_max = 1\n"
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=more) as other:
        key = await other.issue_key()
        port = free_port()
        config_file = tmp_path / "w1.toml"
        text = other.config_file.read_text().replace('worker = "w0"', 'worker = "w1"')
        config_file.write_text(text.replace("port = 0", f"port = {port}"))
        url = f"http://127.0.0.1:{port}"
        async with (
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as here,
            openai.AsyncOpenAI(base_url=f"{other.url}/v1", api_key=key, max_retries=0) as there,
        ):
            async with serving(config_file, url, SHORT_LEASE) as process:
                own_upstreams.anthropic.answer(Answer(hold=asyncio.Event()))
                made = [
                    await here.responses.with_raw_response.create(
                        model=CLAUDE_TARGET, input="Good morning", background=True
                    )
                    for _ in range(2)
                ]
                sent, waiting = (raw.parse().id for raw in made)
                wanted = {raw.headers["x-request-id"] for raw in made}
                assert (await under_way(there, sent)).status == "in_progress"
                await own_upstreams.anthropic.called()
                process.kill()
                await process.wait()
            for answer_id in (sent, waiting):
                failed = await over(there, answer_id)
                assert failed.status == "failed"
                assert failed.error is not None
                assert "worker that made this answer" in failed.error.message
            async with serving(config_file, url, SHORT_LEASE):
                assert (await here.responses.retrieve(sent)).status == "failed"
                ends = await outcomes(config_file, wanted)
        assert ends == dict.fromkeys(wanted, 1)
        assert len(own_upstreams.anthropic.calls) == 1, "nothing is sent a second time"


async def outcomes(config_file: Path, wanted: set[str]) -> dict[str, int]:
    """How many outcomes each of these requests has, once all have one."""
    settings = load_settings(config_file)
    folder = settings.path(settings.audit.directory)
    while True:
        rows = [row.projected.record async for row in segment_rows(folder)]
        ended = [row for row in rows if row.stage == "outcome" and row.request_id in wanted]
        if {row.request_id for row in ended} == wanted:
            assert {row.error for row in ended} == {"worker_crashed"}
            assert all(row.cost_microusd > 0 for row in ended)
            return dict(Counter(row.request_id for row in ended))
        await asyncio.sleep(0.1)
