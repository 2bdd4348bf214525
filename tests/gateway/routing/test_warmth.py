"""Conversations are known again by their beginnings, to their own key, for a while."""

from typing import Any

import msgspec

from gateway.dialects.registry import DIALECTS
from gateway.identity import accounts_of
from gateway.routing.warmth import COLD, CONVERSATIONS_MAX, KEPT_S, MESSAGES_MAX, Warm, Warmth
from gateway.types import ChatRequest, Principal, Usage


ME = Principal("k", "", "acme", "lab", "x", (), None, accounts_of("acme", "lab", "x", "k"))
FIRST = [{"role": "user", "content": "Read this long text."}]
SECOND = [*FIRST, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "And?"}]


def asked(messages: list[dict[str, Any]], **more: Any) -> ChatRequest:
    body = {"model": "auto", "messages": messages, **more}
    return DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")


def test_a_conversation_is_known_by_its_beginning_for_a_while_and_to_its_own_key() -> None:
    warmth = Warmth()
    warmth.answered(ME, asked(FIRST), "claude", Usage(input_tokens=900), 0.0)
    assert warmth.find(ME, asked(SECOND), 1.0) == Warm("claude", 900)
    assert warmth.find(ME, asked(SECOND), KEPT_S) == COLD
    for other in (
        msgspec.structs.replace(ME, key_id="other"),
        msgspec.structs.replace(ME, organisation="other"),
    ):
        assert warmth.find(other, asked(SECOND), 1.0) == COLD
    changed = [{"role": "user", "content": "Read this other text."}, *SECOND[1:]]
    assert warmth.find(ME, asked(changed), 1.0) == COLD
    assert warmth.find(ME, asked(SECOND, tools=[]), 1.0) == COLD


def test_the_longest_beginning_counts_and_memory_is_bounded() -> None:
    warmth = Warmth()
    warmth.answered(ME, asked(FIRST), "claude", Usage(input_tokens=900), 0.0)
    warmth.answered(ME, asked(SECOND), "gpt", Usage(input_tokens=950), 0.0)
    assert warmth.find(ME, asked([*SECOND, *FIRST]), 1.0) == Warm("gpt", 950)
    for number in range(CONVERSATIONS_MAX + 1):
        text = {"role": "user", "content": str(number)}
        warmth.answered(ME, asked([text]), "gpt", Usage(), 0.0)
    assert len(warmth._known) == CONVERSATIONS_MAX
    assert warmth.find(ME, asked(SECOND), 1.0) == COLD
    endless = asked(FIRST * (MESSAGES_MAX + 1))
    warmth.answered(ME, endless, "gpt", Usage(), 0.0)
    assert warmth.find(ME, endless, 1.0) == COLD


def test_a_conversation_that_goes_on_outlives_those_that_were_left() -> None:
    warmth = Warmth()
    for number in range(CONVERSATIONS_MAX):
        if number == 2:
            warmth.answered(ME, asked(FIRST), "gpt", Usage(input_tokens=950), 1.0)
        text = {"role": "user", "content": str(number)} if number else FIRST[0]
        warmth.answered(ME, asked([text]), "claude", Usage(input_tokens=number), 0.0)
    left = {"role": "user", "content": "1"}
    assert warmth.find(ME, asked([left]), 1.0) == Warm("claude", 1)
    warmth.answered(ME, asked(SECOND), "claude", Usage(), 1.0)
    assert warmth.find(ME, asked([left]), 1.0) == COLD
    assert warmth.find(ME, asked(FIRST), 1.0) == Warm("gpt", 950)


def test_the_most_messages_count_and_one_text_is_no_conversation() -> None:
    warmth = Warmth()
    most = asked(FIRST * MESSAGES_MAX)
    warmth.answered(ME, most, "gpt", Usage(input_tokens=1), 0.0)
    assert warmth.find(ME, most, 1.0) == Warm("gpt", 1)
    said = DIALECTS["openai_responses"].decode_request(b'{"model":"auto","input":"aa"}', "req_1")
    warmth.answered(ME, said, "gpt", Usage(input_tokens=1), 0.0)
    assert warmth.find(ME, said, 1.0) == COLD
