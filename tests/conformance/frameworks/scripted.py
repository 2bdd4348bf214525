"""A vendor that knows about one bridge, and answers what a framework asks for in its form."""

import json
from typing import Any

import msgspec

from tests.conformance.round_trips.said import Call, Said, Speaking, answer_saying
from tests.upstreams import Answer, RecordedRequest


FACT = {"age": 120, "name": "Old Bridge"}
WRONG = {"age": "many years", "name": "Old Bridge"}
BUSY = b'{"error":{"message":"Busy.","type":"server_error","param":null,"code":null}}'
TEXT = "It is 120 years old."
RESULTS = ('"tool_result"', '"function_call_output"', '"role":"tool"', '"role": "tool"')


class ScriptedVendor(Speaking):
    """Its requests' paths begin with the name of a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Said | None] = []

    def answer_to(self, request: RecordedRequest) -> Answer:
        shape = request.path.split("/")[1]
        is_first = all(call.path != request.path for call in self.calls[:-1])
        said = None
        if not request.path.endswith("/embeddings") and not ("retried" in shape and is_first):
            said = said_to(
                shape, request.json, WRONG if "corrected" in shape and is_first else FACT
            )
        self.told.append(said)
        if said is not None:
            return answer_saying(said, request)
        if request.path.endswith("/embeddings"):
            return Answer(body=vectors(request.json))
        return Answer(status=503, body=BUSY, headers=(("retry-after-ms", "1"),))


def said_to(shape: str, body: dict[str, Any], fact: dict[str, Any]) -> Said:
    """What is asked for: calls of a tool, then an answer, in JSON where JSON is wanted."""
    thought, seal = ("Hm.", "c2VhbGVk") if "thinking" in shape else ("", "")
    names = [name for tool in body.get("tools") or () if (name := _name(tool))]
    is_answered = any(mark in json.dumps(body) for mark in RESULTS)
    asked = [name for name in names if name == "age_of" and not is_answered]
    if asked:
        calls = tuple(
            Call("age_of", {"name": bridge}, f"call_{number}")
            for number, bridge in enumerate(
                ("Old Bridge", "New Bridge")[: 1 + ("parallel" in shape)]
            )
        )
        return Said(calls=calls, thought=thought, seal=seal, end="tool")
    if outputs := [name for name in names if name != "age_of"]:
        return Said(calls=(Call(outputs[0], fact),), end="tool")
    if "json" in shape.lower() or '"json_schema"' in json.dumps(body):
        return Said(text=json.dumps(fact))
    return Said(text=TEXT, thought=thought, seal=seal)


def _name(tool: dict[str, Any]) -> str:
    return str(tool.get("name") or tool.get("function", {}).get("name") or "")


def vectors(body: dict[str, Any]) -> bytes:
    asked = body["input"]
    count = len(asked) if isinstance(asked, list) else 1
    data = [{"object": "embedding", "index": at, "embedding": [0.5, -0.25]} for at in range(count)]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return msgspec.json.encode({"object": "list", "data": data, "model": "m", "usage": usage})
