"""An upstream's refusal tells its caller no credential of ours, and nothing to be masked."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.faults.envelopes import STYLES, Caller, Style, ask
from tests.faults.test_scanned_answers import POLICY
from tests.identifiers import card
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

CARD = card(11)
STATUSES = (400, 401, 403, 404, 409, 413, 422, 429, 500, 503, 529)
TARGETS: dict[Style, str] = {"openai": GPT_TARGET, "anthropic": CLAUDE_TARGET}


def refusals(said: str) -> list[Any]:
    """Bodies of refusals that say it in each of their places."""
    error = {"message": "no", "type": "invalid_request_error", "param": "model", "code": "bad"}
    one = dict.fromkeys(error, said)
    detail = {"details": {"error_code": said}}
    return [
        {"error": one},
        *({"error": error | {name: said}} for name in error),
        {"type": "error", "error": error | detail | {"message": f"it is {said} , sorry"}},
        {"error": said, "code": said, "type": said},
        {"message": said, "code": said, "param": said},
        {"detail": said},
        {said: said},
    ]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("stream", [False, True])
async def test_no_refusal_tells_what_we_prove_ourselves_with_or_what_is_masked(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    style: Style,
    stream: bool,
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.format(mode="mask"))
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        body = ask(style, stream=stream, model=TARGETS[style])
        for said in (CARD, f"call_abcd{CARD}", gateway.upstream_key):
            for refusal in refusals(said):
                for status in STATUSES if refusal == refusals(said)[0] else (400, 422):
                    raw = json.dumps(refusal).encode()
                    for upstream in own_upstreams.managed:
                        upstream.answer(Answer(status=status, body=raw))
                    reply = await caller.post(style, body)
                    assert reply.status >= 400
                    told = f"{reply.body!r}{reply.headers}"
                    assert CARD not in told, (status, refusal, reply.body)
                    assert gateway.upstream_key not in told, (status, refusal, reply.body)
        records = repr(await gateway.records())
        assert CARD not in records
        assert gateway.upstream_key not in records
