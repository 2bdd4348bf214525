"""Frames: whole ones come back, broken ones do not, a cut end is no changed middle."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.frames import CONTENT, RECORD, BadFrame, Frame, encode_frame, read_frame


_PAYLOADS = st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=5)


def read_all(data: bytes) -> list[Frame]:
    file, frames, offset = io.BytesIO(data), [], 0
    while (frame := read_frame(file, offset, len(data))) is not None:
        frames.append(frame)
        offset = frame.end_bytes
    return frames


def joined(payloads: list[bytes]) -> bytes:
    return b"".join(encode_frame(RECORD, payload) for payload in payloads)


@given(_PAYLOADS)
def test_frames_come_back_as_they_were_written(payloads: list[bytes]) -> None:
    assert [frame.payload for frame in read_all(joined(payloads))] == payloads


@given(_PAYLOADS, st.data())
def test_every_cut_inside_a_frame_is_seen_as_torn(
    payloads: list[bytes], data: st.DataObject
) -> None:
    whole = joined(payloads)
    ends = {frame.end_bytes for frame in read_all(whole)} | {0}
    cut = data.draw(st.integers(0, len(whole) - 1).filter(lambda at: at not in ends))
    with pytest.raises(BadFrame) as caught:
        read_all(whole[:cut])
    assert caught.value.torn
    assert caught.value.offset_bytes == max(end for end in ends if end < cut)


@given(_PAYLOADS, st.data())
def test_every_flipped_bit_is_seen_at_its_frame(payloads: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(joined(payloads))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadFrame) as caught:
        read_all(bytes(whole))
    offset = 0
    for payload in payloads:
        end = offset + len(encode_frame(RECORD, payload))
        if bit // 8 < end:
            break
        offset = end
    assert caught.value.offset_bytes == offset


def test_a_changed_length_is_not_mistaken_for_a_crash() -> None:
    first, second = bytearray(encode_frame(RECORD, b"one")), encode_frame(RECORD, b"two")
    first[0] = 1
    with pytest.raises(BadFrame) as caught:
        read_all(bytes(first) + second)
    assert not caught.value.torn


@pytest.mark.parametrize("kept_bytes", [0, 5, 13, 20])
def test_pages_that_a_power_cut_left_as_zeros_are_torn(kept_bytes: int) -> None:
    whole = encode_frame(RECORD, b"x" * 50)
    with pytest.raises(BadFrame) as caught:
        read_all(whole[:kept_bytes] + bytes(4096 - kept_bytes))
    assert caught.value.torn == (kept_bytes != 5)


def test_a_last_frame_that_was_changed_is_not_torn_because_zeros_follow() -> None:
    """A device may leave room behind it; only what ends in zeros itself was not written."""
    whole = encode_frame(RECORD, b"x" * 49 + b"y")
    with pytest.raises(BadFrame, match="bytes were changed") as caught:
        read_all(whole.replace(b"xxx", b"zzz", 1) + bytes(4096))
    assert not caught.value.torn


def test_a_frame_larger_than_its_kind_allows_is_refused_unread() -> None:
    frame = encode_frame(RECORD, b"x" * 30_000)
    with pytest.raises(BadFrame, match="no frame of kind 3"):
        read_all(frame)
    assert read_all(encode_frame(CONTENT, b"x" * 30_000))


def test_a_limit_ends_the_file_before_its_end() -> None:
    first, second = encode_frame(RECORD, b"one"), encode_frame(RECORD, b"two")
    file = io.BytesIO(first + second)
    assert read_frame(file, 0, len(first)) is not None
    assert read_frame(file, len(first), len(first)) is None
