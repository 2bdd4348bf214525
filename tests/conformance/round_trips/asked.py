"""What an upstream was asked, read from the bytes that reached it, in no dialect's words."""

import json
from collections.abc import Iterable
from typing import Any


Json = dict[str, Any]
Asked = dict[str, Any]


def read(path: str, body: Json) -> Asked:
    """By the path; nothing that was not said is in it."""
    reader = _READERS[path.rpartition("/v1/")[2]]
    return {name: value for name, value in reader(body).items() if value not in (None, [], "")}


def _merged(turns: Iterable[tuple[str, list[Any]]]) -> list[list[Any]]:
    """Turns of one role in a row as one: some dialects say as several what others say as one."""
    merged: list[list[Any]] = []
    for role, parts in turns:
        if not parts:
            continue
        if merged and merged[-1][0] == role:
            merged[-1].extend(parts)
        else:
            merged.append([role, *parts])
    return merged


def _picture(url: str) -> list[str]:
    if not url.startswith("data:"):
        return ["picture at", url]
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return ["picture", kind, data]


# Chat completions


def _chat(body: Json) -> Asked:
    messages = body["messages"]
    system = [m for m in messages if m["role"] in {"system", "developer"}]
    rest = [m for m in messages if m["role"] not in {"system", "developer"}]
    form = body.get("response_format") or {}
    schema = form.get("json_schema") or {}
    return {
        "system": [part[1] for m in system for part in _chat_content(m["content"])],
        "turns": _merged((_role(m), _chat_parts(m)) for m in rest),
        "tools": [_tool(t["function"], "parameters") for t in body.get("tools") or ()],
        "choice": _chat_choice(body.get("tool_choice")),
        "alone": True if body.get("parallel_tool_calls") is False else None,
        "schema": schema.get("schema"),
        "strict": schema.get("strict"),
        "json": True if form.get("type") == "json_object" else None,
        "stop": [body["stop"]] if isinstance(body.get("stop"), str) else body.get("stop"),
        "limit": body.get("max_completion_tokens") or body.get("max_tokens"),
        "effort": body.get("reasoning_effort"),
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
        "seed": body.get("seed"),
        "n": body.get("n"),
        "likely": body.get("top_logprobs") if body.get("logprobs") else None,
        "user": body.get("safety_identifier") or body.get("user"),
        "tier": body.get("service_tier"),
    }


def _role(message: Json) -> str:
    return "assistant" if message["role"] == "assistant" else "user"


def _chat_parts(message: Json) -> list[Any]:
    if message["role"] == "tool":
        said = [part[1] for part in _chat_content(message["content"])]
        return [["result", message["tool_call_id"], *said]]
    parts = _chat_content(message.get("content"))
    if message.get("refusal"):
        parts.append(["refusal", message["refusal"]])
    for call in message.get("tool_calls") or ():
        arguments = json.loads(call["function"]["arguments"] or "{}")
        parts.append(["call", call["id"], call["function"]["name"], arguments])
    return parts


def _chat_content(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [["text", content]] if content else []
    parts: list[Any] = []
    for part in content or ():
        if part["type"] == "image_url":
            parts.append(_picture(part["image_url"]["url"]))
        elif part["type"] == "file":
            parts.append(["file", part["file"]["filename"], part["file"]["file_data"]])
        else:
            parts.append([part["type"], part[part["type"]]])
    return parts


def _tool(tool: Json, schema: str) -> list[Any]:
    return [
        tool.get("name") or tool["type"],
        tool.get("description"),
        tool.get(schema),
        bool(tool.get("strict")),
    ]


def _chat_choice(choice: Any) -> Any:
    return choice["function"]["name"] + "!" if isinstance(choice, dict) else choice


# Messages


def _messages(body: Json) -> Asked:
    system = body.get("system") or []
    choice = body.get("tool_choice") or {}
    form = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    thinking = body.get("thinking") or {}
    words = {"any": "required", "auto": "auto", "none": "none"}
    return {
        "system": [system] if isinstance(system, str) else [part["text"] for part in system],
        "turns": _merged((m["role"], _blocks(m["content"])) for m in body["messages"]),
        "tools": [_tool(tool, "input_schema") for tool in body.get("tools") or ()],
        "choice": choice["name"] + "!" if "name" in choice else words.get(choice.get("type", "")),
        "alone": choice.get("disable_parallel_tool_use") or None,
        "schema": form.get("schema"),
        "strict": True if form else None,
        "stop": body.get("stop_sequences"),
        "limit": body.get("max_tokens"),
        "effort": (body.get("output_config") or {}).get("effort"),
        "thinking": thinking.get("type"),
        "budget": thinking.get("budget_tokens"),
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
        "top_k": body.get("top_k"),
        "user": (body.get("metadata") or {}).get("user_id"),
        "tier": body.get("service_tier"),
    }


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [["text", content]]
    return [_block(block) for block in content]


def _block(block: Json) -> list[Any]:
    kind = block["type"]
    if kind == "text":
        return ["text", block["text"]]
    if kind in {"image", "document"}:
        source = block["source"]
        named = [block.get("title")] if kind == "document" else []
        if source["type"] == "url":
            return ["picture at" if kind == "image" else "file at", *named, source["url"]]
        data = f"data:{source['media_type']};base64,{source['data']}"
        return _picture(data) if kind == "image" else ["file", *named, data]
    if kind == "tool_use":
        return ["call", block["id"], block["name"], block["input"]]
    if kind == "tool_result":
        parts = _blocks(block.get("content") or [])
        said = [part[1] if part[0] == "text" else part for part in parts]
        return ["failed" if block.get("is_error") else "result", block["tool_use_id"], *said]
    if kind == "thinking":
        return ["thought", block["thinking"], block["signature"]]
    return [kind, block.get("data")]


# Responses


def _responses(body: Json) -> Asked:
    text = body.get("text") or {}
    form = text.get("format") or {}
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    spoken = [item for item in items if item.get("role") not in {"system", "developer"}]
    said = [item for item in items if item.get("role") in {"system", "developer"}]
    choice = body.get("tool_choice")
    return {
        "system": [
            *([body["instructions"]] if body.get("instructions") else ()),
            *(part[1] for item in said for part in _item_content(item["content"])),
        ],
        "turns": _merged(map(_item, spoken)),
        "tools": [_tool(tool, "parameters") for tool in body.get("tools") or ()],
        "choice": choice["name"] + "!" if isinstance(choice, dict) else choice,
        "alone": True if body.get("parallel_tool_calls") is False else None,
        "schema": form.get("schema"),
        "strict": form.get("strict"),
        "json": True if form.get("type") == "json_object" else None,
        "limit": body.get("max_output_tokens"),
        "effort": (body.get("reasoning") or {}).get("effort"),
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
        "likely": body.get("top_logprobs"),
        "user": body.get("safety_identifier") or body.get("user"),
        "tier": body.get("service_tier"),
    }


def _item(item: Json) -> tuple[str, list[Any]]:
    kind = item.get("type", "message")
    if kind == "message":
        return item["role"], _item_content(item["content"])
    if kind == "function_call":
        arguments = json.loads(item["arguments"])
        return "assistant", [["call", item["call_id"], item["name"], arguments]]
    if kind == "function_call_output":
        parts = _item_content(item["output"])
        said = [part[1] if part[0] == "text" else part for part in parts]
        return "user", [["result", item["call_id"], *said]]
    return "assistant", [["sealed", item.get("encrypted_content")]]


def _item_content(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [["text", content]] if content else []
    parts: list[Any] = []
    for part in content:
        if part["type"] == "input_image":
            parts.append(_picture(part["image_url"]))
        elif part["type"] == "input_file" and part.get("file_url"):
            parts.append(["file at", part.get("filename"), part["file_url"]])
        elif part["type"] == "input_file":
            parts.append(["file", part.get("filename"), part["file_data"]])
        elif part["type"] == "refusal":
            parts.append(["refusal", part["refusal"]])
        else:
            parts.append(["text", part["text"]])
    return parts


_READERS = {"chat/completions": _chat, "messages": _messages, "responses": _responses}
