"""Vectors are those of the texts that were sent, and nobody is left to guess whose each is."""

from typing import Any

import msgspec
import pytest

from gateway.dialects.openai_embeddings import FIGURES_MAX
from gateway.dialects.registry import DIALECTS
from gateway.errors import UpstreamMalformed


EMBEDDINGS = DIALECTS["openai_embeddings"]


def answered(*indices: int | None, encoding: str = "float") -> list[dict[str, Any]]:
    """What a caller gets where an upstream numbers its vectors so; with None it numbers none."""
    told = [{} if at is None else {"index": at} for at in indices]
    data = [{"embedding": [0.5, 1.0], "object": "embedding", **each} for each in told]
    asked = {"model": "m", "input": ["a"] * len(indices), "encoding_format": encoding}
    request = EMBEDDINGS.decode_request(msgspec.json.encode(asked), "req_1")
    reply = EMBEDDINGS.decode_reply(msgspec.json.encode({"data": data, "usage": {}}))
    given = msgspec.json.decode(EMBEDDINGS.encode_reply(reply, EMBEDDINGS.name, request))
    found: list[dict[str, Any]] = given["data"]
    return found


@pytest.mark.parametrize("indices", [(0, 0), (0, 2), (1, 2), (0, -1), (0, None), (1,)])
def test_vectors_that_may_be_of_other_texts_are_no_answer(indices: tuple[int | None, ...]) -> None:
    with pytest.raises(UpstreamMalformed):
        answered(*indices)


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_each_vector_keeps_its_number(encoding: str) -> None:
    assert [each["index"] for each in answered(1, 0, 2, encoding=encoding)] == [1, 0, 2]


def test_vectors_without_numbers_are_in_the_order_of_their_texts() -> None:
    assert [each["index"] for each in answered(None, None, encoding="base64")] == [0, 1]


def test_a_vector_of_more_figures_than_any_has_is_not_read() -> None:
    """Each is decoded by itself, and so many at most in one go."""
    few = msgspec.json.encode({"data": [{"embedding": [0.5] * FIGURES_MAX}]})
    assert EMBEDDINGS.decode_reply(few).vectors == 1
    with pytest.raises(UpstreamMalformed):
        EMBEDDINGS.decode_reply(few.replace(b"[0.5", b"[0.5,0.5", 1))


@pytest.mark.parametrize("embedding", [b"{}", b'["a"]', b"1", b"null", b"[1"])
def test_what_is_no_vector_is_no_answer(embedding: bytes) -> None:
    with pytest.raises(UpstreamMalformed):
        EMBEDDINGS.decode_reply(b'{"data":[{"embedding":%b}]}' % embedding)
