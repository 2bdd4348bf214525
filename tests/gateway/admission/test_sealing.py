"""Whose reasoning a conversation carries is read from what stands in it, newest first."""

from typing import Any

import msgspec
import pytest

from gateway.admission.sealing import sealed_in
from gateway.conversation import BLOCK_MARK, CALL_MARK, ITEM_MARK
from gateway.dialects.registry import DIALECTS
from gateway.types import DialectName


SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
OF_CALL = {"type": "redacted_thinking", "data": CALL_MARK + "e30="}
FOREIGN = {"type": "redacted_thinking", "data": ITEM_MARK + "e30="}
ITEM = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"}


def sealed(dialect: DialectName, **fields: Any) -> str:
    body = msgspec.json.encode({"model": "auto", **fields})
    return sealed_in(DIALECTS[dialect].decode_request(body, "req_1"))


def messages(*turns: list[dict[str, Any]]) -> dict[str, Any]:
    user = {"role": "user", "content": "Go on."}
    listed = [turn for blocks in turns for turn in (user, {"role": "assistant", "content": blocks})]
    return {"max_tokens": 5, "messages": [*listed, user]}


@pytest.mark.parametrize(
    ("blocks", "dialect"),
    [
        ([SIGNED], "anthropic_messages"),
        ([{"type": "redacted_thinking", "data": "c2VhbGVk"}], "anthropic_messages"),
        ([FOREIGN], "openai_responses"),
        ([OF_CALL], ""),
        ([{"type": "thinking", "thinking": "Hm.", "signature": ""}], ""),
        ([{"type": "text", "text": '"signature" is a word'}], ""),
        ([{"type": "text", "text": "Well.", "signature": "c2lnbmVk"}], ""),
    ],
)
def test_blocks_say_who_signed_them(blocks: list[dict[str, Any]], dialect: str) -> None:
    text = {"type": "text", "text": "Well."}
    assert sealed("anthropic_messages", **messages([*blocks, text])) == dialect


def test_the_newest_counts() -> None:
    assert sealed("anthropic_messages", **messages([SIGNED], [FOREIGN])) == "openai_responses"
    assert sealed("anthropic_messages", **messages([FOREIGN], [SIGNED])) == "anthropic_messages"


def test_items_say_who_encrypted_them() -> None:
    asked = {"role": "user", "content": "Go on."}
    wrapped = {**ITEM, "encrypted_content": BLOCK_MARK + "W10="}
    assert sealed("openai_responses", input=[asked, ITEM, asked]) == "openai_responses"
    assert sealed("openai_responses", input=[asked, wrapped, asked]) == "anthropic_messages"
    assert sealed("openai_responses", input=[asked, {**ITEM, "encrypted_content": ""}, asked]) == ""
    assert sealed("openai_responses", input='"encrypted_content"') == ""
    of_call = {**ITEM, "encrypted_content": CALL_MARK + "e30="}
    assert sealed("openai_responses", input=[asked, of_call, asked]) == ""
    other = {"type": "compaction", "id": "c_1", "encrypted_content": "c2VhbGVk"}
    plain = DIALECTS["openai_responses"].decode_request(b'{"model":"m","input":"Hi"}', "req_1")
    assert sealed_in(msgspec.structs.replace(plain, tree={"input": ["a word", other]})) == ""


def test_chat_completions_carry_none() -> None:
    words = {"role": "user", "content": 'My "signature" and "encrypted_content".'}
    assert sealed("openai_chat", messages=[words]) == ""
