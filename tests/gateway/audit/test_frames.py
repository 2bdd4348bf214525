"""Frames: whole ones come back, broken ones do not, a cut end is no changed middle."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.frames import (
    CONTENT,
    HEAD_BYTES,
    RECORD,
    BadFrame,
    Frame,
    encode_frame,
    read_frame,
)


_LONG_PAYLOADS = st.lists(
    st.binary(min_size=1, max_size=900).map(lambda raw: raw.replace(b"\x00", b"z") + b"}"),
    min_size=1,
    max_size=4,
)
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
def test_a_frame_whose_only_sector_is_there_was_not_left_so_by_a_power_cut(kept_bytes: int) -> None:
    """With nothing of it there, no frame was begun: whoever reads a file stops before its zeros."""
    whole = encode_frame(RECORD, b"x" * 50)
    with pytest.raises(BadFrame, match=r"was changed|were changed") as caught:
        read_all(whole[:kept_bytes] + bytes(4096 - kept_bytes))
    assert not caught.value.torn
    assert caught.value.may_be_unsynced == (kept_bytes == 0)


def read_until_broken(left: bytes, at: int) -> tuple[list[bytes], BadFrame | None]:
    """Payloads from a place on, as far as they are whole, and what ended them."""
    file, found = io.BytesIO(left), list[bytes]()
    file.seek(at)
    try:
        while frame := read_frame(file, at, len(left.rstrip(b"\x00"))):
            found.append(frame.payload)
            at = frame.end_bytes
    except BadFrame as error:
        return found, error
    return found, None


@given(st.integers(0, 1023), _LONG_PAYLOADS, st.data())
def test_whichever_sectors_a_power_cut_keeps_what_is_lost_may_be_unsynced(
    at: int, payloads: list[bytes], data: st.DataObject
) -> None:
    """Frames that a write puts over zeros behind `at` bytes that were synced before."""
    written = bytes(at) + joined(payloads)
    sectors = range(at // 512, -(-len(written) // 512))
    lost = data.draw(st.sets(st.sampled_from(sectors), min_size=1))
    left = bytearray(written)
    for sector in lost:
        begin, end = max(at, sector * 512), min(len(left), sector * 512 + 512)
        left[begin:end] = bytes(end - begin)
    found, broken = read_until_broken(bytes(left), at)
    assert broken is None or broken.may_be_unsynced
    assert found == payloads[: len(found)]
    assert (len(found) == len(payloads)) == (bytes(left) == written)


@given(st.integers(4, 508), st.data())
def test_a_frame_of_which_every_sector_is_there_was_changed_by_somebody(
    at: int, data: st.DataObject
) -> None:
    payload = data.draw(st.binary(min_size=1, max_size=1200)).replace(b"\x00", b"z")
    raw = bytearray(encode_frame(RECORD, payload))
    place = data.draw(st.integers(13, len(raw) - 1))
    raw[place] ^= 0x40 if raw[place] == 0x80 else 0x80
    file = io.BytesIO(bytes(at) + raw)
    file.seek(at)
    with pytest.raises(BadFrame, match="bytes were changed") as caught:
        read_frame(file, at, at + len(raw))
    assert not caught.value.torn
    assert not caught.value.may_be_unsynced


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


@pytest.mark.parametrize("lacking_bytes", [1, HEAD_BYTES, HEAD_BYTES + 2])
def test_a_frame_that_crosses_the_limit_is_cut_off_though_the_file_has_all_of_it(
    lacking_bytes: int,
) -> None:
    whole = encode_frame(RECORD, b"one") + encode_frame(RECORD, b"two")
    with pytest.raises(BadFrame, match="cut off") as caught:
        read_frame(io.BytesIO(whole), 0, len(whole) // 2 - lacking_bytes)
    assert caught.value.torn
    assert caught.value.may_be_unsynced


def test_a_frame_of_no_known_kind_is_none_also_with_nothing_in_it() -> None:
    with pytest.raises(BadFrame, match="no frame of kind 9"):
        read_all(encode_frame(9, b""))
