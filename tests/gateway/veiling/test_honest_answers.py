"""Where nothing is sensitive, masking leaves an answer as it came: ids, seals and figures too."""

import base64
import json
import random
import uuid
from typing import Any

import pytest

from classifiers.pii.labels import DataClass
from tests.classifiers import samples
from tests.faults.full_answers import STREAMED
from tests.faults.test_every_answer import PIECES, stream_of, strings_told
from tests.gateway.veiling.test_asides import lifted
from tests.gateway.veiling.test_output_scan import output_scan


RANDOM = random.Random(23)
HEX = "0123456789abcdef"
CLASSES = (DataClass.S2, DataClass.S3, DataClass.S4)


def letters(prefix: str, length: int, alphabet: str = "") -> str:
    return prefix + (
        samples.token(RANDOM, length, alphabet) if alphabet else samples.token(RANDOM, length)
    )


def sealed(length_bytes: int) -> str:
    return base64.b64encode(RANDOM.randbytes(length_bytes)).decode()


def chat() -> dict[str, Any]:
    call: dict[str, Any] = {"id": letters("call_", 24), "type": "function"}
    call["function"] = {"name": "get_weather_v2", "arguments": '{"n": 1234567}'}
    return {
        "id": letters("chatcmpl-", 29),
        "object": "chat.completion",
        "created": 1_764_250_000 + RANDOM.randrange(10**6),
        "model": "gpt-6.2-sol-2026-08-07",
        "system_fingerprint": letters("fp_", 10, HEX),
        "choices": [{"index": 0, "message": {"content": "It rains.", "tool_calls": [call]}}],
        "usage": {"prompt_tokens": 1_234_567, "total_tokens": 4_111_111, "total_time": 1.2345678},
    }


def message() -> dict[str, Any]:
    found = {"type": "web_search_result", "title": "Rivers", "url": "https://a.example/rivers"}
    found |= {"encrypted_content": sealed(400), "page_age": "April 30, 2026"}
    return {
        "id": letters("msg_01", 22),
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "I think", "signature": sealed(300)},
            {"type": "redacted_thinking", "data": sealed(300)},
            {"type": "web_search_tool_result", "tool_use_id": letters("srvtoolu_01", 22)},
            {"type": "web_search_tool_result", "content": [found]},
            {"type": "tool_use", "id": letters("toolu_01", 22), "name": "look", "input": {}},
        ],
        "container": {
            "id": letters("container_01", 22),
            "expires_at": "2026-05-23T21:13:31.749448Z",
        },
    }


def response() -> dict[str, Any]:
    quoted = {"type": "container_file_citation", "container_id": letters("cntr_", 48, HEX)}
    quoted |= {"file_id": letters("cfile_", 32, HEX), "filename": "plot.png"}
    part = {"type": "output_text", "text": "Under", "annotations": [quoted], "logprobs": []}
    return {
        "id": letters("resp_", 48, HEX),
        "object": "response",
        "created_at": 1_756_315_696.0,
        "output": [
            {"id": letters("rs_", 48, HEX), "type": "reasoning", "encrypted_content": sealed(500)},
            {"id": str(uuid.UUID(int=RANDOM.getrandbits(128), version=4)), "type": "mcp_call"},
            {"id": letters("msg_", 48, HEX), "type": "message", "content": [part]},
        ],
        "prompt_cache_key": letters("tenant-", 30),
        "top_logprobs": 0,
    }


@pytest.mark.parametrize("least", CLASSES)
@pytest.mark.parametrize("made", [chat, message, response])
def test_an_honest_answer_keeps_every_byte(made: Any, least: DataClass) -> None:
    for _ in range(20):
        raw = json.dumps(made(), indent=1).encode()
        assert output_scan(least).unveiled(raw) == raw


@pytest.mark.parametrize("source", ["anthropic_messages", "openai_responses"])
def test_an_honest_stream_says_the_same(source: Any) -> None:
    raw = stream_of(source, STREAMED[source])
    told = b"".join(each.raw for each in lifted(source, output_scan().lifted(), raw))
    said, known = strings_told(told.decode()), strings_told(b"".join(raw).decode())
    words = {place for place in said if place[-1] in PIECES}
    assert len(words) > 5
    assert {place: said[place] for place in words} == {place: known[place] for place in words}
