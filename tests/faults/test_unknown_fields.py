"""Servers that refuse fields of the dialect they speak, as Mistral's API does."""

from typing import Any

import msgspec
import pytest

from gateway.types import Translation
from tests.faults.envelopes import STYLES, TERMINALS, Caller, Style, ask
from tests.running_gateway import RunningGateway, Upstreams
from tests.upstreams import Answer, RecordedRequest, RecordingUpstream


pytestmark = pytest.mark.anyio

TRANSLATIONS: tuple[Translation, ...] = ("warn", "strict", "lenient")
UNKNOWN = ("stream_options", "max_completion_tokens", "user")


class Forgetful(RecordingUpstream):
    """Knows none of some fields, and says so of one at a time."""

    def answer_to(self, request: RecordedRequest) -> Answer:
        sent = request.json if request.method == "POST" else {}
        unknown = next((name for name in UNKNOWN if name in sent), None)
        if unknown is None:
            return super().answer_to(request)
        flaw = {"type": "extra_forbidden", "loc": ["body", unknown], "msg": "Not permitted"}
        said: dict[str, Any] = {"object": "error", "message": {"detail": [flaw]}, "code": None}
        return Answer(status=422, body=msgspec.json.encode(said))


@pytest.fixture(scope="module")
async def shared_upstreams() -> Any:
    upstreams = Upstreams()
    upstreams.engine = Forgetful()
    async with upstreams:
        yield upstreams


async def test_what_a_target_does_not_know_is_refused_once_and_not_sent_again(
    gateway: RunningGateway, upstreams: Upstreams, caller: Caller
) -> None:
    async def calls_for(style: Style, translation: Translation) -> int:
        upstreams.engine.forget()
        body = ask(style, stream=True)
        if style == "openai":
            body |= {"max_completion_tokens": body.pop("max_tokens"), "user": "one"}
        else:
            body["metadata"] = {"user_id": "one"}
        key = await gateway.issue_key(translation=translation)
        reply = await caller.with_key(key).post(style, body)
        assert reply.status == 200
        assert TERMINALS[style] in reply.body
        assert "x-gatewright-dropped" not in reply.headers
        sent = upstreams.engine.calls[-1].json
        assert not sent.keys() & set(UNKNOWN)
        assert sent["max_tokens"] == 50
        return len(upstreams.engine.calls)

    # Nothing of the caller's is left out, so that strict keys may have it, too.
    assert await calls_for("openai", "strict") == 4
    for style in STYLES:
        for translation in TRANSLATIONS:
            assert await calls_for(style, translation) == 1
