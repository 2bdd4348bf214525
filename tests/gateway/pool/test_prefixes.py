"""What is known of each member's cache: nothing false for long, nothing across tenants."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.pool import prefixes
from gateway.pool.prefixes import BLOCK_BYTES, KEPT_S, UNTOLD_S, PrefixIndex, chained, prompt_of


def prompt(text: str, tenant: bytes = b"acme") -> prefixes.Prompt:
    body = b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % text.encode()
    return prompt_of(tenant, body, 4.0)


def test_a_longer_conversation_shares_the_blocks_of_its_beginning() -> None:
    history = "the same beginning " * 200
    first, second = prompt(history), prompt(history + "and then more")
    common = len(history) // BLOCK_BYTES
    assert first.blocks[:common] == second.blocks[:common]
    assert first.fingerprint != second.fingerprint
    assert prompt(history, b"another").blocks[0] != first.blocks[0]
    assert prompt("x" + history).blocks[0] != first.blocks[0]


def test_what_stands_before_the_messages_does_not_matter() -> None:
    messages = b'"messages":[{"role":"user","content":"' + b"words " * 300 + b'"}]}'
    bodies = (b'{"max_tokens":5,' + messages, b'{"temperature":0.25,"max_tokens":500,' + messages)
    assert len({prompt_of(b"t", body, 4.0).blocks for body in bodies}) == 1


def test_what_we_sent_is_believed_for_a_while_and_per_member() -> None:
    index = PrefixIndex(["a", "b", "c"])
    blocks = chained(b"", [b"1", b"2", b"3"])
    index.sent("a", blocks[:2], 0.0)
    index.sent("b", blocks, 60.0)
    assert index.depths(blocks, 100.0) == [2, 3, 0]
    assert index.depths(blocks, KEPT_S + 1.0) == [0, 3, 0]
    assert index.depths(blocks, KEPT_S + 61.0) == [0, 0, 0]
    assert index.depths((), 0.0) == [0, 0, 0]


def test_a_member_that_tells_what_it_holds_is_believed_instead() -> None:
    index = PrefixIndex(["a", "b"])
    blocks = chained(b"", [b"1", b"2", b"3"])
    index.sent("a", blocks, 0.0)
    index.follow("a", "events")
    assert (index.precision("a"), index.depths(blocks, 0.0)) == ("events", [0, 0])
    index.sent("a", blocks, 0.0)
    assert index.depths(blocks, 0.0) == [3, 0], "until its own word has come"
    assert index.depths(blocks, UNTOLD_S + 1.0) == [0, 0]
    index.stored("a", blocks)
    index.removed("a", [*blocks[2:], 12345])
    assert index.depths(blocks, 10**9) == [2, 0]


def test_what_a_member_told_outlives_what_we_believed_of_it() -> None:
    index = PrefixIndex(["a", "b"])
    blocks = chained(b"", [b"1", b"2"])
    index.follow("a", "events")
    index.sent("a", blocks, 0.0)
    index.stored("a", blocks[:1])
    index.sent("b", blocks, 0.0)
    assert index.depths(blocks, UNTOLD_S + 1.0) == [1, 2]
    index.cleared("a")
    assert index.depths(blocks, UNTOLD_S + 1.0) == [0, 2]
    index.removed("a", blocks)
    kept = prefixes.BLOCKS_PER_MEMBER_MAX
    index.stored("a", range(kept + 10))
    assert index.depths([5], 0.0) == [0, 0]
    assert index.depths([kept], 0.0) == [1, 0]


def test_a_member_keeps_a_bounded_number_of_blocks() -> None:
    kept = prefixes.BLOCKS_PER_MEMBER_MAX
    index = PrefixIndex(["a"])
    blocks = list(range(kept + 10))
    index.sent("a", blocks, 0.0)
    assert index.depths(blocks, 0.0) == [kept]


@given(
    held=st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=3, max_size=3),
    asked=st.lists(st.integers(0, 5), max_size=6, unique=True),
)
def test_depths_are_those_of_an_obvious_count(held: list[list[int]], asked: list[int]) -> None:
    index = PrefixIndex(["a", "b", "c"])
    for name, blocks in zip("abc", held, strict=True):
        index.sent(name, blocks, 0.0)

    def obvious(blocks: list[int]) -> int:
        return next((at for at, block in enumerate(asked) if block not in blocks), len(asked))

    assert index.depths(asked, 1.0) == [obvious(blocks) for blocks in held]
