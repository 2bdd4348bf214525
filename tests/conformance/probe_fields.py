"""The fields and shapes that are probed, per dialect; each stands alone beside a plain request."""

from typing import Any


Fields = dict[str, dict[str, Any]]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CLOSED = SCHEMA | {"required": ["city"], "additionalProperties": False}
"""What every vendor enforces."""
PNG = "data:image/png;base64,AAAA"
PDF = "data:application/pdf;base64,AAAA"
USER: dict[str, Any] = {"role": "user", "content": "Hi"}
CALL: dict[str, Any] = {
    "id": "call_a",
    "type": "function",
    "function": {"name": "f", "arguments": '{"a":1}'},
}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "call_a", "content": "ok"}
STRICT = {"strict": True}
FUNCTION: dict[str, Any] = {"name": "f", "parameters": SCHEMA}
F: dict[str, Any] = {"type": "function", "function": FUNCTION}
USE: dict[str, Any] = {"type": "tool_use", "id": "call_a", "name": "f", "input": {"a": 1}}
DONE: dict[str, Any] = {"type": "tool_result", "tool_use_id": "call_a", "content": "ok"}
M: dict[str, Any] = {"name": "f", "input_schema": SCHEMA}
R: dict[str, Any] = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}
MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
SIGNED: dict[str, Any] = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
FC: dict[str, Any] = {
    "type": "function_call",
    "call_id": "call_a",
    "name": "f",
    "arguments": '{"a":1}',
}
FCO: dict[str, Any] = {"type": "function_call_output", "call_id": "call_a", "output": "ok"}
SPACE: dict[str, Any] = {"type": "namespace", "name": "s", "description": "D", "tools": [R]}
CHAT_CUSTOM: dict[str, Any] = {"type": "custom", "custom": {"name": "c", "description": "D"}}
CHAT_GRAMMAR: dict[str, Any] = {
    "type": "grammar",
    "grammar": {"syntax": "lark", "definition": "start: /.+/"},
}
CUSTOM: dict[str, Any] = {"type": "custom", "name": "c", "description": "D"}
GRAMMAR = {"format": {"type": "grammar", "syntax": "regex", "definition": ".+"}}
BRINGING: dict[str, Any] = {"type": "additional_tools", "role": "developer", "tools": [R, SPACE]}


def _each(name: str, *values: object) -> Fields:
    return {f"{name} {str(value)[:40]}": {name: value} for value in values}


def _said(*parts: object, **more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}], **more}


def _format(**schema: object) -> dict[str, Any]:
    form = {"name": "s", "schema": CLOSED | schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


CHAT: Fields = {
    **_each("temperature", 0, 0.5, 1, 1.7, 2),
    **_each("top_p", 0.1, 1),
    **_each("max_tokens", 1, 500),
    **_each("max_completion_tokens", 500),
    **_each("stop", "END", ["A", "B"], ["A", "B", "C", "D", "E"], ["\n", "END"]),
    **_each("n", 2),
    **_each("seed", 7),
    **_each("presence_penalty", 0.5),
    **_each("frequency_penalty", -0.5),
    **_each("logit_bias", {"50256": -100}),
    **_each("logprobs", True),
    **_each("top_logprobs", 3),
    **_each("reasoning_effort", "none", "minimal", "low", "medium", "high", "xhigh", "max"),
    **_each("verbosity", "low", "medium"),
    **_each("user", "ann.lee", "7d3c9b1e-0000-4000-8000-1234567890ab"),
    **_each("safety_identifier", "ann.lee"),
    **_each("service_tier", "auto", "default", "flex", "priority"),
    **_each("store", True, False),
    **_each("metadata", {"team": "x"}),
    **_each("prediction", {"type": "content", "content": "x"}),
    **_each("modalities", ["text", "audio"]),
    **_each("audio", {"voice": "alloy", "format": "mp3"}),
    **_each("web_search_options", {"search_context_size": "low"}),
    **_each("prompt_cache_key", "k"),
    **_each("prompt_cache_options", {"mode": "explicit"}),
    **_each("prompt_cache_retention", "24h"),
    **_each("a_field_of_tomorrow", 1),
    **_each("stream", True),
    "tools": {"tools": [F]},
    "tools strict": {
        "tools": [{"type": "function", "function": {**FUNCTION, **STRICT, "parameters": CLOSED}}]
    },
    "tools strict and open": {"tools": [{"type": "function", "function": FUNCTION | STRICT}]},
    "tools described": {
        "tools": [{"type": "function", "function": FUNCTION | {"description": "D"}}]
    },
    "tools without parameters": {"tools": [{"type": "function", "function": {"name": "f"}}]},
    "tools with a long name": {
        "tools": [{"type": "function", "function": {"name": "f." + "x" * 70, "parameters": SCHEMA}}]
    },
    "tools cached": {"tools": [{"type": "function", "function": FUNCTION | MARK}]},
    "tools custom": {"tools": [CHAT_CUSTOM]},
    "tools custom with a grammar": {
        "tools": [{"type": "custom", "custom": {"name": "c", "format": CHAT_GRAMMAR}}]
    },
    "tools custom, a call of one": {
        "tools": [CHAT_CUSTOM],
        "messages": [
            USER,
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "call_a", "type": "custom", "custom": {"name": "c", "input": "x"}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_a", "content": "ok"},
        ],
    },
    "tool_choice custom": {
        "tools": [CHAT_CUSTOM],
        "tool_choice": {"type": "custom", "custom": {"name": "c"}},
    },
    "tool_choice auto": {"tools": [F], "tool_choice": "auto"},
    "tool_choice none": {"tools": [F], "tool_choice": "none"},
    "tool_choice required": {"tools": [F], "tool_choice": "required"},
    "tool_choice named": {
        "tools": [F],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    },
    "tool_choice allowed": {
        "tools": [F],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "f"}}],
            },
        },
    },
    "parallel_tool_calls false": {"tools": [F], "parallel_tool_calls": False},
    "parallel_tool_calls true": {"tools": [F], "parallel_tool_calls": True},
    "functions": {"functions": [{"name": "f", "parameters": SCHEMA}]},
    "functions and none of them": {
        "functions": [{"name": "f", "parameters": SCHEMA}],
        "function_call": "none",
    },
    "functions and one of them": {
        "functions": [{"name": "f", "parameters": SCHEMA}],
        "function_call": {"name": "f"},
    },
    "response_format json_object": {"response_format": {"type": "json_object"}},
    "response_format json_schema": _format(),
    "response_format with minimum": _format(
        properties={"a": {"type": "integer", "minimum": 3}}, required=["a"]
    ),
    "response_format with an optional": _format(required=[]),
    "response_format open": _format(additionalProperties=True),
    "system": {"messages": [{"role": "system", "content": "S"}, USER]},
    "two systems": {
        "messages": [{"role": "system", "content": "S"}, {"role": "system", "content": "T"}, USER]
    },
    "developer": {"messages": [{"role": "developer", "content": "S"}, USER]},
    "a later system": {"messages": [USER, {"role": "system", "content": "S"}, USER]},
    "an assistant's turn": {"messages": [USER, {"role": "assistant", "content": "A"}, USER]},
    "two users in a row": {"messages": [USER, USER]},
    "a blank assistant": {"messages": [USER, {"role": "assistant", "content": ""}, USER]},
    "a refusal in the history": {"messages": [USER, {"role": "assistant", "refusal": "No."}, USER]},
    "a prefill": {"messages": [USER, {"role": "assistant", "content": "The"}]},
    "a name": {"messages": [{"role": "user", "name": "ann", "content": "Hi"}]},
    "a call and its result": {
        "tools": [F],
        "messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT],
    },
    "a call without tools": {
        "messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]
    },
    "parallel calls": {
        "tools": [F],
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [CALL, CALL | {"id": "call_b"}],
            },
            RESULT,
            RESULT | {"tool_call_id": "call_b"},
        ],
    },
    "broken arguments": {
        "tools": [F],
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [CALL | {"function": {"name": "f", "arguments": '{"a'}}],
            },
            RESULT,
        ],
    },
    "no arguments": {
        "tools": [F],
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [CALL | {"function": {"name": "f", "arguments": ""}}],
            },
            RESULT,
        ],
    },
    "a call without a result": {
        "tools": [F],
        "messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, USER],
    },
    "a function's message": {
        "messages": [USER, {"role": "function", "name": "f", "content": "ok"}]
    },
    "thinking blocks": {
        "messages": [USER, {"role": "assistant", "content": "A", "thinking_blocks": [SIGNED]}, USER]
    },
    "reasoning content": {
        "messages": [USER, {"role": "assistant", "content": "A", "reasoning_content": "Hm."}, USER]
    },
    "an image": _said({"type": "image_url", "image_url": {"url": PNG}}),
    "an image by address": _said(
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    ),
    "an image in detail": _said({"type": "image_url", "image_url": {"url": PNG, "detail": "high"}}),
    "a document": _said({"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}),
    "a document held elsewhere": _said({"type": "file", "file": {"file_id": "file_1"}}),
    "audio": _said({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
    "two texts": _said({"type": "text", "text": "A"}, {"type": "text", "text": "B"}),
    "a text with a marker": _said({"type": "text", "text": "A"} | MARK),
    "a text with a breakpoint": _said(
        {"type": "text", "text": "A", "prompt_cache_breakpoint": {"mode": "explicit"}}
    ),
    "an unknown part": _said({"type": "video_url", "video_url": {"url": PNG}}),
    "an unknown field in a part": _said({"type": "text", "text": "A", "hint": 1}),
}


def _turn(*blocks: object, **more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}], **more}


def _history(*blocks: object, then: object = DONE) -> dict[str, Any]:
    said = {"role": "assistant", "content": list(blocks)}
    return {"tools": [M], "messages": [USER, said, {"role": "user", "content": [then]}]}


_KNOWN_BY_TYPE: Fields = {
    "bash": {"type": "bash_20250124", "name": "bash"},
    "an editor": {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    "a memory": {"type": "memory_20250818", "name": "memory"},
    "a computer": {
        "type": "computer_20251124",
        "name": "computer",
        "display_width_px": 1024,
        "display_height_px": 768,
    },
}

MESSAGES: Fields = {
    **_each("temperature", 0, 0.5, 1),
    **_each("top_p", 0.5),
    **_each("top_k", 40),
    **_each("max_tokens", 0, 500),
    **_each("stop_sequences", ["END"], ["A", "B", "C", "D", "E"]),
    **_each(
        "metadata", {"user_id": "ann.lee"}, {"user_id": "7d3c9b1e-0000-4000-8000-1234567890ab"}
    ),
    **_each("service_tier", "auto", "standard_only"),
    **_each("speed", "fast"),
    **_each("inference_geo", "eu"),
    **_each("container", "c_1"),
    **_each("context_management", {"edits": []}),
    **_each("thread", {"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}),
    **_each(
        "thinking",
        {"type": "enabled", "budget_tokens": 2048},
        {"type": "adaptive"},
        {"type": "adaptive", "display": "summarized"},
        {"type": "disabled"},
    ),
    **_each("output_config", {"effort": "low"}, {"effort": "max"}),
    **_each("cache_control", {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}),
    **_each("a_field_of_tomorrow", 1),
    **_each("stream", True),
    "output_config format": {
        "output_config": {"format": {"type": "json_schema", "schema": CLOSED}}
    },
    "output_config format with an optional": {
        "output_config": {
            "format": {"type": "json_schema", "schema": SCHEMA | {"additionalProperties": False}}
        }
    },
    "output_config with a task's budget": {
        "output_config": {"task_budget": {"type": "tokens", "total": 20000}}
    },
    "system": {"system": "S"},
    "system blocks": {"system": [{"type": "text", "text": "S"}, {"type": "text", "text": "T"}]},
    "system marked": {"system": [{"type": "text", "text": "S"} | MARK]},
    "a later system": {"messages": [USER, {"role": "system", "content": "S"}, USER]},
    "tools": {"tools": [M]},
    "tools strict": {"tools": [M | STRICT | {"input_schema": CLOSED}]},
    "tools strict and open": {"tools": [M | STRICT]},
    "tools with examples": {"tools": [M | {"input_examples": [{"city": "Bonn"}]}]},
    "tools called by the model alone": {"tools": [M | {"allowed_callers": ["direct"]}]},
    "tools called by code": {"tools": [M | {"allowed_callers": ["code_execution_20260120"]}]},
    **{f"{kind} of the caller's": {"tools": [tool]} for kind, tool in _KNOWN_BY_TYPE.items()},
    "a browser of the caller's": {"tools": [{"type": "browser_toolset_20260801"}]},
    "tools described": {"tools": [M | {"description": "D"}]},
    "tools marked": {"tools": [M | MARK]},
    "tools deferred": {"tools": [M | {"defer_loading": True}]},
    "a server tool": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    "tool_choice auto": {"tools": [M], "tool_choice": {"type": "auto"}},
    "tool_choice any": {"tools": [M], "tool_choice": {"type": "any"}},
    "tool_choice none": {"tools": [M], "tool_choice": {"type": "none"}},
    "tool_choice named": {"tools": [M], "tool_choice": {"type": "tool", "name": "f"}},
    "one call at a time": {
        "tools": [M],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    },
    "mcp_servers": {"mcp_servers": [{"type": "url", "url": "https://a.example", "name": "x"}]},
    "an assistant's turn": {"messages": [USER, {"role": "assistant", "content": "A"}, USER]},
    "two users in a row": {"messages": [USER, USER]},
    "a prefill": {"messages": [USER, {"role": "assistant", "content": "The"}]},
    "a call and its result": _history(USE),
    "a call after text": _history({"type": "text", "text": "I look."}, USE),
    "thinking before a call": _history(SIGNED, {"type": "text", "text": "I look."}, USE),
    "redacted thinking": _history({"type": "redacted_thinking", "data": "b3Bh"}, USE),
    "a failed result": _history(USE, then=DONE | {"is_error": True}),
    "an image in a result": _history(
        USE,
        then=DONE
        | {
            "content": [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                }
            ]
        },
    ),
    "a document with context in a result": _history(
        USE,
        then=DONE
        | {
            "content": [
                {
                    "type": "document",
                    "context": "C",
                    "source": {"type": "text", "media_type": "text/plain", "data": "D"},
                }
            ]
        },
    ),
    "an empty result": _history(USE, then={"type": "tool_result", "tool_use_id": "call_a"}),
    "a result of another call": _history(USE, then=DONE | {"tool_use_id": "other"}),
    "text after a result": {
        "tools": [M],
        "messages": [
            USER,
            {"role": "assistant", "content": [USE]},
            {"role": "user", "content": [DONE, {"type": "text", "text": "And?"}]},
        ],
    },
    "an image": _turn(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    ),
    "an image by address": _turn(
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}
    ),
    "an image held elsewhere": _turn(
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    ),
    "a document": _turn(
        {
            "type": "document",
            "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
        }
    ),
    "a document of text": _turn(
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "D"}}
    ),
    "a document by address": _turn(
        {"type": "document", "source": {"type": "url", "url": "https://a.example/b.pdf"}}
    ),
    "a document with context": _turn(
        {
            "type": "document",
            "context": "C",
            "source": {"type": "text", "media_type": "text/plain", "data": "D"},
        }
    ),
    "citations": _turn(
        {
            "type": "document",
            "citations": {"enabled": True},
            "source": {"type": "text", "media_type": "text/plain", "data": "D"},
        }
    ),
    "two texts": _turn({"type": "text", "text": "A"}, {"type": "text", "text": "B"}),
    "a text with a marker": _turn({"type": "text", "text": "A"} | MARK),
    "a text with an hour's marker": _turn(
        {"type": "text", "text": "A", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ),
    "a search result": _turn(
        {
            "type": "search_result",
            "source": "x",
            "title": "T",
            "content": [{"type": "text", "text": "A"}],
        }
    ),
    "an unknown field in a block": _turn({"type": "text", "text": "A", "hint": 1}),
}


def _item(*parts: object, **more: object) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": list(parts)}], **more}


_BUILT_IN = ("local_shell", "shell", "apply_patch", "computer")

RESPONSES: Fields = {
    **_each("temperature", 0.5, 1.7),
    **_each("top_p", 0.5),
    **_each("max_output_tokens", 500),
    **_each("instructions", "S"),
    **_each("reasoning", {"effort": "low"}, {"effort": "high"}, {"effort": "none"}),
    **_each("reasoning", {"summary": "auto"}, {"summary": "detailed"}, {"mode": "pro"}),
    **_each("user", "ann.lee"),
    **_each("safety_identifier", "ann.lee"),
    **_each("service_tier", "auto", "flex"),
    **_each("top_logprobs", 3),
    **_each("truncation", "auto", "disabled"),
    **_each("client_metadata", {"session": "s"}),
    **_each("prompt", {"id": "pmpt_1"}),
    **_each("max_tool_calls", 3),
    **_each("prompt_cache_key", "k"),
    **_each("prompt_cache_retention", "24h"),
    **_each("a_field_of_tomorrow", 1),
    **_each("stream", True),
    "text verbosity": {"text": {"verbosity": "low"}},
    "text json_object": {"text": {"format": {"type": "json_object"}}},
    "text json_schema": {
        "text": {
            "format": {
                "type": "json_schema",
                "name": "s",
                "schema": CLOSED,
                "strict": True,
            }
        }
    },
    "tools": {"tools": [R]},
    "tools strict": {"tools": [R | STRICT | {"parameters": CLOSED}]},
    "a server tool": {"tools": [{"type": "web_search"}]},
    "tools in a namespace": {"tools": [SPACE]},
    "a custom tool": {"tools": [CUSTOM]},
    "a custom tool with a grammar": {"tools": [CUSTOM | GRAMMAR]},
    "tools that an item brings": {"input": [BRINGING, USER]},
    "a call in a namespace": {
        "tools": [SPACE],
        "input": [USER, FC | {"namespace": "s"}, FCO],
    },
    "a call of a custom tool": {
        "tools": [CUSTOM],
        "input": [
            USER,
            {"type": "custom_tool_call", "call_id": "call_a", "name": "c", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "call_a", "output": "ok"},
        ],
    },
    "an agent's message": {
        "input": [
            {
                "type": "agent_message",
                "author": "/lead",
                "recipient": "/lead/a",
                "content": [{"type": "input_text", "text": "Go."}],
            }
        ]
    },
    "a search in the history": {
        "input": [USER, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, USER]
    },
    "tool_choice required": {"tools": [R], "tool_choice": "required"},
    "tool_choice named": {"tools": [R], "tool_choice": {"type": "function", "name": "f"}},
    "tool_choice in a namespace": {
        "tools": [SPACE],
        "tool_choice": {"type": "function", "name": "f", "namespace": "s"},
    },
    "tool_choice allowed": {
        "tools": [R],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}],
        },
    },
    "parallel_tool_calls false": {"tools": [R], "parallel_tool_calls": False},
    "a developer's item": {"input": [{"role": "developer", "content": "S"}, USER]},
    "a later developer's item": {"input": [USER, {"role": "developer", "content": "S"}, USER]},
    "a phase of an assistant's item": {
        "input": [USER, {"role": "assistant", "content": "A", "phase": "commentary"}, USER]
    },
    "an assistant's item": {"input": [USER, {"role": "assistant", "content": "A"}, USER]},
    "a prefill": {"input": [USER, {"role": "assistant", "content": "The"}]},
    "a call and its output": {"tools": [R], "input": [USER, FC, FCO]},
    "parallel calls": {
        "tools": [R],
        "input": [USER, FC, FC | {"call_id": "call_b"}, FCO, FCO | {"call_id": "call_b"}],
    },
    "a call without an output": {"tools": [R], "input": [USER, FC]},
    "an image in an output": {
        "tools": [R],
        "input": [USER, FC, FCO | {"output": [{"type": "input_image", "image_url": PNG}]}],
    },
    "sealed reasoning": {
        "tools": [R],
        "input": [
            USER,
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vh"},
            FC,
            FCO,
        ],
    },
    "reasoning without its seal": {
        "tools": [R],
        "input": [
            USER,
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Hm."}],
            },
            FC,
            FCO,
        ],
    },
    "an image": _item({"type": "input_image", "image_url": PNG}),
    "an image in detail": _item({"type": "input_image", "image_url": PNG, "detail": "high"}),
    "an image held elsewhere": _item({"type": "input_image", "file_id": "file_1"}),
    "a document": _item({"type": "input_file", "filename": "a.pdf", "file_data": PDF}),
    "a document by address": _item({"type": "input_file", "file_url": "https://a.example/b.pdf"}),
    "a text with a breakpoint": _item(
        {"type": "input_text", "text": "A", "prompt_cache_breakpoint": {"mode": "explicit"}}
    ),
    "two texts": _item({"type": "input_text", "text": "A"}, {"type": "input_text", "text": "B"}),
    "an item reference": {"input": [{"type": "item_reference", "id": "rs_1"}]},
    "a shell call": {
        "input": [
            USER,
            {"type": "local_shell_call", "id": "x", "call_id": "c", "status": "completed"},
        ]
    },
    **{f"{kind} of the caller's": {"tools": [{"type": kind}]} for kind in _BUILT_IN},
    "a search of the caller's": {"tools": [{"type": "tool_search", "execution": "client"}]},
    "an unknown field in a part": _item({"type": "input_text", "text": "A", "hint": 1}),
}


COMPLETIONS: Fields = {
    **_each("prompt", "Once", ["Once"], ["Once", "Twice"], [1, 2], [[1, 2]]),
    **_each("temperature", 0, 0.5, 1, 1.7),
    **_each("top_p", 0.1, 1),
    **_each("top_k", 40, -1, "many"),
    **_each("max_tokens", 1, 500),
    **_each("n", 2),
    **_each("best_of", 1, 3),
    **_each("echo", True),
    **_each("suffix", "END"),
    **_each("logprobs", 0, 3),
    **_each("prompt_logprobs", 1),
    **_each("use_beam_search", True),
    **_each("stop", "END", ["A", "B"], ["A", "B", "C", "D", "E"]),
    **_each("seed", 7),
    **_each("presence_penalty", 0.5),
    **_each("frequency_penalty", -0.5),
    **_each("logit_bias", {"50256": -100}),
    **_each("user", "ann.lee", "7d3c9b1e-0000-4000-8000-1234567890ab"),
    **_each("service_tier", "auto", "flex"),
    **_each("web_search_options", {"search_context_size": "low"}),
    **_each("kv_transfer_params", {"remote_host": "h"}),
    **_each("guided_regex", "a+"),
    **_each("ignore_eos", True),
    **_each("a_field_of_tomorrow", 1),
    **_each("stream", True),
    "a score of the prompt": {"max_tokens": 0, "echo": True, "logprobs": 1},
    "as many as the best of them": {"n": 2, "best_of": 2},
    "usage in a stream": {"stream": True, "stream_options": {"include_usage": True}},
}
