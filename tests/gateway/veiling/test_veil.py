"""The veil: values stay, surrogates go out and come back, in events that keep order and shape."""

import json

import msgspec
import pytest

from gateway.dialects.registry import DIALECTS
from gateway.thread import Thread
from gateway.types import DialectName, StreamEvent
from gateway.veiling.blocks import joined
from gateway.veiling.redaction import Restorer, pseudonyms, replaced, still_said
from gateway.veiling.veil import Veil, veiled
from tests.upstream_messages import anthropic_events
from tests.upstreams import Answer, _openai_events


FOUND = [("PERSON", "Ingrid Halvorsen"), ("EMAIL", "ingrid@corp-mail.no")]
BODY = b"""{"model": "auto", "stream": true, "max_tokens": 9, "messages": [
    {"role": "user", "content": "Write to Ingrid Halvorsen, ingrid@corp-mail.no"}]}"""
BOTH: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages")
SOURCES = {"openai_chat": _openai_events, "anthropic_messages": anthropic_events}
both = pytest.mark.parametrize("dialect", BOTH)


def veil_of(dialect: DialectName, *, one_way: bool = False) -> Veil:
    adapter = DIALECTS[dialect]
    request = adapter.decode_request(BODY, "req_1")
    return veiled(request, [], adapter, FOUND, b"k" * 32, one_way=one_way)


def events_of(dialect: DialectName, text: str) -> list[StreamEvent]:
    raw = SOURCES[dialect](Answer(text=text), {"model": "m"})
    decoder = DIALECTS[dialect].stream_decoder()
    return [event for data in raw for event in decoder.feed(data)]


def text_of(events: list[StreamEvent]) -> str:
    return "".join(d.text for event in events for d in event.deltas if d.kind == "text")


@both
def test_no_value_is_in_the_request_that_leaves(dialect: DialectName) -> None:
    veil = veil_of(dialect)
    for _, value in FOUND:
        assert value.encode() not in veil.request.raw
        assert veil.names.replacements[value].encode() in veil.request.raw
    assert (veil.request.model, veil.request.stream) == ("auto", True)
    assert veil.request.request_id == "req_1"


@both
def test_whose_request_it_is_and_what_it_continues_is_known_after_as_before(
    dialect: DialectName,
) -> None:
    adapter, thread = DIALECTS[dialect], Thread(previous_id="resp_1")
    request = msgspec.structs.replace(
        adapter.decode_request(BODY, "req_1"), end_user="digest", thread=thread
    )
    sent = veiled(request, [], adapter, FOUND, b"k" * 32, one_way=False).request
    assert (sent.end_user, sent.thread) == ("digest", thread)


@both
def test_a_stream_comes_back_with_values_in_text_and_bytes(dialect: DialectName) -> None:
    veil = veil_of(dialect)
    person, mail = (veil.names.replacements[value] for _, value in FOUND)
    plain = "Dear Ingrid Halvorsen , I wrote to ingrid@corp-mail.no today."
    sent = plain.replace("Ingrid Halvorsen", person).replace("ingrid@corp-mail.no", mail)
    lift = veil.lifted()
    seen = [lifted for event in events_of(dialect, sent) for lifted in lift.events([event])]
    assert text_of(seen) == plain
    again = DIALECTS[dialect].stream_decoder().feed(b"".join(event.raw for event in seen))
    assert text_of(again) == plain
    assert [e.is_terminal for e in again].count(True) == 1
    assert again[-1].is_terminal


@both
def test_what_is_held_back_comes_before_the_end_of_its_block(dialect: DialectName) -> None:
    veil = veil_of(dialect)
    first = veil.names.replacements["Ingrid Halvorsen"].split()[0]
    lift = veil.lifted()
    seen = lift.events(events_of(dialect, f"and then {first}"))
    assert text_of(seen) == "and then Ingrid"
    kinds = [event.raw.split(b"\n")[0] for event in seen if event.raw.startswith(b"event:")]
    if kinds:
        last_text = max(i for i, kind in enumerate(kinds) if kind.endswith(b"block_delta"))
        assert kinds.index(b"event: content_block_stop") == last_text + 1


@both
def test_a_stream_without_surrogates_is_left_byte_for_byte(dialect: DialectName) -> None:
    events = events_of(dialect, "Nothing to see here, moving on.")
    assert veil_of(dialect).lifted().events(events) == events


@both
def test_a_whole_answer_comes_back_with_values_in_text_and_tool_arguments(
    dialect: DialectName,
) -> None:
    veil = veil_of(dialect)
    person = veil.names.replacements["Ingrid Halvorsen"]
    raw = msgspec.json.encode({"a": person, "b": {"arguments": f'{{"to": "{person}"}}'}, "n": 1})
    assert msgspec.json.decode(veil.unveiled(raw)) == {
        "a": "Ingrid Halvorsen",
        "b": {"arguments": '{"to": "Ingrid Halvorsen"}'},
        "n": 1,
    }
    assert veil.unveiled(b"no json") == b"no json"


@both
def test_what_is_blackened_does_not_come_back(dialect: DialectName) -> None:
    veil = veil_of(dialect, one_way=True)
    assert b"[REDACTED:PERSON]" in veil.request.raw
    assert veil.unveiled(b'"[REDACTED:PERSON]"') == b'"[REDACTED:PERSON]"'


@pytest.mark.parametrize("arguments", ['{"to": "%s"}', '\n {"to": "%s"}', '"%s"', '{"to": "%s'])
def test_arguments_of_a_call_stay_the_json_that_they_were(arguments: str) -> None:
    adapter, value = DIALECTS["openai_chat"], 'Robert "Bob" Smith'
    message = {"role": "user", "content": f"Write to {value}"}
    body = msgspec.json.encode({"model": "auto", "messages": [message]})
    found = [("PERSON", value)]
    veil = veiled(adapter.decode_request(body, "r"), [], adapter, found, b"k" * 32, one_way=False)
    call = {"function": {"arguments": arguments.replace("%s", veil.names.replacements[value])}}
    said = msgspec.json.decode(veil.unveiled(msgspec.json.encode(call)))["function"]["arguments"]
    assert said == arguments.replace("%s", 'Robert \\"Bob\\" Smith')


def test_tokens_of_an_earlier_answer_do_not_say_what_its_words_no_longer_say() -> None:
    """A client sends an answer back as it came, with the probabilities that it had asked for."""
    pieces = ["Write to In", "grid Hal", "vorsen, ing", "rid@corp-", "mail.no"]
    tokens = [
        {"token": each, "logprob": -0.5, "bytes": [*each.encode()]}
        | {"top_logprobs": [{"token": each, "logprob": -0.5, "bytes": [*each.encode()]}]}
        for each in pieces
    ]
    part = {"type": "output_text", "text": "".join(pieces), "annotations": [], "logprobs": tokens}
    said = {"type": "message", "role": "assistant", "content": [part]}
    tool = {"type": "function", "name": "f", "parameters": {"required": ["logprobs"]}}
    given = [{"role": "user", "content": "Whom?"}, said, {"role": "user", "content": "Go on."}]
    asked = {"model": "m", "input": given, "tools": [tool], "top_logprobs": 2}
    adapter = DIALECTS["openai_responses"]
    request = adapter.decode_request(msgspec.json.encode(asked), "req_1")

    veil = veiled(request, [], adapter, FOUND, b"k" * 32, one_way=False)

    sent = msgspec.json.decode(veil.request.raw)
    kept = sent["input"][1]["content"][0]
    assert kept["logprobs"] == []
    assert kept["text"].startswith(f"Write to {veil.names.replacements['Ingrid Halvorsen']}")
    assert b"vorsen" not in veil.request.raw
    assert (sent["tools"], sent["top_logprobs"]) == ([tool], 2)


def test_what_a_tool_is_given_comes_back_in_names_and_numbers_as_it_does_in_a_text() -> None:
    """Anthropic gives arguments as a tree, OpenAI as a text, and both in pieces as a text."""
    person, number = "Ingrid Halvorsen", "123456789012"
    message = {"role": "user", "content": f"{person} {number}"}
    body = msgspec.json.encode({"model": "auto", "messages": [message]})
    adapter = DIALECTS["openai_chat"]
    found = [("PERSON", person), ("BANK_ACCOUNT", number)]
    veil = veiled(adapter.decode_request(body, "r"), [], adapter, found, b"k" * 32, one_way=False)
    sent = int(veil.names.replacements[number])
    given = {f"to {veil.names.replacements[person]}": [sent, {"n": sent}], "o": sent + 1, "y": True}
    as_text = msgspec.json.encode(given).decode()

    answer = {"created": sent, "input": given, "arguments": as_text}
    came = msgspec.json.decode(veil.unveiled(msgspec.json.encode(answer)))

    meant = {f"to {person}": [int(number), {"n": int(number)}], "o": sent + 1, "y": True}
    assert came["input"] == meant
    assert msgspec.json.decode(came["arguments"]) == meant
    assert came["created"] == sent  # What is no call's may be any number.


NPI = 1234567893


@pytest.mark.parametrize("number", [NPI, -NPI, NPI + 0.5, -NPI - 0.25, float(NPI), -float(NPI)])
def test_a_number_with_a_sign_or_a_point_goes_out_and_comes_back_as_one(number: float) -> None:
    """Such a request was refused, as the value was seen to be left in it."""
    adapter = DIALECTS["anthropic_messages"]
    use = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {"to": number, "p": 0.5}}
    message = {"role": "assistant", "content": [use]}
    body = {"model": "m", "max_tokens": 9, "temperature": 0.123456, "messages": [message]}
    request = adapter.decode_request(msgspec.json.encode(body), "r")
    found = [("US_NPI", str(NPI)), ("BANK_ACCOUNT", "123456")]
    veil = veiled(request, [], adapter, found, b"k" * 32, one_way=False)
    assert str(NPI).encode() not in veil.request.raw

    sent = msgspec.json.decode(veil.request.raw)
    assert sent["temperature"] == 0.123456  # What no inspection reads stays what it was.
    given = sent["messages"][0]["content"][0]["input"]
    assert type(given["to"]) in {int, float}
    assert given["to"] % 1 == number % 1
    came = msgspec.json.decode(veil.unveiled(msgspec.json.encode({"input": given})))
    assert came == {"input": {"to": number, "p": 0.5}}


def test_a_value_with_a_nought_in_front_is_sent_as_a_text() -> None:
    card = 4111111111111111
    names = pseudonyms(b"k" * 32, [("CREDIT_CARD", str(card))], [])
    sent = replaced({"a": card, "b": -card}, names)
    assert sent == {"a": names.replacements[str(card)], "b": f"-{names.replacements[str(card)]}"}
    assert not still_said(sent, names)


@pytest.mark.parametrize("before", ["", "Here it is: ", '{"a": '])
def test_a_block_of_json_behind_one_of_words_stays_json(before: str) -> None:
    """As an answer in a schema is that a model gives as a tool's arguments."""
    value = 'Robert "Bob" Smith'
    names = pseudonyms(b"k" * 32, [("PERSON", value)], [])
    said = json.dumps({"to": names.replacements[value]})
    restorer = Restorer(names)
    shown = [*restorer.shown(before)]
    restorer.edge()
    for letter in said:
        joined(shown, restorer.shown(letter))
    joined(shown, restorer.rest())
    assert "".join(shown) == before + json.dumps({"to": value})


def surrogates_of(dialect: DialectName, **body: object) -> dict[str, str]:
    adapter = DIALECTS[dialect]
    request = adapter.decode_request(msgspec.json.encode(body), "req_1")
    return dict(veiled(request, [], adapter, FOUND, b"k" * 32, one_way=False).names.replacements)


def test_the_first_message_names_the_conversation_whatever_stands_before_it() -> None:
    """Else who says the model first has one conversation with everybody else who does."""
    said, other = "Write to Ingrid Halvorsen.", "And where is Ingrid Halvorsen?"
    turn, answer = {"role": "user", "content": said}, {"role": "assistant", "content": "Done."}
    order = {"role": "system", "content": "Be kind."}
    cached = {"type": "text", "text": said, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    asked: DialectName = "anthropic_messages"
    first = surrogates_of(asked, model="m", max_tokens=9, messages=[turn])
    for same in (
        surrogates_of(asked, messages=[turn], max_tokens=9, model="m"),
        surrogates_of(asked, model="other", max_tokens=9, system="Be kind.", messages=[turn]),
        surrogates_of(asked, model="m", max_tokens=9, messages=[turn, answer, turn]),
        surrogates_of(
            asked, model="m", max_tokens=9, messages=[{"role": "user", "content": [cached]}]
        ),
        surrogates_of("openai_chat", model="m", messages=[turn]),
        surrogates_of("openai_chat", model="m", messages=[order, turn]),
        surrogates_of("openai_chat", model="m", messages=[{**turn, "content": ""}, turn]),
        surrogates_of("openai_responses", model="m", input=[{**order, "role": "developer"}, turn]),
        surrogates_of("openai_responses", model="m", input=said),
        surrogates_of("openai_responses", model="m", input=[turn, answer, turn]),
    ):
        assert same == first
    elsewhere = {"role": "user", "content": other}
    for another in (
        surrogates_of(asked, model="m", max_tokens=9, messages=[elsewhere]),
        surrogates_of("openai_responses", model="m", input=other),
        surrogates_of("openai_chat", model="m", messages=[elsewhere, turn]),
        surrogates_of("openai_chat", model="m", messages=[order, elsewhere, turn]),
        surrogates_of("openai_chat", model="m", messages=[order]),
    ):
        assert not set(another.values()) & set(first.values())


def test_a_name_that_an_answer_says_a_thousand_times_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of probabilities of tokens there are five for each, and each has the same names."""
    veil, read = veil_of("openai_chat"), list[str]()
    name = veil.names.replacements["Ingrid Halvorsen"]

    class Noting(Restorer):
        def feed(self, piece: str) -> str:
            read.append(piece)
            return super().feed(piece)

    monkeypatch.setattr("gateway.veiling.veil.Restorer", Noting)
    answer = {"choices": [{name: at, "odds": {"token": f"t{at}"}} for at in range(1000)]}
    came = msgspec.json.decode(veil.unveiled(msgspec.json.encode(answer)))
    assert came["choices"][999] == {"Ingrid Halvorsen": 999, "odds": {"token": "t999"}}
    assert sorted(read) == sorted(
        [name, "choices", "odds", "token", *(f"t{n}" for n in range(1000))]
    )
