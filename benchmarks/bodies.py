"""The requests that a comparison sends: short and long questions, a stream, an agent's turn."""

import json
from typing import Any


WORDS = ("the", "gateway", "routes", "every", "request", "and", "writes", "a", "record", "of", "it")
CHUNKS = 100
AGENT_TOOLS = 20
AGENT_TURNS = 14


def words(length: int, first: int = 0) -> str:
    """A text of that many characters; another first word makes another text."""
    text = " ".join(WORDS[(first + at * 7) % len(WORDS)] for at in range(length // 2))
    return text[:length]


def request_body(prompt_bytes: int, *, stream: bool = False, marker: str = "") -> bytes:
    text = words(prompt_bytes)
    body: dict[str, Any] = {
        "model": "fake-model",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": f"[[fake:{marker}]] {text}" if marker else text},
        ],
        "max_tokens": 256,
    }
    if stream:
        body["stream"] = True
    return _encoded(body)


def agent_body() -> bytes:
    """A late turn of an agent: its tools, and a history of calls with their results."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": words(9000)},
        {"role": "user", "content": words(600, 1)},
    ]
    for turn in range(AGENT_TURNS):
        arguments = json.dumps({"field_0": words(80, turn)})
        call = {"name": f"tool_{turn % AGENT_TOOLS}", "arguments": arguments}
        name = f"call_{turn}"
        messages += [
            {
                "role": "assistant",
                "content": words(200, turn),
                "tool_calls": [{"id": name, "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": name, "content": words(3500, turn)},
        ]
    tools = [_tool(number) for number in range(AGENT_TOOLS)]
    body = {"model": "fake-model", "messages": messages, "tools": tools, "max_tokens": 256}
    return _encoded(body)


def _tool(number: int) -> dict[str, Any]:
    fields = {
        f"field_{at}": {"type": "string", "description": words(120, number + at)} for at in range(8)
    }
    parameters = {"type": "object", "properties": fields, "required": ["field_0"]}
    told = {"name": f"tool_{number}", "description": words(800, number), "parameters": parameters}
    return {"type": "function", "function": told}


def _encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


BODIES: dict[str, bytes] = {
    "low": request_body(1024),
    "small": request_body(1024),
    "large": request_body(64 * 1024),
    "agent": agent_body(),
    "stream": request_body(1024, stream=True, marker=f"chunks={CHUNKS},gap_ms=5"),
    # Slower: what is counted must not fall behind, or its reads hold several chunks.
    "padded": request_body(1024, stream=True, marker=f"chunks={CHUNKS},gap_ms=20,padded=1"),
}
