"""A stream of responses to who asked for one: the upstream's own bytes, under a name of ours."""

import json
from typing import Any

import pytest
from msgspec import structs

from gateway.dialects.registry import DIALECTS
from gateway.dialects.sse import Splitter
from gateway.errors import UpstreamMalformed
from gateway.thread import Thread
from gateway.types import StreamEvent, Usage
from tests.gateway.dialects.samples import sse


RESPONSES = DIALECTS["openai_responses"]
USAGE = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
HEAD = {"id": "resp_theirs", "object": "response", "model": "m", "previous_response_id": None}
BEGUN = HEAD | {"status": "in_progress", "output": [], "store": False}
ENDED = HEAD | {"status": "completed", "output": [], "store": False, "usage": USAGE}
SAID = sse("response.output_text.delta", output_index=0, content_index=0, delta="Hi")
OTHER = sse("response.output_item.added", output_index=0, item={"type": "message", "content": []})
STREAM = (sse("response.created", response=BEGUN), OTHER, SAID, SAID)


def asked(**thread: Any) -> Any:
    raw = b'{"model":"m","input":"Hi","stream":true}'
    request = RESPONSES.decode_request(raw, "req_0000000003e8abcdef")
    return structs.replace(request, thread=Thread(**thread))


def decoded(*raw: bytes) -> list[list[StreamEvent]]:
    decoder = RESPONSES.stream_decoder()
    return [decoder.feed(each) for each in raw]


def trees_of(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(each.data) for each in Splitter().feed(stream) if each.data is not None]


@pytest.mark.parametrize("at_once", [False, True])
def test_all_but_the_response_itself_is_passed_on_as_it_came(*, at_once: bool) -> None:
    request = asked(previous_id="resp_before", keeps=True, answer_id="resp_ours")
    encoder = RESPONSES.stream_encoder(request, "openai_responses")
    batches = decoded(*STREAM, sse("response.completed", response=ENDED))
    if at_once:
        batches = [[event for batch in batches for event in batch]]
    sent = b"".join([encoder.encode(batch) for batch in batches])

    first, rest = sent.split(b"\n\n", maxsplit=1)
    assert rest == OTHER + SAID + SAID
    ours = {"id": "resp_ours", "previous_response_id": "resp_before", "store": True}
    ours["background"] = False
    assert first.startswith(b"event: response.created\ndata: ")
    assert trees_of(first + b"\n\n")[0]["response"] == BEGUN | ours
    # The end waits until it is known what the answer cost.
    ending = encoder.finish("x-cost=1", Usage(input_tokens=5, output_tokens=3))
    comment, last = ending.split(b"\n\n", maxsplit=1)
    assert comment == b": x-cost=1"
    assert last.startswith(b"event: response.completed\ndata: ")
    assert trees_of(last)[0]["response"] == json.loads(encoder.response) == ENDED | ours


@pytest.mark.parametrize(("total", "output_tokens"), [(93, 88), (8, 3), (None, 3)])
def test_reasoning_that_a_response_counts_beside_its_output_is_paid_as_well(
    total: int | None, output_tokens: int
) -> None:
    usage = USAGE | {"total_tokens": total, "output_tokens_details": {"reasoning_tokens": 85}}
    ended = ENDED | {"usage": usage}
    whole = RESPONSES.decode_reply(json.dumps(ended).encode()).usage
    (batch,) = decoded(sse("response.completed", response=ended))
    (streamed,) = [delta.usage for event in batch for delta in event.deltas if delta.usage]

    assert whole == streamed == Usage(5, output_tokens, reasoning_tokens=85)


def test_what_the_upstream_did_not_count_is_told_as_it_is_charged() -> None:
    encoder = RESPONSES.stream_encoder(asked(), "openai_responses")
    for batch in decoded(*STREAM, sse("response.completed", response=ENDED | {"usage": None})):
        encoder.encode(batch)
    encoder.finish("", Usage(input_tokens=7, output_tokens=2, estimated=True))

    told = json.loads(encoder.response)
    assert told["usage"]["total_tokens"] == 9
    assert told["id"] == "resp_0000000003e8abcdef"
    assert told["store"] is False


def test_a_failure_goes_on_counting_where_the_upstream_stopped_and_nothing_follows() -> None:
    encoder = RESPONSES.stream_encoder(asked(), "openai_responses")
    for batch in decoded(*STREAM):
        encoder.encode(batch)
    (told,) = trees_of(encoder.fail(UpstreamMalformed("It broke."), "req_1"))

    assert (told["type"], told["sequence_number"]) == ("error", len(STREAM))
    assert encoder.finish("x-cost=1", Usage()) == b""
    assert encoder.response == b""
    assert not encoder.is_cut_on_failure


ODD: list[dict[str, Any]] = [
    {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": ""},
    {"type": "message", "content": []},
]


@pytest.mark.parametrize("kind", ["response.output_item.added", "response.output_item.done"])
@pytest.mark.parametrize("item", ODD)
@pytest.mark.parametrize("named", [{"id": "x"}, "text"])
def test_something_that_is_only_called_a_response_stays_as_it_is(
    kind: str, item: dict[str, Any], named: object
) -> None:
    for place in ({"item": item | {"response": named}}, {"item": item, "other": {"response": 1}}):
        odd = sse(kind, output_index=0, **place)
        encoder = RESPONSES.stream_encoder(asked(), "openai_responses")
        sent = b"".join([encoder.encode(batch) for batch in decoded(STREAM[0], odd)])

        assert sent.endswith(odd)
