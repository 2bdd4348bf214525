"""What a model does not take is left out and told, or refused: by its row of the catalogue."""

import json
from typing import Any

import pytest

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported
from gateway.ports import UpstreamBody
from gateway.types import ChatRequest
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    OPENAI,
    chat,
    messages,
    target,
    to_anthropic,
    to_openai,
)


RESPONSES = DIALECTS["openai_responses"]
NEVER = {"temperature": "no", "top_p": "no", "logprobs": "no", "effort_none": "no"}
RESTING = {
    "temperature": "without_reasoning",
    "top_p": "without_reasoning",
    "logprobs": "without_reasoning",
    "effort_none": "yes",
}


def responses(**fields: Any) -> ChatRequest:
    body = {"model": "m", "input": "Hi"} | fields
    return RESPONSES.decode_request(json.dumps(body).encode(), "req_0000000003e8abcdef")


def to_responses(
    request: ChatRequest, *capabilities: str, **parameters: str
) -> tuple[dict[str, Any], set[str]]:
    chosen = target(*capabilities, parameters=parameters)
    upstream: UpstreamBody = RESPONSES.encode_request(request, chosen, 1000)
    return json.loads(upstream.body), set(upstream.dropped)


def test_rule_22_sampling_that_a_model_does_not_take_is_left_out_in_its_own_dialect_too() -> None:
    asked = {"temperature": 0.3, "top_p": 0.5}
    for body, dropped in (
        to_openai(chat(**asked), **NEVER),
        to_anthropic(messages(**asked), **NEVER),
        to_responses(responses(**asked), **NEVER),
        to_openai(responses(**asked), **NEVER),
        to_responses(messages(**asked), **NEVER),
        to_anthropic(chat(**asked), **NEVER),
    ):
        assert dropped == set(asked)
        assert dropped.isdisjoint(body)


def test_rule_22_values_that_ask_for_nothing_are_left_out_without_a_word() -> None:
    nothing = {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "n": 1}
    asked = {"temperature": 1, "top_p": 1.0, "logprobs": False, "top_logprobs": 0, **nothing}
    body, dropped = to_openai(chat(**asked), **dict.fromkeys((*asked, "effort_none"), "no"))
    assert dropped == set()
    assert set(body) == {"model", "messages", "max_tokens"}


def test_rule_22_sampling_crosses_to_a_model_that_is_told_not_to_reason() -> None:
    for effort, kept in (("none", {"temperature", "top_p"}), ("low", set()), (None, set())):
        asked = {"temperature": 0.3, "top_p": 0.5}
        said = {"reasoning_effort": effort} if effort else {}
        body, dropped = to_openai(chat(**asked, **said), "reasoning_effort", **RESTING)
        assert (kept & body.keys(), dropped) == (kept, asked.keys() - kept)
    rests = {"thinking": {"type": "disabled"}}
    body, dropped = to_openai(messages(temperature=0.3, **rests), "reasoning_effort", **RESTING)
    assert (body["temperature"], body["reasoning_effort"], dropped) == (0.3, "none", set())
    body, dropped = to_openai(messages(temperature=0.3), "reasoning_effort", **RESTING)
    assert ("temperature" in body, dropped) == (False, {"temperature"})


def test_rule_22_of_temperature_and_top_p_the_first_goes_to_a_model_that_takes_one() -> None:
    alone = {"temperature": "yes", "top_p": "without_temperature"}
    for request in (chat(temperature=0.3, top_p=0.5), messages(temperature=0.3, top_p=0.5)):
        body, dropped = to_anthropic(request, **alone)
        assert (body["temperature"], "top_p" in body, dropped) == (0.3, False, {"top_p"})
    assert to_anthropic(chat(top_p=0.5), **alone)[0]["top_p"] == 0.5
    assert to_anthropic(messages(top_p=0.5), **alone)[0]["top_p"] == 0.5


def test_rule_24_seeds_penalties_and_biases_cross_where_taken_and_are_told_elsewhere() -> None:
    asked = {
        "seed": 7,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "logit_bias": {"50256": -100},
    }
    request = chat(**asked)
    for stances in ({}, dict.fromkeys(asked, "yes"), dict.fromkeys(asked, "unknown")):
        body, dropped = to_openai(request, **stances)
        assert (asked.items() <= body.items(), dropped) == (True, set())
    body, dropped = to_openai(request, **dict.fromkeys(asked, "no"))
    assert dropped == set(asked)
    assert dropped.isdisjoint(body)
    assert to_anthropic(request)[1] == asked.keys()
    assert to_responses(request)[1] == asked.keys()


@pytest.mark.parametrize("field", [{"logprobs": True}, {"logprobs": True, "top_logprobs": 3}])
def test_rule_24_probabilities_are_refused_where_the_model_tells_none(
    field: dict[str, Any],
) -> None:
    assert field.items() <= to_openai(chat(**field), logprobs="yes")[0].items()
    assert field.items() <= to_openai(chat(**field))[0].items()
    with pytest.raises(FeatureUnsupported, match=r"^logprobs: .* to nobody \(rule 24\)"):
        to_openai(chat(**field), **NEVER)
    with pytest.raises(FeatureUnsupported, match=r"only where its reasoning effort is none"):
        to_openai(chat(**field, reasoning_effort="low"), **RESTING)
    resting = chat(**field, reasoning_effort="none")
    assert field.items() <= to_openai(resting, **RESTING)[0].items()


def test_rule_24_probabilities_of_responses_are_refused_by_either_of_their_words() -> None:
    included = {"include": ["message.output_text.logprobs"]}
    for field, place in (({"top_logprobs": 3}, "top_logprobs"), (included, "include")):
        assert field.items() <= to_responses(responses(**field), logprobs="yes")[0].items()
        with pytest.raises(FeatureUnsupported) as caught:
            to_responses(responses(**field), **NEVER)
        assert caught.value.parameter == place
    others = {"include": ["reasoning.encrypted_content"]}
    assert others.items() <= to_responses(responses(**others), **NEVER)[0].items()


def test_rule_24_several_answers_are_refused_where_the_model_gives_one() -> None:
    assert to_openai(chat(n=3), n="yes")[0]["n"] == 3
    with pytest.raises(FeatureUnsupported, match=r"^n: .*rule 24") as caught:
        to_openai(chat(n=3), n="no")
    assert caught.value.parameter == "n"


def test_rule_28_who_cannot_do_without_reasoning_does_little_of_it_with_notice() -> None:
    told = "reasoning_effort"
    body, dropped = to_openai(chat(reasoning_effort="none"), told, **NEVER)
    assert (body[told], dropped) == ("low", {told})
    rests = messages(thinking={"type": "disabled"})
    body, dropped = to_openai(rests, told, **NEVER)
    assert (body[told], dropped) == ("low", {"thinking"})
    body, dropped = to_responses(rests, told, **NEVER)
    assert (body["reasoning"], dropped) == ({"effort": "low"}, {"thinking"})
    asked = responses(reasoning={"effort": "none", "summary": "auto"})
    body, dropped = to_responses(asked, told, **NEVER)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert dropped == {"reasoning.effort"}
    body, dropped = to_anthropic(chat(reasoning_effort="none"), "effort", "thinking", **NEVER)
    assert (body["output_config"], dropped) == ({"effort": "low"}, {told})
    assert "thinking" not in body


def test_rule_55_words_that_a_dialect_does_not_have_are_none_of_the_tables_business() -> None:
    strange = {"seed": 7, "n": 3, "logprobs": True}
    never = dict.fromkeys(strange, "no")
    body, dropped = to_anthropic(messages(**strange), **never)
    assert (strange.items() <= body.items(), dropped) == (True, set())
    body, dropped = to_responses(responses(**strange), **never)
    assert (strange.items() <= body.items(), dropped) == (True, set())


def test_rule_62_a_body_that_fits_is_passed_on_byte_for_byte() -> None:
    raw = b'{"model":"m" ,"seed":7,"messages":[{"role":"user","content":"Hi"}],"max_tokens":9}'
    request = OPENAI.decode_request(raw, "req_1")
    chosen = target(model="m", parameters=dict.fromkeys(("seed", "temperature"), "yes"))
    assert OPENAI.encode_request(request, chosen, 1000).body == raw
    assert ANTHROPIC.encode_request(messages(), chosen, 1000).dropped == ()


TOOL = {"name": "age_of", "parameters": {"type": "object", "properties": {}}}
UNBENDING = {"forced_tools": "no", "thinking_budget": "no", "effort_none": "no"}


def forced(choice: Any, *, of_messages: bool = False, **fields: Any) -> ChatRequest:
    if of_messages:
        tool = {"name": "age_of", "input_schema": {"type": "object"}}
        return messages(tools=[tool], tool_choice=choice, **fields)
    return chat(tools=[{"type": "function", "function": TOOL}], tool_choice=choice, **fields)


@pytest.mark.parametrize(
    "asked",
    [
        forced("required"),
        forced({"type": "function", "function": {"name": "age_of"}}),
        responses(tools=[{"type": "function", **TOOL}], tool_choice="required"),
        forced({"type": "any"}, of_messages=True),
        forced({"type": "tool", "name": "age_of"}, of_messages=True),
    ],
)
def test_rule_12_a_model_that_refuses_to_be_told_which_tool_to_call_is_left_to_choose(
    asked: ChatRequest,
) -> None:
    body, dropped = to_anthropic(asked, **UNBENDING)
    assert (body["tool_choice"], dropped) == ({"type": "auto"}, {"tool_choice"})
    assert [tool["name"] for tool in body["tools"]] == ["age_of"]
    assert "system" not in body
    body, dropped = to_anthropic(asked, forced_tools="yes")
    assert (body["tool_choice"]["type"] in {"any", "tool"}, dropped) == (True, set())


def test_rule_12_who_can_be_told_which_tool_to_call_is_to_be_asked_first() -> None:
    for asked in (forced("required"), forced({"type": "any"}, of_messages=True)):
        for stance in ("yes", "no"):
            chosen = target(parameters={"forced_tools": stance})
            assert ANTHROPIC.encode_request(asked, chosen, 100).is_less == (stance == "no")


@pytest.mark.parametrize("mode", ["auto", "none"])
def test_rule_12_what_forces_nothing_stays_and_so_does_one_call_at_a_time(mode: str) -> None:
    body, dropped = to_anthropic(forced(mode), **UNBENDING)
    assert (body["tool_choice"], dropped) == ({"type": mode}, set())
    once = {"disable_parallel_tool_use": True}
    body, dropped = to_anthropic(forced({"type": mode} | once, of_messages=True), **UNBENDING)
    assert (body["tool_choice"], dropped) == ({"type": mode} | once, set())
    for asked in (
        forced("required", parallel_tool_calls=False),
        forced({"type": "any"} | once, of_messages=True),
    ):
        assert to_anthropic(asked, **UNBENDING)[0]["tool_choice"] == {"type": "auto"} | once


def test_rule_28_who_always_thinks_is_asked_for_little_instead_of_none_in_its_own_dialect() -> None:
    rests = messages(thinking={"type": "disabled"})
    body, dropped = to_anthropic(rests, "effort", "thinking", **UNBENDING)
    assert (body["output_config"], dropped) == ({"effort": "low"}, {"thinking"})
    assert "thinking" not in body
    body, dropped = to_anthropic(rests, "effort", "thinking", effort_none="yes")
    assert (body["thinking"], dropped) == ({"type": "disabled"}, set())


def test_rule_28_a_budget_is_an_effort_to_who_takes_none_in_its_own_dialect() -> None:
    told = {"type": "enabled", "budget_tokens": 3000, "display": "summarized"}
    asked = messages(thinking=told, max_tokens=9000)
    body, dropped = to_anthropic(asked, "effort", "thinking", **UNBENDING)
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert (body["output_config"], dropped) == ({"effort": "medium"}, {"thinking.budget_tokens"})
    named = messages(thinking=told, max_tokens=9000, output_config={"effort": "max"})
    body, dropped = to_anthropic(named, "effort", "thinking", **UNBENDING)
    assert (body["output_config"], dropped) == ({"effort": "max"}, {"thinking.budget_tokens"})
    known = target("thinking", parameters={"thinking_budget": "yes"})
    body = json.loads(ANTHROPIC.encode_request(asked, known, 9000).body)
    assert (body["thinking"], "output_config" in body) == (told, False)


def test_what_becomes_of_thoughts_of_another_conversation_asks_nothing_of_other_vendors() -> None:
    bound = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    beta = "thinking-binding-controls-2026-08-01"
    raw = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    asked = ANTHROPIC.decode_request(
        json.dumps(raw | {"thinking": bound}).encode(),
        "req_1",
        [(b"anthropic-beta", beta.encode())],
    )
    assert (asked.betas, asked.dropped) == ((beta,), ())
    assert to_anthropic(asked, **UNBENDING)[0]["thinking"] == bound
    assert to_openai(asked, "reasoning_effort")[1] == set()
