"""A field that a server refuses in one caller's request is still sent for everybody else."""

from typing import Any

import msgspec
import pytest

from tests.faults.envelopes import Caller, ask
from tests.running_gateway import Upstreams
from tests.upstreams import Answer, RecordedRequest, RecordingUpstream


pytestmark = pytest.mark.anyio

OPTIONS = {"include_usage": True}


class Particular(RecordingUpstream):
    """Takes options of streams for streams, and one name of an answer's limit at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.unknown = "max_completion_tokens"

    def answer_to(self, request: RecordedRequest) -> Answer:
        sent = request.json if request.method == "POST" else {}
        if "stream_options" in sent and not sent.get("stream"):
            return refusal("stream_options", None)
        if self.unknown in sent:
            return refusal(self.unknown, "unsupported_parameter")
        return refusal("seed", "invalid_value") if "seed" in sent else super().answer_to(request)


def refusal(field: str, code: str | None) -> Answer:
    error = {"message": "Not so.", "type": "invalid_request_error", "param": field, "code": code}
    return Answer(status=400, body=msgspec.json.encode({"error": error}))


@pytest.fixture(scope="module")
async def shared_upstreams() -> Any:
    upstreams = Upstreams()
    upstreams.engine = Particular()
    async with upstreams:
        yield upstreams


async def test_options_of_a_call_that_does_not_stream_leave_streams_their_usage(
    caller: Caller, upstreams: Upstreams
) -> None:
    reply = await caller.post("openai", ask("openai", stream_options=OPTIONS))
    assert (reply.status, reply.tree["error"]["param"]) == (400, "stream_options")

    assert (await caller.post("openai", ask("openai", stream=True))).status == 200
    assert upstreams.engine.calls[-1].json["stream_options"] == OPTIONS


async def test_only_what_was_answered_without_a_field_says_that_it_is_not_known(
    caller: Caller, upstreams: Upstreams
) -> None:
    assert isinstance(upstreams.engine, Particular)
    upstreams.engine.unknown = "user"
    assert (await caller.post("openai", ask("openai", user="one", seed=7))).status == 400

    upstreams.engine.unknown = "max_completion_tokens"
    assert (await caller.post("openai", ask("openai", user="one"))).status == 200
    assert upstreams.engine.calls[-1].json["user"] == "one"


async def test_of_two_names_of_the_limit_the_one_refused_last_is_not_sent_again(
    caller: Caller, upstreams: Upstreams
) -> None:
    assert isinstance(upstreams.engine, Particular)

    async def calls_for(unknown: str) -> int:
        assert isinstance(upstreams.engine, Particular)
        upstreams.engine.unknown = unknown
        before = len(upstreams.engine.calls)
        assert (await caller.post("openai", ask("openai"))).status == 200
        return len(upstreams.engine.calls) - before

    for unknown in ("max_tokens", "max_completion_tokens", "max_tokens"):
        await calls_for(unknown)
        assert await calls_for(unknown) == 1
