"""An answer of each vendor with text in every place its API documents, and in others.

Complete, and as the events of a stream. Every text in them is harmless; a test puts something else
into one place at a time.
"""

import json
from typing import Any

from gateway.types import DialectName


Body = dict[str, Any]
ARGUMENTS = json.dumps({"city": "here", "inner": json.dumps({"deep": "there"})})
TOKENS: list[Body] = [
    {
        "token": "It",
        "logprob": -0.1,
        "bytes": [73, 116],
        "top_logprobs": [{"token": "He", "logprob": -2.0, "bytes": [72, 101]}],
    }
]
TOMORROW: Body = {"deep": ["x", {"y": "z"}], "count": 1}
"""What no API has today."""
CITATION: Body = {
    "type": "url_citation",
    "url_citation": {
        "url": "https://shelf.example/book",
        "title": "a book",
        "content": "a page",
        "start_index": 0,
        "end_index": 2,
    },
}
CHAT_USAGE: Body = {
    "prompt_tokens": 1,
    "completion_tokens": 2,
    "total_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 0},
    "note": "counted",
}
CHAT: Body = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "system_fingerprint": "fp_1",
    "service_tier": "default",
    "citations": ["https://shelf.example/book"],
    "search_results": [{"title": "a book", "url": "https://shelf.example", "date": "today"}],
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "stop_reason": "END",
            "matched_stop": "END",
            "native_finish_reason": "stop",
            "logprobs": {"content": TOKENS, "refusal": TOKENS},
            "token_ids": [1, 2],
            "message": {
                "role": "assistant",
                "content": "It rains",
                "refusal": "not that",
                "reasoning_content": "I think",
                "reasoning": "I think so",
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "thus", "id": "r", "format": "f"},
                    {"type": "reasoning.summary", "summary": "in short"},
                    {"type": "reasoning.encrypted", "data": "c2VhbGVk"},
                ],
                "annotations": [CITATION],
                "audio": {"id": "audio_1", "data": "UklGRg==", "transcript": "aha"},
                "images": [{"type": "image_url", "image_url": {"url": "https://x.example/i"}}],
                "context": {"citations": [{"title": "t", "content": "c", "filepath": "f"}]},
                "function_call": {"name": "look", "arguments": ARGUMENTS},
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "look", "arguments": ARGUMENTS},
                    },
                    {
                        "id": "call_2",
                        "type": "custom",
                        "custom": {"name": "note", "input": "words"},
                    },
                    {"id": "call_3", "type": "hologram", "hologram": {"shown": "light"}},
                ],
                "of_tomorrow": TOMORROW,
            },
            "content_filter_results": {"hate": {"filtered": False, "severity": "safe"}},
            "of_tomorrow": TOMORROW,
        }
    ],
    "prompt_filter_results": [{"prompt_index": 0, "note": "safe"}],
    "usage": CHAT_USAGE,
    "of_tomorrow": TOMORROW,
}


def _chunk(delta: Body, **choice: object) -> Body:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {
        **head,
        "system_fingerprint": "fp_1",
        "service_tier": "default",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None, **choice}],
    }


_CALLED = {"index": 0, "id": "call_1", "type": "function"}
CHAT_STREAM: list[Body] = [
    _chunk({"role": "assistant", "content": "", "refusal": None}),
    _chunk({"reasoning_content": "I think"}),
    _chunk({"reasoning": "so", "reasoning_details": [{"type": "reasoning.text", "text": "th"}]}),
    _chunk({"content": "It "}, logprobs={"content": TOKENS}, token_ids=[1]),
    _chunk({"content": "rains", "annotations": [CITATION], "of_tomorrow": TOMORROW}),
    _chunk({"refusal": "not that"}),
    _chunk({"audio": {"id": "audio_1", "data": "UklGRg==", "transcript": "aha"}}),
    _chunk({"tool_calls": [{**_CALLED, "function": {"name": "look", "arguments": ""}}]}),
    _chunk({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS}}]}),
    _chunk({"tool_calls": [{"index": 1, "id": "c", "type": "custom", "custom": {"name": "note"}}]}),
    _chunk({"tool_calls": [{"index": 1, "custom": {"input": "words"}}]}),
    _chunk({"function_call": {"name": "look", "arguments": ARGUMENTS}}),
    {**_chunk({"content": "."}), "of_tomorrow": TOMORROW, "citations": ["https://x.example"]},
    _chunk({}, finish_reason="stop", stop_reason="END", matched_stop="END"),
    {**_chunk({}), "choices": [], "usage": CHAT_USAGE},
]
COMPLETION: Body = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1,
    "model": "m",
    "system_fingerprint": "fp_1",
    "choices": [
        {
            "index": 0,
            "text": "It rains",
            "finish_reason": "stop",
            "stop_reason": "END",
            "logprobs": {
                "tokens": ["It"],
                "token_logprobs": [-0.1],
                "top_logprobs": [{"He": -2.0}],
                "text_offset": [0],
            },
            "prompt_logprobs": [{"1": {"logprob": -0.1, "decoded_token": "It"}}],
            "of_tomorrow": TOMORROW,
        }
    ],
    "usage": CHAT_USAGE,
    "of_tomorrow": TOMORROW,
}
COMPLETION_STREAM: list[Body] = [
    {**COMPLETION, "choices": [{**COMPLETION["choices"][0], "text": "It ", "finish_reason": None}]},
    COMPLETION,
]
_SEARCHED: Body = {
    "type": "web_search_result",
    "title": "a book",
    "url": "https://shelf.example/book",
    "encrypted_content": "c2VhbGVk",
    "page_age": "today",
}
CITATIONS: list[Body] = [
    {
        "type": "char_location",
        "cited_text": "a page",
        "document_index": 0,
        "document_title": "a title",
        "start_char_index": 0,
        "end_char_index": 4,
        "file_id": "file_1",
    },
    {
        "type": "web_search_result_location",
        "cited_text": "a page",
        "url": "https://shelf.example/book",
        "title": "a book",
        "encrypted_index": "c2VhbGVk",
    },
    {
        "type": "search_result_location",
        "cited_text": "a page",
        "source": "a shelf",
        "title": "a book",
        "search_result_index": 0,
        "start_block_index": 0,
        "end_block_index": 1,
    },
]
BLOCKS: list[Body] = [
    {"type": "thinking", "thinking": "I think", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "c2VhbGVk"},
    {"type": "text", "text": "It rains", "citations": CITATIONS},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "w"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [_SEARCHED]},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
    },
    {
        "type": "web_fetch_tool_result",
        "tool_use_id": "srvtoolu_2",
        "content": {
            "type": "web_fetch_result",
            "url": "https://shelf.example",
            "retrieved_at": "today",
            "content": {
                "type": "document",
                "title": "a title",
                "source": {"type": "text", "media_type": "text/plain", "data": "a page"},
                "citations": {"enabled": True},
            },
        },
    },
    {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_3",
        "content": {
            "type": "bash_code_execution_result",
            "stdout": "out",
            "stderr": "err",
            "return_code": 0,
            "content": [{"type": "bash_code_execution_output", "file_id": "file_1"}],
        },
    },
    {
        "type": "text_editor_code_execution_tool_result",
        "tool_use_id": "srvtoolu_4",
        "content": {
            "type": "text_editor_code_execution_view_result",
            "file_type": "text",
            "content": "a line",
            "lines": ["a", "b"],
            "old_start": 1,
        },
    },
    {
        "type": "mcp_tool_use",
        "id": "mcptoolu_1",
        "name": "look",
        "server_name": "shelf",
        "input": {"city": "here"},
    },
    {
        "type": "mcp_tool_result",
        "tool_use_id": "mcptoolu_1",
        "is_error": False,
        "content": [{"type": "text", "text": "found"}],
    },
    {"type": "container_upload", "file_id": "file_1"},
    {"type": "tool_search_tool_result", "content": {"tool_references": [{"tool_name": "look"}]}},
    {"type": "compaction", "content": "in short"},
    {"type": "hologram", "shown": "light", "of_tomorrow": TOMORROW},
    {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "look",
        "caller": {"type": "direct", "tool_id": "srvtoolu_9"},
        "input": {"city": "here", "list": ["a", "b"], "number": 1, "inner": ARGUMENTS},
    },
]
MESSAGE_USAGE: Body = {
    "input_tokens": 1,
    "output_tokens": 2,
    "service_tier": "standard",
    "inference_geo": "us",
    "server_tool_use": {"web_search_requests": 1},
    "iterations": [{"type": "message", "input_tokens": 1}],
}
_ENDED: Body = {
    "stop_reason": "refusal",
    "stop_sequence": "END",
    "stop_details": {"type": "refusal", "category": "cyber", "explanation": "not that"},
    "container": {"id": "container_1", "expires_at": "tomorrow", "skills": [{"skill_id": "s"}]},
}
MESSAGE: Body = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": BLOCKS,
    **_ENDED,
    "context_management": {"applied_edits": [{"type": "clear", "note": "old"}]},
    "usage": MESSAGE_USAGE,
    "of_tomorrow": TOMORROW,
}


def _message_events() -> list[Body]:
    begun = {**MESSAGE, "content": [], "stop_reason": None, "stop_sequence": None}
    events: list[Body] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for index, block in enumerate(BLOCKS):
        at = {"index": index}
        opening, deltas = _opened(block)
        events.append({"type": "content_block_start", **at, "content_block": opening})
        events += [{"type": "content_block_delta", **at, "delta": each} for each in deltas]
        events.append({"type": "content_block_stop", **at})
    return [
        *events,
        {"type": "hologram_shown", "shown": "light", "of_tomorrow": TOMORROW},
        {"type": "message_delta", "delta": _ENDED, "usage": MESSAGE_USAGE},
        {"type": "message_stop", "of_tomorrow": TOMORROW},
    ]


def _opened(block: Body) -> tuple[Body, list[Body]]:
    """How a block of a stream begins, and what then comes of it."""
    if block["type"] == "text":
        cited = [{"type": "citations_delta", "citation": each} for each in block["citations"]]
        said = [{"type": "text_delta", "text": each} for each in ("It ", "rains")]
        return {"type": "text", "text": "", "citations": []}, [*cited, *said]
    if block["type"] == "thinking":
        thought = {"type": "thinking_delta", "thinking": block["thinking"]}
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [thought, signed]
    if block["type"] in {"tool_use", "server_tool_use"}:
        given = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return {**block, "input": {}}, [given]
    if block["type"] == "compaction":
        return {**block, "content": None}, [{"type": "compaction_delta", "content": "in short"}]
    return block, []


ANNOTATIONS: list[Body] = [
    {
        "type": "url_citation",
        "url": "https://shelf.example",
        "title": "a book",
        "start_index": 0,
        "end_index": 2,
    },
    {"type": "file_citation", "file_id": "file_1", "filename": "a book", "index": 0},
    {
        "type": "container_file_citation",
        "container_id": "cntr_1",
        "file_id": "file_1",
        "filename": "plan",
    },
    {"type": "file_path", "file_id": "file_1", "index": 0},
]
ITEMS: list[Body] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "I think"}],
        "content": [{"type": "reasoning_text", "text": "so"}],
        "encrypted_content": "c2VhbGVk",
        "status": "completed",
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "phase": "final",
        "content": [
            {
                "type": "output_text",
                "text": "It rains",
                "annotations": ANNOTATIONS,
                "logprobs": TOKENS,
            },
            {"type": "refusal", "refusal": "not that"},
        ],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "look",
        "namespace": "shelf",
        "arguments": ARGUMENTS,
        "status": "completed",
    },
    {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "call_2",
        "name": "note",
        "input": "words",
    },
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {
            "type": "search",
            "query": "w",
            "queries": ["w"],
            "sources": [{"type": "url", "url": "https://shelf.example"}],
        },
    },
    {
        "type": "web_search_call",
        "id": "ws_2",
        "action": {"type": "find_in_page", "url": "https://shelf.example", "pattern": "p"},
    },
    {
        "type": "file_search_call",
        "id": "fs_1",
        "queries": ["w"],
        "results": [
            {
                "file_id": "file_1",
                "filename": "plan",
                "text": "a page",
                "score": 0.5,
                "attributes": {"owner": "inge"},
            }
        ],
    },
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "container_id": "cntr_1",
        "code": "print()",
        "outputs": [
            {"type": "logs", "logs": "out"},
            {"type": "image", "url": "https://x.example/i"},
        ],
    },
    {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "call_3",
        "action": {"type": "type", "text": "words", "keys": ["A"]},
        "pending_safety_checks": [{"id": "sc_1", "code": "c", "message": "careful"}],
    },
    {"type": "image_generation_call", "id": "ig_1", "result": "aGk=", "revised_prompt": "a cat"},
    {
        "type": "local_shell_call",
        "id": "ls_1",
        "call_id": "call_4",
        "action": {
            "type": "exec",
            "command": ["cat"],
            "env": {"HOME": "h"},
            "working_directory": "d",
            "user": "inge",
        },
    },
    {"type": "shell_call", "id": "sh_1", "call_id": "c", "action": {"commands": ["cat"]}},
    {
        "type": "shell_call_output",
        "id": "so_1",
        "call_id": "c",
        "output": [{"stdout": "out", "stderr": "err", "outcome": {"type": "exit"}}],
    },
    {
        "type": "apply_patch_call",
        "id": "ap_1",
        "call_id": "c",
        "operation": {"type": "update_file", "path": "p", "diff": "+a"},
    },
    {
        "type": "mcp_call",
        "id": "mcp_1",
        "name": "look",
        "server_label": "shelf",
        "arguments": ARGUMENTS,
        "output": "found",
        "error": "none",
        "approval_request_id": "mcpr_1",
    },
    {
        "type": "mcp_list_tools",
        "id": "mcpl_1",
        "server_label": "shelf",
        "tools": [{"name": "look", "description": "looks", "input_schema": {"title": "t"}}],
        "error": "none",
    },
    {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "look",
        "server_label": "shelf",
        "arguments": ARGUMENTS,
    },
    {"type": "tool_search_call", "id": "ts_1", "arguments": {"query": "w"}},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"},
    {"type": "hologram", "id": "h_1", "shown": "light", "of_tomorrow": TOMORROW},
]
RESPONSE: Body = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "m",
    "output": ITEMS,
    "output_text": "It rains",
    "error": {"code": "none", "message": "none"},
    "incomplete_details": {"reason": "none"},
    "previous_response_id": None,
    "conversation": {"id": "conv_1"},
    "prompt": {"id": "pmpt_1", "variables": {"city": "here"}},
    "prompt_cache_key": "morning",
    "safety_identifier": "inge",
    "service_tier": "default",
    "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "note": "counted"},
    "of_tomorrow": TOMORROW,
}
_SEVERAL = {"output_index": 0, "item_id": "x_1", "content_index": 0}
_BESIDE: list[Body] = [
    {
        "type": "response.output_text.annotation.added",
        **_SEVERAL,
        "annotation_index": 0,
        "annotation": ANNOTATIONS[0],
    },
    {"type": "response.code_interpreter_call_code.delta", **_SEVERAL, "delta": "print()"},
    {"type": "response.code_interpreter_call_code.done", **_SEVERAL, "code": "print()"},
    {"type": "response.mcp_call_arguments.delta", **_SEVERAL, "delta": ARGUMENTS},
    {"type": "response.mcp_call_arguments.done", **_SEVERAL, "arguments": ARGUMENTS},
    {"type": "response.custom_tool_call_input.delta", **_SEVERAL, "delta": "words"},
    {"type": "response.custom_tool_call_input.done", **_SEVERAL, "input": "words"},
    {"type": "response.audio.transcript.delta", **_SEVERAL, "delta": "aha"},
    {"type": "response.image_generation_call.partial_image", "partial_image_b64": "aGk="},
    {"type": "response.hologram.shown", **_SEVERAL, "shown": "light", "of_tomorrow": TOMORROW},
]


def _response_events() -> list[Body]:
    begun = {**RESPONSE, "status": "in_progress", "output": [], "output_text": ""}
    events: list[Body] = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(ITEMS):
        at = {"output_index": place, "item_id": item["id"]}
        opening, inner = _added(item, at)
        events.append({"type": "response.output_item.added", **at, "item": opening})
        events += inner
        events.append({"type": "response.output_item.done", **at, "item": item})
    return [*events, *_BESIDE, {"type": "response.completed", "response": RESPONSE}]


def _added(item: Body, at: Body) -> tuple[Body, list[Body]]:
    """How an item of a stream begins, and what then comes of it."""
    kind = item["type"]
    if kind == "message":
        return {**item, "content": []}, _parts(item["content"], at)
    if kind == "reasoning":
        text = item["summary"][0]["text"]
        place = {**at, "summary_index": 0}
        name = "response.reasoning_summary"
        return {"type": kind, "id": item["id"], "summary": []}, [
            {"type": f"{name}_part.added", **place, "part": {"type": "summary_text", "text": ""}},
            {"type": f"{name}_text.delta", **place, "delta": text},
            {"type": f"{name}_text.done", **place, "text": text},
            {"type": f"{name}_part.done", **place, "part": item["summary"][0]},
            {"type": "response.reasoning_text.delta", **at, "delta": "so"},
            {"type": "response.reasoning_text.done", **at, "text": "so"},
        ]
    if kind == "function_call":
        name = "response.function_call_arguments"
        return {**item, "arguments": ""}, [
            {"type": f"{name}.delta", **at, "delta": ARGUMENTS},
            {"type": f"{name}.done", **at, "name": "look", "arguments": ARGUMENTS},
        ]
    return item, []


def _parts(parts: list[Body], at: Body) -> list[Body]:
    place = {**at, "content_index": 0}
    text, refusal = parts
    name = "response.output_text"
    return [
        {"type": "response.content_part.added", **place, "part": {**text, "text": ""}},
        {"type": f"{name}.delta", **place, "delta": "It ", "logprobs": TOKENS, "obfuscation": "x"},
        {"type": f"{name}.delta", **place, "delta": "rains", "logprobs": TOKENS},
        {"type": f"{name}.done", **place, "text": "It rains", "logprobs": TOKENS},
        {"type": "response.content_part.done", **place, "part": text},
        {"type": "response.refusal.delta", **place, "delta": "not that"},
        {"type": "response.refusal.done", **place, "refusal": "not that"},
        {"type": "response.content_part.done", **place, "part": refusal},
    ]


WHOLE: dict[DialectName, Body] = {
    "openai_chat": CHAT,
    "openai_completions": COMPLETION,
    "anthropic_messages": MESSAGE,
    "openai_responses": RESPONSE,
}
STREAMED: dict[DialectName, list[Body]] = {
    "openai_chat": CHAT_STREAM,
    "openai_completions": COMPLETION_STREAM,
    "anthropic_messages": _message_events(),
    "openai_responses": _response_events(),
}
