"""Text completions as such: several in one request, in one answer, in one stream; chats as one."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission.bounds import answers_of
from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported, RequestInvalid, UpstreamMalformed
from gateway.types import ChatRequest, Completion, Delta, StreamEvent, Usage
from tests.conformance.strict_types import EVENTS, flaws
from tests.gateway.dialects.samples import target


BARE = DIALECTS["openai_completions"]
HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
REASONS = {"end": "stop", "length": "length", "content_filter": "content_filter", "pause": "length"}
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def asked(**fields: Any) -> ChatRequest:
    body = {"model": "m", "prompt": "Once"} | fields
    return BARE.decode_request(json.dumps(body).encode(), "req_1")


def answered(*texts: str | None, usage: object = None) -> bytes:
    choices = [
        {"index": at, "text": text, "finish_reason": "stop"} for at, text in enumerate(texts)
    ]
    return msgspec.json.encode(HEAD | {"choices": choices, "usage": usage})


def chunk(*choices: dict[str, Any], **more: Any) -> bytes:
    return b"data: " + msgspec.json.encode(HEAD | {"choices": choices} | more) + b"\n\n"


@given(
    prompts=st.lists(st.text("ab ", min_size=1), min_size=1, max_size=6),
    count=st.integers(1, 5),
    ranks=st.booleans(),
)
def test_as_many_answers_are_counted_as_all_prompts_are_given(
    prompts: list[str], count: int, *, ranks: bool
) -> None:
    more = {"best_of": count} if ranks else {}
    request = asked(prompt=prompts, n=count, **more)

    assert answers_of(request) == len(prompts) * count
    sent = msgspec.json.decode(BARE.encode_request(request, target(), 5).body)
    assert sent["prompt"] == (prompts if len(prompts) > 1 else prompts[0])
    assert (sent["n"], sent["max_tokens"]) == (count, 5)
    assert "best_of" not in sent


def test_the_longest_prompt_is_what_a_window_has_to_hold() -> None:
    long, short = "word " * 200, "word"
    alone = asked(prompt=long)
    both = asked(prompt=[short, long, short])

    assert alone.longest_tokens_estimate == asked(prompt=[long]).longest_tokens_estimate == 0
    assert abs(both.longest_tokens_estimate - alone.input_tokens_estimate) < 20
    assert asked(prompt=[long, long]).input_tokens_estimate > 1.5 * both.longest_tokens_estimate
    embedded = DIALECTS["openai_embeddings"].decode_request(
        json.dumps({"model": "m", "input": [short, long]}).encode(), "req_1"
    )
    assert embedded.longest_tokens_estimate == both.longest_tokens_estimate


@pytest.mark.parametrize("fields", [{}, {"echo": False}, {"echo": True, "max_tokens": -1}])
def test_no_token_at_all_is_for_an_echo_only(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid) as caught:
        asked(**{"max_tokens": 0} | fields)

    assert caught.value.parameter == "max_tokens"
    assert asked(max_tokens=0, echo=True).max_output_tokens == 0


def test_probabilities_are_refused_where_the_model_tells_none() -> None:
    silent = target(parameters={"logprobs": "no"})
    for count in (0, 2):
        with pytest.raises(FeatureUnsupported) as caught:
            BARE.encode_request(asked(logprobs=count), silent, 5)
        assert caught.value.parameter == "logprobs"
    assert BARE.encode_request(asked(logprobs=None), silent, 5).body
    with pytest.raises(FeatureUnsupported):
        BARE.encode_request(asked(n=2), target(parameters={"n": "no"}), 5)


def test_every_choice_of_an_answer_says_something_or_it_is_none() -> None:
    completion = BARE.decode_reply(answered("one", "two"))

    assert completion.text == "one"
    for broken in (answered("one", None), answered(None), answered(), b"{}", b"[]", b"\xff"):
        with pytest.raises(UpstreamMalformed):
            BARE.decode_reply(broken)


def test_what_nobody_counted_is_estimated_of_all_choices() -> None:
    one = BARE.decode_reply(answered("word " * 50)).usage
    three = BARE.decode_reply(answered(*["word " * 50] * 3)).usage

    assert one.estimated
    assert three.estimated
    assert three.output_tokens > 2.5 * one.output_tokens


@pytest.mark.parametrize(("prompts", "count"), [(1, 2), (2, 1), (2, 2)])
def test_the_upstreams_bytes_are_passed_on_if_none_of_its_choices_is_missing(
    prompts: int, count: int
) -> None:
    request = asked(prompt=["x"] * prompts, n=count)
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    for number in range(1, 6):
        raw = answered(*["a"] * number, usage=usage)
        completion = BARE.decode_reply(raw)
        if number == prompts * count:
            assert BARE.encode_reply(completion, BARE.name, request) == raw
        else:
            with pytest.raises(UpstreamMalformed):
                BARE.encode_reply(completion, BARE.name, request)


@settings(max_examples=60)
@given(data=st.data())
def test_events_are_the_same_however_the_bytes_of_a_stream_are_cut(data: st.DataObject) -> None:
    raw = b"".join(
        [
            b": ping\n\n",
            chunk({"index": 0, "text": "one "}, {"index": 1, "text": "uno "}),
            chunk({"index": 1, "text": "due", "finish_reason": "stop", "stop_reason": "."}),
            chunk({"index": 0, "text": ""}),
            chunk({"index": 0, "text": "two", "finish_reason": "stop", "stop_reason": "END"}),
            chunk(usage={"prompt_tokens": 3, "completion_tokens": 4}),
            b"data: [DONE]\n\n",
        ]
    )
    whole = BARE.stream_decoder().feed(raw)
    cuts = sorted({0, len(raw), *data.draw(st.lists(st.integers(0, len(raw)), max_size=12))})
    decoder = BARE.stream_decoder()
    events = [event for start, end in pairwise(cuts) for event in decoder.feed(raw[start:end])]

    assert events == whole
    deltas = [delta for event in events for delta in event.deltas]
    assert [(d.index, d.text) for d in deltas if d.kind == "text"] == [
        *((0, "one "), (1, "uno "), (1, "due"), (0, "two")),
    ]
    stops = [(d.stop_reason, d.stop_sequence) for d in deltas if d.kind == "stop"]
    assert stops == [("stop_sequence", "END")]
    assert [event.settles for event in events if event.deltas and event.settles is not None] == [
        *((0,), (1,), (1,), (0,)),
    ]


@given(
    pieces=st.lists(st.tuples(st.sampled_from(["text", "refusal", "thinking"]), WORDS), max_size=8),
    reason=st.sampled_from([*REASONS]),
    wants_usage=st.booleans(),
)
def test_a_chats_events_say_the_same_as_a_continuation(
    pieces: list[tuple[Any, str]], reason: str, *, wants_usage: bool
) -> None:
    request = asked(stream=True, stream_options={"include_usage": wants_usage})
    deltas = [Delta("start", message_id="chatcmpl-7", model="there")]
    deltas += [Delta(kind, text) for kind, text in pieces]
    deltas.append(Delta("stop", stop_reason=reason))
    encoder = BARE.stream_encoder(request, "openai_chat")
    usage = Usage(input_tokens=3, output_tokens=4)
    sent = [encoder.encode([StreamEvent(b"", (delta,))]) for delta in deltas]
    sent.append(encoder.finish("x-cost=1", usage))
    events = BARE.stream_decoder().feed(b"".join(sent))

    told = [delta for event in events for delta in event.deltas]
    spoken = [text for kind, text in pieces if kind != "thinking" and text]
    assert [delta.text for delta in told if delta.kind == "text"] == spoken
    trees = [msgspec.json.decode(e.raw[5:]) for e in events if e.deltas]
    found = [flaw for e in events if e.deltas for flaw in flaws(EVENTS[BARE.name], e.raw[5:])]
    # The vendor's type is that of whole answers; its pieces say null until the last.
    assert {flaw.split(":")[0] for flaw in found} <= {"choices.0.finish_reason"}
    assert {(tree["id"], tree["model"], tree["object"]) for tree in trees} == {
        ("cmpl-7", "there", "text_completion")
    }
    reasons = [each["finish_reason"] for tree in trees for each in tree["choices"]]
    assert reasons == [None] * len(spoken) + [REASONS[reason]]
    counted = [delta.usage for delta in told if delta.usage is not None]
    assert counted == ([usage] if wants_usage else [])
    assert events[-1].is_terminal
    assert b"x-cost=1" in sent[-1]


@pytest.mark.parametrize(
    ("fields", "is_held"),
    [
        ({}, True),
        ({"n": None}, True),
        ({"n": 1, "best_of": 1}, True),
        ({"prompt": ["x"]}, True),
        ({"n": 2}, False),
        ({"prompt": ["x", "y"]}, False),
        ({"prompt": ["x", "y"], "n": 1}, False),
    ],
)
def test_why_an_answer_stopped_waits_for_the_end_unless_others_go_on(
    fields: dict[str, Any], *, is_held: bool
) -> None:
    decoder = BARE.stream_decoder()
    encoder = BARE.stream_encoder(asked(stream=True, **fields), BARE.name)
    stopped = chunk({"index": 0, "text": "", "finish_reason": "stop"})
    said, late = chunk({"index": 0, "text": "one"}), chunk({"index": 0, "text": "late"})
    counted = chunk(usage={"prompt_tokens": 3, "completion_tokens": 4})
    raw = [said, stopped, late, counted, b"data: [DONE]\n\n"]
    sent = [encoder.encode(decoder.feed(each)) for each in raw]
    ending = encoder.finish("", Usage())

    # What comes behind it waits with it, so that their order stays.
    assert sent == [said, *([b"", b""] if is_held else [stopped, late]), b"", b""]
    assert ending == (stopped + late if is_held else b"") + b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("first", "head"),
    [
        (chunk({"index": 0, "text": "one"}), HEAD),
        (b": here\n" + chunk({"index": 0, "text": "one"}), {"object": "text_completion"}),
    ],
)
def test_usage_that_the_upstream_left_out_is_told_in_a_chunk_like_its_first(
    first: bytes, head: dict[str, Any]
) -> None:
    request = asked(stream=True, stream_options={"include_usage": True})
    decoder = BARE.stream_decoder()
    encoder = BARE.stream_encoder(request, BARE.name)
    raw = [b": still here\n\n", first, chunk({"index": 0, "text": "", "finish_reason": "stop"})]
    sent = b"".join([encoder.encode(decoder.feed(each)) for each in raw])
    sent += encoder.finish("", Usage(input_tokens=3, output_tokens=4, estimated=True))

    *_, told, _ = sent.split(b"data: ")
    tree = msgspec.json.decode(told)
    assert tree.pop("usage")["total_tokens"] == 7
    assert tree == head | {"choices": []}


def test_who_waits_for_a_chats_answer_hears_that_we_are_there() -> None:
    encoder = BARE.stream_encoder(asked(stream=True), "openai_chat")

    assert encoder.ping() == b": ping\n\n"


@pytest.mark.parametrize("tier", ["", "priority"])
def test_a_tier_is_told_beside_what_was_counted_where_there_is_one(tier: str) -> None:
    request = asked(stream=True, stream_options={"include_usage": True})
    encoder = BARE.stream_encoder(request, "openai_chat")
    ending = encoder.finish("", Usage(input_tokens=3, output_tokens=4, service_tier=tier))
    told = msgspec.json.decode(ending.split(b"\n\n")[0].removeprefix(b"data: "))

    assert told["usage"]["total_tokens"] == 7
    assert ("service_tier" in told) == bool(tier)


def test_nothing_ends_a_continuation_that_failed() -> None:
    encoder = BARE.stream_encoder(asked(stream=True), "anthropic_messages")
    before = encoder.encode([StreamEvent(b"", (Delta("text", "one"),))])
    failed = encoder.fail(UpstreamMalformed("It broke."), "req_1")

    assert b'"text":"one"' in before
    assert b'"model":"m"' in before
    assert b'"error"' in failed
    assert encoder.finish("", Usage()) == b""


@pytest.mark.parametrize(
    ("text", "refusal", "said"), [("Yes.", "", "Yes."), ("", "No.", "No."), ("", "", "")]
)
def test_a_chats_whole_answer_is_one_choice(text: str, refusal: str, said: str) -> None:
    completion = Completion(
        raw=b"raw",
        message_id="msg_9",
        model="there",
        text=text,
        tool_calls=(),
        stop_reason="length",
        stop_sequence=None,
        usage=Usage(input_tokens=3, output_tokens=4, service_tier="priority"),
        refusal=refusal,
    )
    raw = BARE.encode_reply(completion, "anthropic_messages", asked())
    tree = msgspec.json.decode(raw)

    assert flaws(EVENTS[BARE.name], raw) == []
    choice = {"index": 0, "text": said, "logprobs": None, "finish_reason": "length"}
    assert tree["choices"] == [choice]
    assert (tree["id"], tree["model"], tree["service_tier"]) == ("cmpl-9", "there", "priority")
    assert (tree["usage"]["prompt_tokens"], tree["usage"]["total_tokens"]) == (3, 7)


def test_other_dialects_have_no_way_into_this_one() -> None:
    chat = DIALECTS["openai_chat"]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    request = chat.decode_request(json.dumps(body).encode(), "req_1")
    with pytest.raises(FeatureUnsupported):
        BARE.encode_request(request, target(), 5)


@pytest.mark.parametrize(
    ("fields", "sent", "lost"),
    [
        ({"top_k": 40}, {"top_k": 40}, ()),
        ({"top_k": -1}, {}, ()),
        ({"top_k": "many"}, {}, ("top_k",)),
        ({"logit_bias": {"5": 1}}, {}, ("logit_bias",)),
        ({"logit_bias": {}}, {}, ()),
        ({"service_tier": "auto"}, {"service_tier": "auto"}, ()),
        ({"service_tier": "default"}, {}, ("service_tier",)),
        ({"stop": "END"}, {"stop": ["END"]}, ()),
        ({"presence_penalty": 0, "frequency_penalty": 0.5}, {"frequency_penalty": 0.5}, ()),
        ({"min_p": 0.5, "suffix": "", "best_of": 1}, {}, ("min_p",)),
        ({"temperature": 0.5, "top_p": 0.9, "seed": 3}, None, ()),
        ({"user": "7" * 32}, {"user": "7" * 32}, ()),
    ],
)
def test_rule_64_what_a_chat_model_gets_of_a_text_completion(
    fields: dict[str, Any], sent: dict[str, Any] | None, lost: tuple[str, ...]
) -> None:
    there = target(parameters={"top_k": "yes"})
    body = DIALECTS["openai_chat"].encode_request(asked(**fields), there, 5)

    usual = {"model": "upstream-model", "messages": [{"role": "user", "content": "Once"}]}
    assert msgspec.json.decode(body.body) == usual | {"max_tokens": 5} | (
        fields if sent is None else sent
    )
    assert body.dropped == ("bare_text", *lost)
