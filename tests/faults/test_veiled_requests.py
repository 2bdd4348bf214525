"""A policy that requires pseudonyms: no value reaches an upstream, every answer restores them."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.faults.envelopes import STYLES, Caller, Style, ask, check_error
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

POLICY = """
name = "pseudonyms"
version = 1
[defaults]
order = ["cheapest"]
[[constraints]]
name = "no-names-outside"
{obligation} = true
"""
TEXT = "Please write to Ingrid Halvorsen at ingrid@corp-mail.no about her card."
VALUES = (b"Ingrid", b"Halvorsen", b"corp-mail")
TARGETS = {"openai": GPT_TARGET, "anthropic": CLAUDE_TARGET}
both = pytest.mark.parametrize("style", STYLES)


@pytest.fixture(params=["pseudonymise", "redact"])
async def obliged(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    (tmp_path / "policy.toml").write_text(POLICY.format(obligation=request.param))
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        running.obligation = request.param  # type: ignore[attr-defined]
        yield running


@both
@pytest.mark.parametrize("stream", [False, True])
async def test_values_stay_and_come_back(
    style: Style,
    stream: bool,
    obliged: RunningGateway,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
) -> None:
    caller = Caller(obliged, http, await obliged.issue_key())
    upstream = own_upstreams.openai if style == "openai" else own_upstreams.anthropic
    messages = [{"role": "user", "content": TEXT}]
    body = ask(style, stream=stream, model=TARGETS[style], messages=messages)

    await caller.post(style, body)
    said = str(upstream.calls[-1].json["messages"])
    surrogate = said.split("write to ")[1].split(" at ", maxsplit=1)[0]
    upstream.answer(Answer(text=f"I wrote to {surrogate} today."))
    reply = await caller.post(style, body)

    assert reply.status == 200
    for call in upstream.calls:
        assert not any(value in call.body for value in VALUES)
    assert len({call.body for call in upstream.calls}) == 1
    came_back = b"".join(_texts(reply.body))
    if obliged.obligation == "pseudonymise":  # type: ignore[attr-defined]
        assert b"I wrote to Ingrid Halvorsen today." in came_back
    else:
        assert b"I wrote to [REDACTED:PERSON] today." in came_back


@both
async def test_what_cannot_be_read_does_not_leave(
    style: Style, obliged: RunningGateway, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    caller = Caller(obliged, http, await obliged.issue_key())
    picture = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 30},
    }
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 30}
    block = picture if style == "openai" else {"type": "image", "source": source}
    body = ask(style, model=TARGETS[style], messages=[{"role": "user", "content": [block]}])

    check_error(await caller.post(style, body), style, "no_permitted_target")

    assert not any(upstream.calls for upstream in own_upstreams.managed)
    assert not own_upstreams.engine.calls


def _texts(body: bytes) -> list[bytes]:
    """Every text of an answer, whole or streamed, joined by nothing."""
    marks = (b'"content":"', b'"text":"')
    return [part.split(b'"')[0] for mark in marks for part in body.split(mark)[1:]]
