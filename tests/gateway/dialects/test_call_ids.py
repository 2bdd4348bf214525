"""Ids of calls that come again in a history, towards each dialect."""

from typing import Any

import pytest

from gateway.errors import FeatureUnsupported
from gateway.types import ChatRequest
from tests.conformance.test_rules_of_responses import responses, to_responses
from tests.gateway.dialects.samples import chat, messages, to_anthropic, to_openai


def chatted(*ids: tuple[str, ...]) -> ChatRequest:
    """A chat whose assistant called with these ids, turn by turn."""
    talk: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
    for turn, of_turn in enumerate(ids):
        calls = [
            {"id": each, "function": {"name": "f", "arguments": f'{{"n":{10 * turn + number}}}'}}
            for number, each in enumerate(of_turn)
        ]
        talk.append({"role": "assistant", "tool_calls": calls})
        talk += (
            {"role": "tool", "tool_call_id": each, "content": f"r{10 * turn + number}"}
            for number, each in enumerate(of_turn)
        )
    return chat(messages=talk)


def said_in_messages(*ids: str) -> ChatRequest:
    talk: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
    for number, each in enumerate(ids):
        used = {"type": "tool_use", "id": each, "name": "f", "input": {"n": number}}
        done = {"type": "tool_result", "tool_use_id": each, "content": f"r{number}"}
        talk += ({"role": "assistant", "content": [used]}, {"role": "user", "content": [done]})
    return messages(messages=talk)


def pairs_in_messages(body: dict[str, Any]) -> list[tuple[str, int, str]]:
    blocks = [block for turn in body["messages"] for block in turn["content"]]
    results = {b["tool_use_id"]: b for b in blocks if b["type"] == "tool_result"}
    return [
        (b["id"], b["input"]["n"], results[b["id"]]["content"][0]["text"])
        for b in blocks
        if b["type"] == "tool_use"
    ]


def test_rule_18_an_id_that_comes_again_in_a_later_turn_is_another_one_to_messages() -> None:
    """The vendor refuses a history in which two calls have one id."""
    body, dropped = to_anthropic(chatted(("call_0",), ("call_0", "call_1"), ("call_0",)))
    found = pairs_in_messages(body)
    assert [(n, said) for _, n, said in found] == [(0, "r0"), (10, "r10"), (11, "r11"), (20, "r20")]
    assert len({each for each, _, _ in found}) == 4
    assert (found[0][0], found[2][0]) == ("call_0", "call_1")
    assert dropped == set()


def test_rule_18_calls_of_one_turn_that_bear_one_id_get_their_results_in_order() -> None:
    body, _ = to_anthropic(chatted(("call_0", "call_0"), ("call_0",)))
    found = pairs_in_messages(body)
    assert [(n, said) for _, n, said in found] == [(0, "r0"), (1, "r1"), (10, "r10")]
    assert len({each for each, _, _ in found}) == 3


def test_rule_18_new_ids_stay_when_the_conversation_goes_on() -> None:
    turns = [("call_0",), ("call_0",), ("call_0",)]
    shorter = pairs_in_messages(to_anthropic(chatted(*turns[:2]))[0])
    assert pairs_in_messages(to_anthropic(chatted(*turns))[0])[:2] == shorter


def test_rule_18_responses_and_chats_have_no_id_twice_either() -> None:
    items = to_responses(chatted(("a",), ("a",)))[0]["input"]
    calls = [each["call_id"] for each in items if each.get("type") == "function_call"]
    results = [each["call_id"] for each in items if each.get("type") == "function_call_output"]
    assert calls == results
    assert len(set(calls)) == 2

    body, _ = to_openai(said_in_messages("a", "a"))
    turns = body["messages"]
    called = [each["id"] for turn in turns for each in turn.get("tool_calls", ())]
    assert called == [turn["tool_call_id"] for turn in turns if turn["role"] == "tool"]
    assert len(set(called)) == 2

    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"n":0}'}
    done = {"type": "function_call_output", "call_id": "a", "output": "r"}
    user = {"role": "user", "content": "Hi"}
    found = pairs_in_messages(to_anthropic(responses(input=[user, call, done, call, done]))[0])
    assert len({each for each, _, _ in found}) == 2


def test_rule_14_a_result_more_than_there_were_calls_of_its_id_is_refused() -> None:
    turns = list(chatted(("a",), ("a",)).tree["messages"])  # type: ignore[call-overload]
    turns.append({"role": "tool", "tool_call_id": "a", "content": "once more"})
    with pytest.raises(FeatureUnsupported, match="rule 14"):
        to_anthropic(chat(messages=turns))
