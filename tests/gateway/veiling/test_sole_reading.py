"""What is masked in one reading of an answer stands in no other: neither in twins nor in lines."""

import msgspec
import pytest

from gateway.errors import UpstreamMalformed
from gateway.veiling.sole_reading import event_alone, read_solely
from tests.gateway.veiling.test_output_scan import CARD, output_scan


PLAIN = b'{ "a": [1.0, "\\u00e9"],\n "b": {} }'


@pytest.mark.parametrize(
    "frame",
    [b"%b", b'{"choices": [%b]}', b'[{"a": 1}, %b]'],
    ids=["alone", "in an answer", "in a list"],
)
@pytest.mark.parametrize(
    "twins",
    [b'{"content": "%b", "content": "fine"}', b'{"content": "%b", "\\u0063ontent": "fine"}'],
    ids=["written alike", "written in two ways"],
)
def test_of_two_members_of_one_name_only_the_one_that_was_read_is_told(
    frame: bytes, twins: bytes
) -> None:
    raw = frame % (twins % CARD.encode())
    tree, told = read_solely(raw)
    assert CARD.encode() not in told
    assert msgspec.json.decode(told) == tree
    assert CARD.encode() not in output_scan().unveiled(raw)
    assert CARD.encode() not in event_alone(b"data: " + raw + b"\n\n")


def test_what_reads_alike_to_all_stays_byte_for_byte() -> None:
    assert read_solely(PLAIN) == (msgspec.json.decode(PLAIN), PLAIN)
    event = b"event: message_delta\ndata: " + PLAIN.replace(b"\n", b"") + b"\n\n"
    assert event_alone(event) is event
    for raw in (b"", b"data: [DONE]\n\n"):
        assert event_alone(raw) is raw


@pytest.mark.parametrize("raw", [b"", b"{", b'{"a": "\xff"}', b"[" * 50_000 + b"]" * 50_000])
def test_what_cannot_be_read_is_not_told(raw: bytes) -> None:
    with pytest.raises(UpstreamMalformed):
        read_solely(raw)
    with pytest.raises(UpstreamMalformed):
        event_alone(b"data: " + raw + b"\n\n")


@pytest.mark.parametrize(
    "line",
    [b"id: 4111", b": 4111", b"retry: 4111", b"data4111", b"event: 4111", b"event: a b", b"4111"],
)
def test_of_an_event_nothing_is_told_but_its_name_and_its_data(line: bytes) -> None:
    assert event_alone(line + b'\ndata: {"a":1}\n\n') == b'data: {"a":1}\n\n'
    assert event_alone(line + b"\n\n") == b":\n\n"
    assert event_alone(b'data: {"a":1}\r\n' + line + b"\r\n\r\n") == b'data: {"a":1}\n\n'
