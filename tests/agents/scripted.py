"""Upstreams that have an agent read a file, and say what it read: each in its own dialect."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tests.running_gateway import Upstreams
from tests.upstream_responses import openai_response
from tests.upstreams import Answer, RecordedRequest, RecordingUpstream


CALL_ID = "call_0123456789abcdef"
SECRET = re.compile(r"kingfisher-\d{4}")
"""What stands in the file, and nowhere else."""

Json = dict[str, Any]


def hands(path: str) -> Mapping[str, Json | str]:
    """What agents call the tool that reads a file → what it is to be given; best first."""
    return {
        "Read": {"file_path": path},
        "read": {"filePath": path},
        "exec_command": {"cmd": f"cat {path}"},
        "shell_command": {"command": f"cat {path}"},
        "functions__exec": f'text((await tools.exec_command({{cmd: "cat {path}"}})).output)',
    }


class ScriptedUpstream(RecordingUpstream):
    """Asks who offers tools to read the file, and tells who has read it what stood there."""

    def __init__(self) -> None:
        super().__init__()
        self.path = ""

    def answer_to(self, request: RecordedRequest) -> Answer:
        if CALL_ID in request.body.decode():
            found = SECRET.search(request.body.decode())
            return Answer(text=f"The file says {found.group() if found else 'nothing'}.")
        offered = offered_by(request.json)
        for name, given in hands(self.path).items():
            if name in offered:
                return calling(request, name, given, offered[name])
        return Answer(text="Reading a file")

    @property
    def turns(self) -> list[RecordedRequest]:
        """The calls in which tools were offered: agents ask for titles and summaries besides."""
        return [call for call in self.calls if offered_by(call.json)]


class ScriptedUpstreams(Upstreams):
    def __init__(self) -> None:
        super().__init__()
        self.scripted = tuple(ScriptedUpstream() for _ in range(3))
        self.engine, self.anthropic, self.openai = self.scripted

    def forget(self, path: str) -> None:
        for upstream in self.scripted:
            upstream.forget()
            upstream.path = path


def offered_by(body: Mapping[str, Any]) -> dict[str, Json]:
    """Names of the tools that a request offers, with their namespaces → what a call of each has."""
    listed = [(tool, "") for tool in body.get("tools") or ()]
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        listed += ((tool, "") for tool in item.get("tools") or ())
    offered: dict[str, Json] = {}
    for tool, space in listed:
        # Namespaces stand in the list before what is in them.
        listed += ((inner, tool["name"]) for inner in tool.get("tools") or ())
        named = tool.get("function") or tool
        if "name" in named and "tools" not in tool:
            is_custom = tool.get("type") == "custom"
            call: Json = {"type": "custom_tool_call" if is_custom else "function_call"}
            call |= {"name": named["name"]} | ({"namespace": space} if space else {})
            offered[f"{space}__{named['name']}" if space else named["name"]] = call
    return offered


def calling(request: RecordedRequest, name: str, given: Json | str, call: Json) -> Answer:
    """A streamed call of one tool, in the dialect that was asked in."""
    if isinstance(given, str) and call["type"] == "function_call":
        given = {"input": given}
    text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    if request.path.endswith("/messages"):
        return Answer(events=_messages(name, text))
    if request.path.endswith("/responses"):
        return Answer(events=_responses(call, text))
    return Answer(events=_chat(name, text))


def _events(trees: list[Json]) -> tuple[bytes, ...]:
    return tuple(
        b"event: %b\ndata: %b\n\n" % (tree["type"].encode(), msgspec.json.encode(tree))
        for tree in trees
    )


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def _messages(name: str, text: str) -> tuple[bytes, ...]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 11, "output_tokens": 1}
    begun = message | {"stop_reason": None, "stop_sequence": None, "usage": usage}
    use = {"type": "tool_use", "id": CALL_ID, "name": name, "input": {}}
    ending = {"stop_reason": "tool_use", "stop_sequence": None}
    return _events(
        [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": use},
            *(
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "input_json_delta", "partial_json": piece},
                }
                for piece in _halves(text)
            ),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]
    )


def _chat(name: str, text: str) -> tuple[bytes, ...]:
    shell = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: Json, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return b"data: %b\n\n" % msgspec.json.encode(shell | {"choices": [choice]})

    begun = {"index": 0, "id": CALL_ID, "type": "function"}
    named = begun | {"function": {"name": name, "arguments": ""}}
    usage = {"prompt_tokens": 11, "completion_tokens": 9, "total_tokens": 20}
    counted = msgspec.json.encode(shell | {"choices": [], "usage": usage})
    return (
        chunk({"role": "assistant", "content": None}),
        chunk({"tool_calls": [named]}),
        *(
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            for piece in _halves(text)
        ),
        chunk({}, "tool_calls"),
        b"data: %b\n\n" % counted,
        b"data: [DONE]\n\n",
    )


def _responses(call: Json, text: str) -> tuple[bytes, ...]:
    whole = openai_response(Answer(), "m")
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    is_custom = call["type"] == "custom_tool_call"
    field = "input" if is_custom else "arguments"
    said = "response.custom_tool_call_input" if is_custom else "response.function_call_arguments"
    item = call | {"id": "call_item_1", "call_id": CALL_ID, field: ""}
    place = {"output_index": 0, "item_id": "call_item_1"}
    done = item | {field: text, "status": "completed"}
    trees: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *({"type": f"{said}.delta", **place, "delta": piece} for piece in _halves(text)),
        {"type": f"{said}.done", **place, field: text},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": whole | {"output": [done]}},
    ]
    return _events([tree | {"sequence_number": number} for number, tree in enumerate(trees)])
