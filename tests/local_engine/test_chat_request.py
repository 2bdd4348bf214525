"""Reading chat requests: what is taken over, what is ignored, what is refused by name."""

import json
from functools import cache
from typing import Any

import pytest

from local_engine.model.config import SamplingDefaults
from local_engine.model.manifest import open_model
from local_engine.serve.api.chat_request import ChatRequest, read_chat_request
from local_engine.serve.api.errors import InvalidRequest
from local_engine.text.tokenizer import ChatTokenizer, load_chat_tokenizer
from tests.local_engine.models import DEMO_MODEL


MESSAGES = [{"role": "user", "content": "hello"}]


@cache
def tokenizer() -> ChatTokenizer:
    with open_model(DEMO_MODEL) as files:
        return load_chat_tokenizer(files)


def read(**fields: Any) -> ChatRequest:
    body = json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode()
    return read_chat_request(body, SamplingDefaults(temperature=0.0), tokenizer())


def test_everything_the_engine_knows_is_taken_over() -> None:
    request = read(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        logit_bias={"5": -1},
        logprobs=True,
        top_logprobs=2,
        seed=7,
        stop="END",
        max_tokens=9,
        stream=True,
        stream_options={"include_usage": True},
    )
    params = request.params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 40, 0.1)
    assert (params.presence_penalty, params.frequency_penalty) == (0.2, 0.3)
    assert (params.logit_bias, params.seed, params.stop) == ({5: -1.0}, 7, ("END",))
    assert (params.max_tokens, params.logprobs, params.top_logprobs) == (9, True, 2)
    assert request.is_stream
    assert request.include_usage


def test_absent_and_null_fields_get_the_models_defaults() -> None:
    assert read(temperature=None, stop=None, max_tokens=None, n=None, tools=None) == read()
    assert read().params.temperature == 0.0
    assert read().params.max_tokens is None


def test_the_newer_name_of_the_length_cap_wins() -> None:
    assert read(max_tokens=5, max_completion_tokens=7).params.max_tokens == 7


def test_a_bad_word_is_forbidden_with_and_without_a_space_before_it(
    demo_tokenizer: ChatTokenizer,
) -> None:
    forbidden = read(bad_words=["cat", "two words"]).params.bad_token_ids
    texts = [demo_tokenizer.decode(tokens) for tokens in forbidden]
    assert texts == ["cat", " cat", "two words", " two words"]


def test_harmless_fields_are_ignored() -> None:
    harmless = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "response_format": {"type": "text"},
        "tools": [],
        "tool_choice": "none",
        "parallel_tool_calls": True,
        "something_new": {"deep": [1]},
        "skip_special_tokens": True,
        "add_generation_prompt": True,
        "add_special_tokens": False,
        "documents": [],
        "continue_final_message": False,
    }
    assert read(**harmless) == read()


def test_an_effort_is_told_to_the_template_which_a_variable_may_say_otherwise() -> None:
    told = [read(reasoning_effort=each).variables for each in ("low", "none", None)]
    assert told == [
        {"reasoning_effort": "low", "enable_thinking": True},
        {"reasoning_effort": "none", "enable_thinking": False},
        {},
    ]
    both = read(reasoning_effort="high", chat_template_kwargs={"enable_thinking": False, "a": 1})
    assert both.variables == {"reasoning_effort": "high", "enable_thinking": False, "a": 1}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_what_a_model_thought_is_told_to_the_template_again(name: str) -> None:
    def thought(role: str, **said: str) -> list[Any]:
        request = read(messages=[{"role": role, "content": "4", **said}])
        return [message.get("reasoning_content") for message in request.messages]

    assert thought("assistant", **{name: "2 and 2"}) == ["2 and 2"]
    assert thought("assistant", **{name: ""}) == thought("assistant") == [None]
    assert thought("user", **{name: "2 and 2"}) == [None]


def test_text_parts_are_joined() -> None:
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    request = read(messages=[{"role": "user", "content": content}])
    assert request.messages == ({"role": "user", "content": "one\ntwo"},)


IMAGE = [{"type": "image_url", "image_url": {"url": "data:,"}}]
CALL = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}]
HALF_A_CHARACTER = [{"function": {"name": "f", "arguments": '{"a": "\\ud83d"}'}}]
TOOLS = {"tools": [{"type": "function", "function": {"name": "f"}}]}
BAD_REQUESTS: list[tuple[dict[str, Any], str, str | None]] = [
    ({"model": None}, "invalid_type", "model"),
    ({"messages": []}, "invalid_value", "messages"),
    ({"messages": "hello"}, "invalid_type", "messages"),
    ({"messages": MESSAGES * 2049}, "invalid_value", "messages"),
    ({"messages": [{"content": "x"}]}, "invalid_type", "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "invalid_value", "messages[0].content"),
    ({"messages": [{"role": "king", "content": "x"}]}, "invalid_value", "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "invalid_type", "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": IMAGE}]},
        "unsupported_content",
        "messages[0].content",
    ),
    ({"messages": [{"role": "function", "content": "x"}]}, "unsupported_parameter", "messages[0]"),
    (
        {"messages": [{"role": "assistant", "content": None, "tool_calls": CALL}]},
        "invalid_value",
        "messages[0].tool_calls",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": HALF_A_CHARACTER}]},
        "invalid_value",
        "messages[0].tool_calls",
    ),
    ({"n": 17}, "invalid_value", "n"),
    ({"n": 0}, "invalid_value", "n"),
    ({"tools": [{"type": "function"}]}, "invalid_type", "tools[0].function"),
    ({"functions": [{"name": "f"}]}, "unsupported_parameter", "functions"),
    ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
    ({"tool_choice": {"type": "function"}, **TOOLS}, "invalid_value", "tool_choice"),
    (
        {"tool_choice": {"type": "function", "function": {"name": "g"}}, **TOOLS},
        "invalid_value",
        "tool_choice",
    ),
    (
        {"tool_choice": {"type": "function", "function": "f"}, **TOOLS},
        "invalid_type",
        "tool_choice.function",
    ),
    (
        {"tool_choice": {"type": "function", "function": {"name": {}}}, **TOOLS},
        "invalid_type",
        "tool_choice.function.name",
    ),
    ({"response_format": {"type": "xml"}}, "invalid_value", "response_format"),
    ({"response_format": {"type": "json_schema"}}, "invalid_value", "response_format"),
    ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
    ({"guided_regex": "a", "guided_choice": ["b"]}, "invalid_value", "response_format"),
    (
        {"guided_regex": "a", "structured_outputs": {"regex": "b"}},
        "invalid_value",
        "response_format",
    ),
    (
        {"guided_json": {}, "response_format": {"type": "json_schema", "json_schema": {}}},
        "invalid_value",
        "response_format",
    ),
    ({"structured_outputs": {"choice": []}}, "invalid_grammar", "structured_outputs"),
    ({"structured_outputs": {}}, "invalid_value", "structured_outputs"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "invalid_value",
        "response_format",
    ),
    ({"guided_json": "{"}, "invalid_grammar", "guided_json"),
    ({"guided_json": "[" * 100_000}, "invalid_grammar", "guided_json"),
    ({"structured_outputs": {"json": "[]"}}, "invalid_grammar", "structured_outputs"),
    *(
        (
            {"structured_outputs": {"json": {}, word: asked}},
            "unsupported_parameter",
            f"structured_outputs.{word}",
        )
        for word, asked in (
            ("whitespace_pattern", " "),
            ("structural_tag", {"triggers": []}),
            ("disable_additional_properties", True),
        )
    ),
    ({"repetition_penalty": 0}, "invalid_value", "repetition_penalty"),
    ({"temperature": "hot"}, "invalid_type", "temperature"),
    ({"temperature": 3}, "invalid_value", "temperature"),
    ({"top_p": 0}, "invalid_value", "top_p"),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"max_tokens": 1.5}, "invalid_type", "max_tokens"),
    ({"bad_words": ["x" * 257]}, "invalid_value", "bad_words"),
    ({"max_tokens": 5, "min_tokens": 6}, "invalid_value", "min_tokens"),
    ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
    ({"stream": False, "stream_options": {}}, "invalid_value", "stream_options"),
    ({"stop": ["a", 1]}, "invalid_type", "stop[1]"),
    ({"stop": [""]}, "invalid_value", "stop"),
    ({"logit_bias": {"five": 1}}, "invalid_value", "logit_bias"),
    ({"top_logprobs": 3}, "invalid_value", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "invalid_value", "top_logprobs"),
    ({"seed": "x"}, "invalid_type", "seed"),
    ({"typical_p": 0.9}, "unsupported_parameter", "typical_p"),
    ({"truncate_prompt_tokens": 5}, "unsupported_parameter", "truncate_prompt_tokens"),
    ({"regex": "[a-z]"}, "unsupported_parameter", "regex"),
    ({"ebnf": "root ::= 'a'"}, "unsupported_parameter", "ebnf"),
    ({"lora_path": "a"}, "unsupported_parameter", "lora_path"),
    ({"guided_whitespace_pattern": " "}, "unsupported_parameter", "guided_whitespace_pattern"),
    ({"continue_final_message": True}, "unsupported_parameter", "continue_final_message"),
    ({"chat_template": "{{ 1 }}"}, "unsupported_parameter", "chat_template"),
    ({"documents": [{"text": "x"}]}, "unsupported_parameter", "documents"),
    *(
        ({word: False}, "unsupported_parameter", word)
        for word in ("add_generation_prompt", "include_reasoning", "separate_reasoning")
    ),
    *(
        ({word: asked}, "unsupported_parameter", word)
        for word, asked in (
            ("repetition_detection", {"max_pattern_size": 3, "min_count": 2}),
            ("watermarking", True),
            ("structural_tag", "{}"),
            ("json_schema", "{}"),
            ("grammar", 'root ::= "a"'),
            ("vllm_xargs", {"a": 1}),
            ("kv_transfer_params", {"do_remote_decode": True}),
            ("ec_transfer_params", {"a": 1}),
            ("return_prompt_text", True),
        )
    ),
    ({"reasoning_effort": "some"}, "invalid_type", "reasoning_effort"),
    ({"use_beam_search": True}, "unsupported_parameter", "use_beam_search"),
    ({"stream": "yes"}, "invalid_type", "stream"),
]


@pytest.mark.parametrize(("fields", "code", "param"), BAD_REQUESTS)
def test_a_bad_request_is_refused_by_code_and_parameter(
    fields: dict[str, Any], code: str, param: str | None
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read(**fields)
    assert refusal.value.code == code
    assert refusal.value.param == param


def test_whole_characters_in_escapes_of_a_calls_arguments_are_read() -> None:
    call = {"function": {"name": "f", "arguments": '{"a": "\\ud83d\\ude00"}'}}
    request = read(messages=[{"role": "assistant", "tool_calls": [call]}])
    assert request.messages[0]["tool_calls"][0]["function"]["arguments"] == {"a": "\U0001f600"}


def test_a_schema_may_be_an_object_or_the_text_of_one() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    grammars = {
        read(**fields).params.grammar
        for given in (schema, json.dumps(schema))
        for fields in ({"guided_json": given}, {"structured_outputs": {"json": given}})
    }
    assert len(grammars) == 1
    assert grammars != {None}


@pytest.mark.parametrize("words", [{"regex": ""}, {"choice": ["a"]}, {"json": {}}])
def test_what_structured_outputs_asks_for_is_never_left_out(words: dict[str, Any]) -> None:
    assert read(structured_outputs=words).params.grammar is not None


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]x", b"\xff\xfe", b'{"model": "m", "messages": [}', b"[" * 100_000]
)
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read_chat_request(body, SamplingDefaults(), tokenizer())
    assert refusal.value.code in {"invalid_json", "invalid_type"}


@pytest.mark.parametrize("most", [0, -1, 1 << 63])
def test_a_bound_is_refused_under_the_name_that_it_was_given(most: int) -> None:
    with pytest.raises(InvalidRequest, match="max_completion_tokens must be") as refused:
        read(max_completion_tokens=most, max_tokens=5)
    assert refused.value.param == "max_completion_tokens"
