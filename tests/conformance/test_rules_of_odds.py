"""Rules of translation about probabilities of tokens, which both of OpenAI's dialects tell.

Each test is named after its rule; the table in docs/translation.md lists them all.
"""

import itertools
import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from gateway.dialects.registry import DIALECTS
from gateway.dialects.token_odds import INCLUDED
from gateway.errors import FeatureUnsupported
from gateway.types import ChatRequest, DialectName, Usage
from gateway.veiling.output_scan import OutputScan
from tests.classifiers.samples import card, grouped
from tests.conformance.put_together import Reader
from tests.conformance.round_trips.said import Likely, Said, Speaking
from tests.conformance.test_rules_of_responses import RESPONSES, responses, to_responses
from tests.gateway.dialects.samples import chat, target, to_anthropic, to_openai
from tests.gateway.veiling.test_output_scan import output_scan
from tests.upstreams import RecordedRequest


OPENAIS: tuple[DialectName, DialectName] = ("openai_chat", "openai_responses")
PATHS = {"openai_chat": "/v1/chat/completions", "openai_responses": "/v1/responses"}
SAID = Said(
    text="It is", likely=(Likely("It", -0.25), Likely(" is", -0.5, ((" is", -0.5), (" was", -2.0))))
)


def test_rule_68_probabilities_cross_between_openais_dialects() -> None:
    asked = chat(logprobs=True, top_logprobs=3)
    body, dropped = to_responses(asked)
    assert (body["include"], body["top_logprobs"], dropped) == ([INCLUDED], 3, set())
    asked = responses(include=[INCLUDED], top_logprobs=3)
    body, dropped = to_openai(asked)
    assert (body["logprobs"], body["top_logprobs"], dropped) == (True, 3, set())

    body, _ = to_responses(chat(logprobs=True))
    assert (body["include"], "top_logprobs" in body) == ([INCLUDED], False)
    body, _ = to_openai(responses(include=[INCLUDED]))
    assert (body["logprobs"], "top_logprobs" in body) == (True, False)
    for plain in (responses(top_logprobs=0, include=[]), chat(logprobs=False, top_logprobs=0)):
        written = to_openai(plain)[0] if plain.dialect == OPENAIS[1] else to_responses(plain)[0]
        assert not {"logprobs", "top_logprobs", "include"} & written.keys()


def test_rule_68_what_seals_reasoning_is_asked_for_beside_them() -> None:
    body, _ = to_responses(chat(logprobs=True), "reasoning_effort")

    assert body["include"] == ["reasoning.encrypted_content", INCLUDED]


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        (chat(logprobs=True), "logprobs"),
        (responses(top_logprobs=2), "top_logprobs"),
        (responses(include=[INCLUDED]), "include"),
    ],
)
def test_rule_24_probabilities_are_refused_where_nobody_tells_them(
    asked: ChatRequest, place: str
) -> None:
    with pytest.raises(FeatureUnsupported) as caught:
        to_anthropic(asked)
    assert caught.value.parameter == place


def test_rule_24_a_model_that_tells_none_is_not_asked_for_them() -> None:
    for stance, effort in (("no", "none"), ("without_reasoning", "low")):
        with pytest.raises(FeatureUnsupported, match="rule 24"):
            to_openai(responses(top_logprobs=2, reasoning={"effort": effort}), logprobs=stance)
        asked = chat(logprobs=True, reasoning_effort=effort)
        with pytest.raises(FeatureUnsupported, match="rule 24"):
            RESPONSES.encode_request(asked, target(parameters={"logprobs": stance}), 1000)
    rested = responses(top_logprobs=2, reasoning={"effort": "none"})
    body, _ = to_openai(rested, logprobs="without_reasoning")
    assert body["top_logprobs"] == 2


def test_rule_24_a_number_of_others_alone_asks_for_nothing_that_a_chat_tells() -> None:
    with pytest.raises(FeatureUnsupported) as caught:
        to_responses(chat(top_logprobs=3))
    assert caught.value.parameter == "top_logprobs"


def asking(caller: DialectName, **more: Any) -> ChatRequest:
    made = chat if caller == "openai_chat" else responses
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 2}
    if caller == "openai_responses":
        fields = {"include": [INCLUDED], "top_logprobs": 2}
    return made(**(more or fields))


def told(source: DialectName, said: Said, *, streams: bool) -> list[bytes]:
    """What an upstream of this dialect says: a body, or the events of a stream."""
    upstream = Speaking()
    upstream.said = said
    body = b'{"stream":true}' if streams else b"{}"
    answer = upstream.answer_to(RecordedRequest("POST", PATHS[source], {}, body, 1))
    return [*(answer.events or ())] if streams else [answer.body or b""]


def heard(
    source: DialectName, request: ChatRequest, said: Said, scan: OutputScan | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A whole answer and a stream of it, as the caller's own client shows them."""
    there, here = DIALECTS[source], DIALECTS[request.dialect]
    (raw,) = told(source, said, streams=False)
    completion = there.decode_reply(scan.unveiled(raw) if scan is not None else raw)
    whole = Reader().whole(request.dialect, here.encode_reply(completion, source, request))

    decoder, encoder = there.stream_decoder(), here.stream_encoder(request, source)
    lift = scan.lifted() if scan is not None else None
    pieces = []
    for event in told(source, said, streams=True):
        events = decoder.feed(event)
        pieces.append(encoder.encode(lift.events(events) if lift is not None else events))
    pieces.append(encoder.finish("", completion.usage))
    return whole, Reader().streamed(request.dialect, pieces)


def tokens_in(answer: dict[str, Any]) -> list[Any]:
    if "choices" in answer:
        found: Iterable[Any] = (answer["choices"][0].get("logprobs") or {}).get("content") or ()
    else:
        parts = itertools.chain(*(item["content"] for item in answer["output"]))
        found = itertools.chain(*(part["logprobs"] for part in parts))
    return [
        (token["token"], token["logprob"], [other["token"] for other in token["top_logprobs"]])
        for token in found
    ]


@pytest.mark.parametrize(("source", "caller"), [OPENAIS, OPENAIS[::-1]])
def test_rule_68_probabilities_come_back_whole_and_in_pieces(
    source: DialectName, caller: DialectName
) -> None:
    whole, streamed = heard(source, asking(caller), SAID)
    expected = [("It", -0.25, []), (" is", -0.5, [" is", " was"])]
    assert (tokens_in(whole), tokens_in(streamed)) == (expected, expected)

    plain = asking(caller, temperature=1)
    whole, streamed = heard(source, plain, SAID)
    assert (tokens_in(whole), tokens_in(streamed)) == ([], [])


@pytest.mark.parametrize(("source", "caller"), [OPENAIS, OPENAIS[::-1]])
def test_rule_68_tokens_of_what_is_masked_do_not_cross(
    source: DialectName, caller: DialectName
) -> None:
    number = grouped(card(random.Random(5)), " ")
    words = f"The card is {number} and that is all.".split(" ")
    pieces = [word if at == 0 else f" {word}" for at, word in enumerate(words)]
    said = Said(text="".join(pieces), likely=tuple(Likely(each, -0.5) for each in pieces))
    scan = output_scan()

    answers = json.dumps(heard(source, asking(caller), said, scan))

    assert number.split(" ")[1] not in answers
    assert "[REDACTED:CREDIT_CARD]" in answers


@pytest.mark.parametrize("kinds", [[b"response.completed"], [b".delta", b"response.completed"]])
def test_rule_68_what_only_the_last_event_tells_of_tokens_is_told_with_it(
    kinds: list[bytes],
) -> None:
    """Some upstreams tell words in their last event only, others no probabilities before it."""
    events = told("openai_responses", SAID, streams=True)
    kept = [event for event in events if any(kind in event for kind in kinds)]
    bare = [
        b"data: "
        + json.dumps(json.loads(event.partition(b"data: ")[2]) | {"logprobs": []}).encode()
        for event in kept[:-1]
    ]
    decoder = DIALECTS["openai_responses"].stream_decoder()
    encoder = DIALECTS["openai_chat"].stream_encoder(asking("openai_chat"), "openai_responses")

    pieces = [
        encoder.encode(decoder.feed(event)) for event in [*(b"%b\n\n" % e for e in bare), kept[-1]]
    ]
    pieces.append(encoder.finish("", Usage()))

    answer = Reader().streamed("openai_chat", pieces)
    expected = [("It", -0.25, []), (" is", -0.5, [" is", " was"])]
    assert (tokens_in(answer), answer["choices"][0]["message"]["content"]) == (expected, "It is")


def test_rule_68_a_token_beside_which_nothing_stands_is_told() -> None:
    (raw,) = told("openai_chat", SAID, streams=False)
    tree = json.loads(raw)
    for token in tree["choices"][0]["logprobs"]["content"]:
        token["top_logprobs"] = None
    completion = DIALECTS["openai_chat"].decode_reply(json.dumps(tree).encode())

    made = DIALECTS["openai_responses"].encode_reply(
        completion, "openai_chat", asking("openai_responses")
    )

    answer = Reader().whole("openai_responses", made)
    assert tokens_in(answer) == [("It", -0.25, []), (" is", -0.5, [])]


@pytest.mark.parametrize("spoilt", [7, "x", [{"token": 1}], {"content": "x"}])
def test_rule_68_probabilities_that_cannot_be_read_cost_no_answer(spoilt: object) -> None:
    (raw,) = told("openai_chat", SAID, streams=False)
    tree = json.loads(raw)
    tree["choices"][0]["logprobs"] = spoilt
    request = asking("openai_responses")
    completion = DIALECTS["openai_chat"].decode_reply(json.dumps(tree).encode())

    made = DIALECTS["openai_responses"].encode_reply(completion, "openai_chat", request)

    answer = Reader().whole("openai_responses", made)
    assert (tokens_in(answer), answer["output"][0]["content"][0]["text"]) == ([], "It is")
