"""Rules of translation between OpenAI's two dialects, and about what no other vendor is asked.

Each test is named after its rule; the table in docs/translation.md lists them all.
"""

import json
from typing import Any

import pytest
from msgspec import structs

from gateway.dialects.registry import DIALECTS
from tests.conformance.test_rules_of_responses import responses, to_responses
from tests.gateway.dialects.samples import chat, messages, target, to_anthropic, to_openai


USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
OPENAIS = "max_completion_tokens"
CACHED: dict[str, Any] = {
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "explicit"},
}


def test_rule_68_prompt_caches_and_verbosity_cross_between_openais_dialects() -> None:
    body, dropped = to_responses(chat(**CACHED, verbosity="low"))
    assert {name: body[name] for name in CACHED} == CACHED
    assert body["text"] == {"verbosity": "low"}
    assert "verbosity" not in body
    assert dropped == set()

    body, dropped = to_openai(responses(**CACHED, text={"verbosity": "low"}), OPENAIS)
    assert {name: body[name] for name in CACHED} == CACHED
    assert body["verbosity"] == "low"
    assert dropped == set()


@pytest.mark.parametrize("detail", ["low", "high"])
def test_rule_6_how_closely_to_look_crosses_between_openais_dialects(detail: str) -> None:
    """A picture looked at otherwise costs otherwise."""
    url = "https://images.example/a.png"
    shown: list[Any] = [{"type": "image_url", "image_url": {"url": url, "detail": detail}}]
    body, dropped = to_responses(chat(messages=[{"role": "user", "content": shown}]))
    (part,) = body["input"][0]["content"]
    assert part == {"type": "input_image", "image_url": url, "detail": detail}
    assert dropped == set()

    asked = responses(input=[{"role": "user", "content": [part]}])
    body, dropped = to_openai(asked)
    assert (body["messages"][0]["content"], dropped) == (shown, set())
    assert to_anthropic(asked)[1] == {"input.content.detail"}
    only_there = responses(input=[{"role": "user", "content": [part | {"detail": "original"}]}])
    body, dropped = to_openai(only_there)
    assert (dropped, "detail" in str(body)) == ({"input.content.detail"}, False)


def test_rule_68_a_format_and_verbosity_stand_side_by_side() -> None:
    asked = chat(response_format={"type": "json_object"}, verbosity="high")
    body, dropped = to_responses(asked)
    assert body["text"] == {"format": {"type": "json_object"}, "verbosity": "high"}
    assert dropped == set()


def test_rule_68_others_are_not_told_and_a_cache_is_met_there_without_a_key() -> None:
    lost = {"prompt_cache_retention", "prompt_cache_options"}
    body, dropped = to_anthropic(chat(**CACHED, verbosity="low"))
    assert dropped == lost | {"verbosity"}
    assert lost.isdisjoint(body)
    for written in (to_openai, to_anthropic):
        body, dropped = written(responses(**CACHED, text={"verbosity": "low"}))
        assert dropped == lost | {"text.verbosity"}
        assert set(CACHED).isdisjoint(body)
        assert written(responses(text={"verbosity": "medium"}))[1] == set()


@pytest.mark.parametrize("tier", ["flex", "priority", "fast", "default"])
def test_rule_26_a_tier_with_a_price_crosses_between_openais_dialects(tier: str) -> None:
    known = structs.replace(target().price, flex_percent=50, priority_percent=200)
    chosen = structs.replace(target(OPENAIS), price=known)
    for dialect, request in (
        ("openai_responses", chat(service_tier=tier)),
        ("openai_chat", responses(service_tier=tier)),
    ):
        upstream = DIALECTS[dialect].encode_request(request, chosen, 100)  # type: ignore[index]
        assert f'"service_tier":"{tier}"'.encode() in upstream.body
        assert upstream.dropped == ()


@pytest.mark.parametrize("tier", ["flex", "priority", "scale"])
def test_rule_26_a_tier_without_a_price_is_reported(tier: str) -> None:
    for body, dropped in (
        to_responses(chat(service_tier=tier)),
        to_openai(responses(service_tier=tier), OPENAIS),
        to_openai(responses(service_tier=tier)),
        to_anthropic(responses(service_tier=tier)),
    ):
        assert "service_tier" not in body
        assert dropped == {"service_tier"}


def test_rule_68_a_results_name_is_that_of_its_call() -> None:
    """instructor and older programs send it; the id says the same."""
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    told = {"role": "tool", "tool_call_id": "c", "name": "f", "content": "ok"}
    turns = [USER, {"role": "assistant", "content": None, "tool_calls": [called]}, told]
    for written in (to_anthropic, to_responses):
        assert written(chat(messages=turns, tools=[TOOL]), "tools")[1] == set()
        otherwise = [*turns[:2], told | {"name": "g"}]
        assert written(chat(messages=otherwise, tools=[TOOL]), "tools")[1] == {"messages.name"}
    named = [USER | {"name": "Ada"}]
    assert to_anthropic(chat(messages=named))[1] == {"messages.name"}


@pytest.mark.parametrize(
    ("context", "lost"),
    [("all_turns", set()), ("auto", set()), ("current_turn", {"reasoning.context"})],
)
def test_rule_68_that_every_thought_is_read_again_holds_of_what_crosses(
    context: str, lost: set[str]
) -> None:
    """As pydantic-ai asks in every request."""
    assert to_anthropic(responses(reasoning={"context": context}))[1] == lost
    assert to_openai(responses(reasoning={"context": context}))[1] == lost


def test_rule_68_what_asks_nothing_of_another_vendor_is_not_missed() -> None:
    asked = responses(
        client_metadata={"session": "s"},
        max_tool_calls=3,
        truncation="disabled",
        store=False,
        prompt_cache_key="k",
        reasoning={"effort": "low", "summary": "auto"},
        include=["reasoning.encrypted_content"],
        parallel_tool_calls=True,
        tool_choice="auto",
    )
    assert to_anthropic(asked, "effort")[1] == {"reasoning.summary"}, "no thinking can be told"
    assert to_anthropic(asked, "effort", "thinking")[1] == set()
    assert to_openai(asked, "reasoning_effort")[1] == set()
    assert to_anthropic(chat(store=False))[1] == set()
    assert to_anthropic(chat(store=True))[1] == {"store"}
    assert to_anthropic(responses(truncation="auto"))[1] == {"truncation"}


def test_rule_25_of_two_names_of_an_end_user_the_other_is_reported() -> None:
    for request in (chat, responses):
        asked = request(user="7d3c9b1e-0000-4000-8000-1234567890ab", safety_identifier="a" * 64)
        body, dropped = to_anthropic(asked)
        assert body["metadata"] == {"user_id": "a" * 64}
        assert dropped == {"user"}
        same = request(user="a" * 64, safety_identifier="a" * 64)
        assert to_anthropic(same)[1] == set()


def test_rule_69_a_summary_is_asked_for_in_the_targets_own_words() -> None:
    told = responses(reasoning={"effort": "high", "summary": "auto"})
    body, dropped = to_anthropic(told, "effort", "thinking")
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "high"}
    assert dropped == set()

    body, dropped = to_responses(
        messages(
            thinking={"type": "adaptive", "display": "summarized"},
            output_config={"effort": "high"},
        ),
        "reasoning_effort",
    )
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert dropped == set()

    body, dropped = to_anthropic(responses(reasoning={"summary": "auto"}), "effort", "thinking")
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert "output_config" not in body
    assert dropped == set()


def test_rule_69_how_long_a_summary_is_has_no_word_elsewhere() -> None:
    for wanted in ({"summary": "detailed"}, {"generate_summary": "concise"}):
        body, dropped = to_anthropic(responses(reasoning=wanted), "effort", "thinking")
        assert body["thinking"]["display"] == "summarized"
        assert dropped == {"reasoning.summary"}


def test_rule_69_models_that_tell_anyway_are_not_asked() -> None:
    told = responses(reasoning={"effort": "high", "summary": "auto"}, max_output_tokens=4000)
    budget = {"type": "enabled", "budget_tokens": 1500}
    body, dropped = _to_older_claude(told)
    assert (body["thinking"], dropped) == (budget, set())
    assert to_openai(told, "reasoning_effort")[1] == set()
    assert to_openai(told, "reasoning_effort", OPENAIS)[1] == {"reasoning.summary"}
    omitted = messages(thinking={"type": "adaptive", "display": "omitted"})
    assert "reasoning" not in to_responses(omitted, "reasoning_effort")[0]


def _to_older_claude(request: Any) -> tuple[dict[str, Any], set[str]]:
    upstream = DIALECTS["anthropic_messages"].encode_request(request, target("thinking"), 3000)
    return json.loads(upstream.body), set(upstream.dropped)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "f"}])
def test_rule_69_a_tool_that_has_to_be_called_leaves_no_room_for_it(choice: object) -> None:
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    asked = responses(reasoning={"summary": "auto"}, tools=tools, tool_choice=choice)
    body, dropped = to_anthropic(asked, "effort", "thinking")
    assert "thinking" not in body
    assert dropped == {"reasoning.summary"}


def test_rule_69_who_wants_no_thinking_is_told_none() -> None:
    asked = responses(reasoning={"effort": "none", "summary": "auto"})
    body, dropped = to_anthropic(asked, "effort", "thinking", effort_none="yes")
    assert body["thinking"] == {"type": "disabled"}
    assert dropped == set()


def test_rule_55_marks_on_pictures_and_in_results_are_reported() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://a.example/b.png", "of": 1}}
    said = [{"role": "user", "content": [image | {"cache_control": {"type": "ephemeral"}}]}]
    assert to_anthropic(chat(messages=said))[1] == {
        "cache_control",
        "messages.content.image_url.of",
    }
    said = [{"role": "user", "content": [image | {"prompt_cache_breakpoint": {}}]}]
    assert to_anthropic(chat(messages=said))[1] == {
        "prompt_cache_breakpoint",
        "messages.content.image_url.of",
    }


def test_rule_55_fields_inside_of_options_are_reported() -> None:
    asked = responses(reasoning={"effort": "low", "mode": "pro"}, text={"tone": "dry"})
    assert to_anthropic(asked, "effort")[1] == {"reasoning.mode", "text.tone"}
    asked = messages(
        output_config={"task_budget": {"type": "tokens", "total": 9}},
        metadata={"user_id": "a" * 64, "team": "x"},
        system=[{"type": "text", "text": "S", "citations": [{}]}],
    )
    assert to_openai(asked)[1] == {
        "output_config.task_budget",
        "metadata.team",
        "system.citations",
    }
    form = {"name": "s", "schema": {}, "of_tomorrow": 1}
    asked = chat(response_format={"type": "json_schema", "json_schema": form})
    assert to_anthropic(asked, "json_schema")[1] == {"response_format.json_schema.of_tomorrow"}


def test_rule_8_a_document_by_address_crosses_where_there_is_a_word_for_it() -> None:
    url = "https://a.example/b.pdf"
    block = {"type": "document", "title": "b", "source": {"type": "url", "url": url}}
    there, dropped = to_responses(messages(messages=[{"role": "user", "content": [block]}]))
    (part,) = there["input"][0]["content"]
    assert part == {"type": "input_file", "file_url": url, "filename": "b"}
    assert dropped == set()

    back, dropped = to_anthropic(responses(input=there["input"]))
    assert back["messages"][0]["content"] == [block]
    assert dropped == set()


def test_rule_7_texts_of_a_result_stay_apart_and_its_mark_stands_in_the_first() -> None:
    def gave(*content: dict[str, Any], is_error: bool) -> object:
        call = {"type": "tool_use", "id": "call_a", "name": "f", "input": {}}
        done = {"type": "tool_result", "tool_use_id": "call_a", "is_error": is_error}
        turns = [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [done | {"content": list(content)}]},
        ]
        body, dropped = to_responses(messages(messages=turns))
        assert dropped == set()
        back, dropped = to_anthropic(responses(input=body["input"]))
        assert dropped == set()
        (result,) = back["messages"][2]["content"]
        assert result.get("is_error", False) is is_error
        return body["input"][-1]["output"]

    one, two = ({"type": "text", "text": text} for text in ("one", "two"))
    image = {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}
    assert gave(one, is_error=False) == "one"
    assert gave(is_error=False) == ""
    assert gave(is_error=True) == "[tool_error]\n"
    assert gave(one, is_error=True) == "[tool_error]\none"
    for is_error, first in ((False, "one"), (True, "[tool_error]\none")):
        assert gave(one, two, is_error=is_error) == [
            {"type": "input_text", "text": first},
            {"type": "input_text", "text": "two"},
        ]
    marked: Any = gave(image, is_error=True)
    assert marked[0] == {"type": "input_text", "text": "[tool_error]\n"}
    assert marked[1]["type"] == "input_image"


def test_rule_4_a_tool_that_wrote_nothing_is_no_blank_text_of_the_callers() -> None:
    call = {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a", "content": ""},
    ]
    item = {"type": "function_call", "call_id": "call_a", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_a", "output": ""}
    for request in (chat(messages=turns), responses(input=[turns[0], item, output])):
        body, dropped = to_anthropic(request)
        assert body["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "call_a"}]
        assert dropped == set(), "a key that leaves nothing out may say so"


def test_rule_4_an_empty_text_beside_calls_is_no_blank_text_of_the_callers() -> None:
    """Clients that put a stream together keep the empty text of its first chunk."""
    call = {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a", "content": "ok"},
    ]
    body, dropped = to_anthropic(chat(messages=turns))
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
    assert dropped == set(), "a key that leaves nothing out may say so"
    body, dropped = to_responses(chat(messages=turns))
    assert [item["type"] for item in body["input"][1:]] == ["function_call", "function_call_output"]
    assert dropped == set()


def test_rule_68_the_most_effort_crosses_between_openais_dialects_as_it_is() -> None:
    body, dropped = to_responses(chat(reasoning_effort="max"), "reasoning_effort")
    assert (body["reasoning"], dropped) == ({"effort": "max"}, set())
    asked = responses(reasoning={"effort": "max"})
    body, dropped = to_openai(asked, "reasoning_effort", OPENAIS)
    assert (body["reasoning_effort"], dropped) == ("max", set())

    # Another vendor's word; its models that know no more than `xhigh` would refuse it.
    asked = messages(output_config={"effort": "max"})
    assert to_openai(asked, "reasoning_effort")[0]["reasoning_effort"] == "xhigh"


def test_rule_25_an_end_user_is_told_by_the_name_that_the_caller_used() -> None:
    body, _ = to_responses(chat(safety_identifier="ann.lee"))
    assert (body["safety_identifier"], "user" in body) == ("ann.lee", False)
    body, _ = to_responses(chat(user="ann.lee"))
    assert (body["user"], "safety_identifier" in body) == ("ann.lee", False)
    asked = responses(safety_identifier="ann.lee")
    body, _ = to_openai(asked, OPENAIS)
    assert (body["safety_identifier"], "user" in body) == ("ann.lee", False)

    # Compatible servers know the older name.
    body, _ = to_openai(asked)
    assert (body["user"], "safety_identifier" in body) == ("ann.lee", False)


def test_rule_8_a_document_without_a_title_is_called_one() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    turns = [{"role": "user", "content": [{"type": "document", "source": source}]}]
    (part,) = to_openai(messages(messages=turns))[0]["messages"][0]["content"]
    assert part["file"]["filename"] == "document"
    (part,) = to_responses(messages(messages=turns))[0]["input"][0]["content"]
    assert part["filename"] == "document"


def test_rule_17_a_result_without_a_text_is_an_empty_one_and_marked_where_it_failed() -> None:
    call = {"type": "tool_use", "id": "call_a", "name": "f", "input": {}}
    image = {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}
    for content, is_error, told in (
        ([], False, ""),
        ([], True, "[tool_error]\n"),
        ([image], False, ""),
        ([image], True, "[tool_error]\n"),
    ):
        done = {"type": "tool_result", "tool_use_id": "call_a", "is_error": is_error}
        turns = [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [done | {"content": content}]},
        ]
        body, dropped = to_openai(messages(messages=turns))
        assert body["messages"][2] == {"role": "tool", "tool_call_id": "call_a", "content": told}
        assert dropped == set()
