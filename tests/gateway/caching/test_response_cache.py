"""The response cache: its bounds, whose answers lie in it, and what a caller may ask of it."""

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.caching.kept_streams import NotedStream
from gateway.caching.likeness import Question, vector_of
from gateway.caching.response_cache import (
    CacheTotals,
    KeptReply,
    ResponseCache,
    wishes_of,
)
from gateway.clock import StoppedClock
from gateway.configuration.sections import ResponseCacheSettings
from gateway.dialects.anthropic_messages.dialect import AnthropicMessages
from gateway.dialects.openai_chat.dialect import OpenAIChat
from gateway.dispatch.live_stream import LiveStream
from gateway.ports import Dialect
from gateway.types import Completion, StreamEvent, Usage
from tests.gateway.dialects.samples import target


PLAIN = Completion(b"", "m", "model", "", (), "end", None, Usage())


def reply(length: int = 0, kept_s: float = 0.0) -> KeptReply:
    completion = structs.replace(PLAIN, raw=bytes(length))
    return KeptReply(target("a"), "openai_chat", (), "req_1", kept_s, completion, keeps_s=10)


def cache(total: int, each: int, longest: int = 1 << 20) -> ResponseCache:
    return ResponseCache(ResponseCacheSettings(total, each, longest))


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.binary(max_size=1), st.integers(0, 4_000)),
        max_size=60,
    ),
    st.integers(0, 40_000),
    st.integers(0, 30_000),
)
def test_no_history_of_answers_takes_more_than_the_settings_give(
    kept: list[tuple[str, bytes, int]], total: int, each: int
) -> None:
    found = cache(total, each)
    lying: dict[str, dict[bytes, int]] = {}
    for organisation, key, length in kept:
        # What is too long is not kept, and an older one stays.
        if found.keep(organisation, key, reply(length)):
            lying.setdefault(organisation, {})[key] = reply(length).length_bytes

        there = [
            [key for key in keys if found.find(owner, key, -1.0) is not None]
            for owner, keys in lying.items()
        ]
        held = [
            sum(lying[owner][key] for key in keys) for owner, keys in zip(lying, there, strict=True)
        ]
        assert all(length_bytes <= each for length_bytes in held)
        assert found.totals.length_bytes == sum(held) <= total
        assert found.totals.replies == sum(map(len, there))


def test_who_was_not_asked_for_longest_goes_first() -> None:
    found = cache(1 << 20, 3 * reply().length_bytes)
    for key in (b"1", b"2", b"3"):
        found.keep("acme", key, reply())
    assert found.find("acme", b"1", -1.0) is not None

    found.keep("acme", b"4", reply())

    assert [found.find("acme", key, -1.0) is not None for key in (b"1", b"2", b"3", b"4")] == [
        *(True, False, True, True)
    ]


def test_the_largest_tenant_makes_room_for_a_new_one() -> None:
    found = cache(4 * reply().length_bytes, 4 * reply().length_bytes)
    found.keep("small", b"1", reply())
    for key in (b"1", b"2", b"3"):
        found.keep("large", key, reply())

    found.keep("new", b"1", reply())

    assert found.find("small", b"1", -1.0) is not None
    assert found.find("new", b"1", -1.0) is not None
    assert found.find("large", b"1", -1.0) is None


def test_a_reply_in_the_place_of_another_is_counted_once() -> None:
    kept = cache(total=1 << 20, each=1 << 20)
    for kept_s in range(3):
        assert kept.keep("acme", b"key", reply(100, kept_s=kept_s))
    assert kept.totals == CacheTotals(1, reply(100).length_bytes)
    assert kept.forget_old(12.0) == 0
    assert kept.forget_old(12.5) == 1
    assert kept.totals == CacheTotals(0, 0)


def test_nothing_is_found_under_anothers_name_or_after_its_time() -> None:
    found = cache(1 << 20, 1 << 20)
    found.keep("acme", b"1", reply(kept_s=10.0))

    assert found.find("other", b"1", -1.0) is None
    assert found.find("acme", b"2", -1.0) is None
    assert found.find("acme", b"1", 10.0) is not None
    assert found.find("acme", b"1", 10.1) is None
    assert found.forget_old(20.1) == 1
    assert found.totals.replies == 0


def test_a_question_is_forgotten_with_its_answer_and_no_other_one_is() -> None:
    """Its words would lie in memory for as long as the process lives."""
    found, vector = cache(1 << 20, 3 * reply().length_bytes), vector_of([1.0])
    assert vector is not None
    asked = {name: Question(name[:1], "What?", b"", b"") for name in (b"a1", b"a2", b"b1", b"b2")}
    for kept_s, (name, question) in enumerate(asked.items()):
        found.keep("acme", name, reply(kept_s=kept_s))
        found.likenesses.keep(question, vector, name)
    assert found.find("acme", b"a1", -1.0) is None, "it made room"
    assert found.find("acme", b"b1", 2.0) is not None
    assert (len(found.likenesses), found.forget_old(11.5)) == (4, 1)

    near = [
        key for each in (b"a1", b"b1") for _, key in found.likenesses.nearest(asked[each], vector)
    ]
    assert sorted(near) == [b"b1", b"b2"]
    assert (len(found.likenesses), found.totals.replies) == (2, 2)


def test_a_cache_without_memory_and_one_for_short_answers_keep_nothing_else() -> None:
    assert not cache(1 << 20, 1 << 20, 3_000).keep("acme", b"1", reply(1_000))
    nothing = cache(0, 1 << 20)
    assert not nothing.keep("acme", b"1", reply()), "nor counted as kept"
    assert nothing.totals.replies == 0


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_no_header_of_a_caller_breaks_the_cache(values: list[bytes]) -> None:
    wishes = wishes_of([(b"cache-control", value) for value in values])

    assert wishes.age_s_max >= -1


def test_cache_control_is_read_as_its_standard_says() -> None:
    def asked(*values: bytes) -> tuple[int, bool]:
        wishes = wishes_of([(b"cache-control", value) for value in values])
        return wishes.age_s_max, wishes.may_keep

    for_ever = asked()
    assert for_ever == (10**9, True)
    assert asked(b"Max-Age=5 , no-transform") == (5, True)
    assert asked(b"max-age=5", b"max-age=3") == (3, True)
    assert asked(b"no-cache") == (-1, True)
    assert asked(b"no-store") == (-1, False)
    assert asked(b"min-fresh, 5", b"s-maxage=5") == for_ever
    assert asked(b"max-age=-1") == asked(b"max-age=99999999999") == asked(b"\xff") == for_ever


class Script(LiveStream):
    """A stream of given batches."""

    def __init__(self, batches: list[list[StreamEvent]]) -> None:
        self._batches = batches
        self.candidate, self.source, self.dropped = None, "openai_chat", ()  # type: ignore[assignment]

    async def next_batch(self) -> list[StreamEvent]:
        return self._batches.pop(0) if self._batches else []

    async def close(self, cause: BaseException | None = None) -> None:
        """Nothing is open."""


WORDS = "Hello " * 100
EVENTS = {
    "calls": (
        OpenAIChat(),
        b'data: {"choices":[{"delta":{"tool_calls":[%b]}}]}\n\n'
        % b",".join(
            b'{"index":%d,"id":"c","function":{"name":"f","arguments":"{}"}}' % each
            for each in range(20)
        ),
    ),
    "an emoji": (
        OpenAIChat(),
        f'data: {{"choices":[{{"delta":{{"content":"{WORDS}\U0001f600"}}}}]}}\n\n'.encode(),
    ),
    "comments": (OpenAIChat(), b":\n\n"),
    "chunks": (OpenAIChat(), b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'),
    "messages": (
        AnthropicMessages(),
        b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}\n\n',
    ),
}


@pytest.mark.parametrize(("dialect", "wire"), EVENTS.values(), ids=EVENTS)
def test_a_stream_counts_as_what_it_takes_however_its_events_are(
    dialect: Dialect, wire: bytes
) -> None:
    decoder = dialect.stream_decoder()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        # As they arrive: each event has bytes of its own.
        events = tuple(each for _ in range(2_000) for each in decoder.feed(bytes(bytearray(wire))))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(events) >= 2_000
    kept = KeptReply(target("a"), "openai_chat", (), "req_1", 0.0, None, events)
    assert kept.length_bytes / 2 < after - before < kept.length_bytes


CALLS = [{"id": f"c{each}", "function": {"name": "f", "arguments": "{}"}} for each in range(300)]
MESSAGES: dict[str, dict[str, Any]] = {
    "letters": {"content": WORDS},
    "an emoji": {"content": f"{WORDS}\U0001f600"},
    "thoughts": {"content": "Yes.", "reasoning_content": f"{WORDS}\U0001f600"},
    "calls": {"content": None, "tool_calls": CALLS},
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_an_answer_counts_as_what_it_takes_whatever_it_says(message: dict[str, Any]) -> None:
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    wire = msgspec.json.encode({"id": "c", "model": "m", "choices": [choice]})
    dialect, count = OpenAIChat(), 20
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        answers = [dialect.decode_reply(bytes(bytearray(wire))) for _ in range(count)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    counted = KeptReply(target("a"), "openai_chat", (), "req_1", 0.0, answers[0]).length_bytes
    assert counted / 2 < (after - before) / count < counted


def event(text: bytes, *, is_last: bool = False) -> StreamEvent:
    return StreamEvent(text, (), is_terminal=is_last, is_repeatable=is_last)


async def kept(batches: list[list[StreamEvent]], longest: int = 900) -> list[tuple[bytes, ...]]:
    found: list[tuple[bytes, ...]] = []
    stream = NotedStream(
        Script(batches),
        longest,
        lambda events: found.append(tuple(each.raw for each in events)),
        StoppedClock().monotonic_s,
    )
    while await stream.next_batch():
        pass
    return found


@pytest.mark.anyio
async def test_a_stream_is_kept_once_and_whole() -> None:
    batches = [[event(b"one")], [event(b"two"), event(b"end", is_last=True)]]

    assert await kept(batches) == [(b"one", b"two", b"end")]
    more = [event(b"more", is_last=True)]
    assert await kept([[event(b"one")], [event(b"end", is_last=True)], more]) == [(b"one", b"end")]


@pytest.mark.anyio
async def test_a_stream_that_is_long_cut_or_no_answer_to_give_again_is_not_kept() -> None:
    long, last = [event(b"x" * 600)], [event(b"yy", is_last=True)]

    assert await kept([long, last]) == []
    assert await kept([long]) == []
    withheld = structs.replace(event(b"end", is_last=True), is_repeatable=False)
    assert await kept([[event(b"one")], [withheld]]) == []


@pytest.mark.anyio
async def test_nobody_waits_for_a_stream_that_will_not_be_kept_any_more() -> None:
    """As soon as that is known: its end may be far."""
    ended: list[str] = []
    end = [event(b"end", is_last=True)]

    def keep(_: object) -> None:
        ended.append("kept")

    def over(*, is_answered: bool) -> None:
        ended.append("answered" if is_answered else "cut")

    now_s = StoppedClock().monotonic_s
    batches = [[event(b"one")], [event(b"x" * 600)], end]
    stream = NotedStream(Script(batches), 900, keep, now_s, over)
    await stream.next_batch()
    assert ended == []
    await stream.next_batch()
    assert ended == ["answered"]

    short = NotedStream(Script([end]), 900, keep, now_s, over)
    await short.next_batch()
    assert ended == ["answered", "kept", "answered"], "whoever waited finds it"

    cut = NotedStream(Script([[event(b"one")]]), 900, keep, now_s, over)
    await cut.next_batch()
    await cut.close()
    assert ended[-1] == "cut"


@pytest.mark.anyio
async def test_a_stream_knows_how_long_it_waited_for_its_reader() -> None:
    clock = StoppedClock()

    class Slow(Script):
        async def next_batch(self) -> list[StreamEvent]:
            clock.advance(7.0)
            return await super().next_batch()

    stream = NotedStream(
        Slow([[event(b"one")], [event(b"two")]]), 900, lambda _: None, clock.monotonic_s
    )
    assert stream.held_up_s() == 0.0
    for waited_s in (0.0, 1.5):
        await stream.next_batch()
        assert stream.held_up_s() == waited_s, "what its upstream takes is not its reader's"
        clock.advance(1.0)
        assert stream.held_up_s() == waited_s + 1.0
        clock.advance(0.5)
