"""Checks whether bytes are a picture, font, module or document from the first byte to the last.

A file's beginning is easily written in front of anything, so it proves nothing: lengths, checksums
and parts have to be those of such a file, up to its end. Its pixels, outlines or code are not read;
every other part may hold text, and `media` reads it.
"""

# ruff: noqa: PLR2004 - the numbers here are those of the published formats.

import re
import zlib
from collections.abc import Callable, Iterator
from struct import error as struct_error
from struct import unpack_from
from typing import Final


INFLATED_MAX: Final = 1 << 16
"""How many bytes of one stream are inflated; the rest is then believed."""
_NOTHING: Final = -1
_PNG_HEAD: Final = b"\x89PNG\r\n\x1a\n"
_PIXELS: Final = b"IDAT"
_SAMPLES: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""The number of values per pixel for each colour type of PNG."""
_LEAST_TORN: Final = 18
"""So many bytes of a torn stream must inflate: random ones hardly ever do."""


def is_png(data: bytes) -> bool:
    """Every chunk's checksum, and as many pixels as the header says; may be torn in those."""
    at, pixels, ends = 8, [], False
    while at + 8 <= len(data) and not ends:
        (length,), kind = _read(">I", data, at), data[at + 4 : at + 8]
        end = at + 12 + length
        if end > len(data):
            pixels.append(data[at + 8 :])
            return kind == _PIXELS and _inflates(b"".join(pixels))
        if zlib.crc32(data[at + 4 : end - 4]) != _read(">I", data, end - 4)[0]:
            return False
        if kind == _PIXELS:
            pixels.append(data[at + 8 : end - 4])
        at, ends = end, kind == b"IEND"
    return ends and at == len(data) and _are_rows(data, b"".join(pixels))


def _are_rows(data: bytes, pixels: bytes) -> bool:
    width, height, depth, kind, _, _, interlaced = _read(">IIBBBBB", data, 16)
    stream = zlib.decompressobj()
    try:
        rows = stream.decompress(pixels, INFLATED_MAX)
    except zlib.error:
        return False
    if stream.unconsumed_tail:
        return True
    said = height * (1 + (width * depth * _SAMPLES.get(kind, 0) + 7) // 8)
    return stream.eof and not stream.unused_data and (bool(interlaced) or len(rows) == said)


def _inflates(torn: bytes) -> bool:
    """Whether the data begins like a compressed stream."""
    stream = zlib.decompressobj()
    try:
        return bool(stream.decompress(torn, INFLATED_MAX)) and len(torn) >= _LEAST_TORN
    except zlib.error:
        return False


def is_jpeg(data: bytes) -> bool:
    """Segments up to its picture, as much of it as its size takes, and the end mark."""
    at, blocks, kinds = 2, 0, set()
    while at + 4 <= len(data) and data[at] == 0xFF:
        kind, (length,) = data[at + 1], _read(">H", data, at + 2)
        kinds.add(kind)
        if kind in {0xC0, 0xC1, 0xC2} and at + 9 <= len(data):
            height, width = _read(">HH", data, at + 5)
            blocks = -(-width // 8) * -(-height // 8)
        at += 2 + length
        if kind == 0xDA:
            break
    scan = data[at:-2]
    stray = _STRAY.search(scan) if 0xC2 not in kinds else None
    # No block takes less than two bits, or more than a byte and a half for each of its values.
    fits = blocks <= 4 * len(scan) and len(scan) <= 300 * blocks + 64
    return {0xDB, 0xDA, 0xC4} <= kinds and stray is None and fits and data.endswith(b"\xff\xd9")


_STRAY: Final = re.compile(rb"\xff[^\x00\xd0-\xd7]", re.DOTALL)


def is_gif(data: bytes) -> bool:
    """Blocks up to the end mark; a picture takes no more than its pixels can."""
    if len(data) < 14:
        return False
    at = 13 + _colours(data[10])
    while at < len(data) - 1:
        if data[at] == 0x21:
            at, _ = _behind_blocks(data, at + 2)
        elif data[at] == 0x2C and at + 11 < len(data):
            width, height = _read("<HH", data, at + 5)
            at, said = _behind_blocks(data, at + 11 + _colours(data[at + 9]))
            if said * 8 > (width * height + 3) * 13 + 16:
                return False
        else:
            return False
    return at == len(data) - 1 and data[at] == 0x3B


def _colours(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _behind_blocks(data: bytes, at: int) -> tuple[int, int]:
    said = 0
    while at < len(data) and data[at]:
        said += data[at]
        at += 1 + data[at]
    return at + 1, said


def is_webp(data: bytes) -> bool:
    """Chunks that fill it, and a picture with a valid beginning."""
    if len(data) < 20 or data[8:12] != b"WEBP" or _read("<I", data, 4)[0] + 8 != len(data):
        return False
    at, has_picture = 12, False
    while at + 8 <= len(data):
        kind, (length,) = data[at : at + 4], _read("<I", data, at + 4)
        if kind == b"VP8 ":
            has_picture = data[at + 11 : at + 14] == b"\x9d\x01\x2a"
        elif kind == b"VP8L":
            has_picture = data[at + 8] == 0x2F and data[at + 12] >> 5 == 0
        has_picture = has_picture or kind == b"ANMF"
        at += 8 + length + length % 2
    return has_picture and at == len(data)


def is_icon(data: bytes) -> bool:
    """Pictures where its list says, one after the other, up to its end."""
    (count,) = _read("<H", data, 4)
    reached = 6 + 16 * count
    for at in range(6, min(reached, len(data)), 16):
        length, offset = _read("<II", data, at + 8)
        picture = data[offset : offset + length]
        if offset != reached or not (
            _is_bitmap(picture) or (picture.startswith(_PNG_HEAD) and is_png(picture))
        ):
            return False
        reached += length
    return 0 < count <= 32 and reached == len(data)


def _is_bitmap(data: bytes) -> bool:
    """The picture of an icon: as many bytes as its rows and its mask have."""
    if len(data) < 40 or data[:4] != b"\x28\0\0\0":
        return False
    width, height, _, depth = _read("<iiHH", data, 4)
    rows = ((width * depth + 31) // 32 * 4 + (width + 31) // 32 * 4) * (height // 2)
    colours = 4 << depth if depth <= 8 else 0
    return 0 < width <= 256 and len(data) == 40 + colours + rows


def is_font(data: bytes) -> bool:
    """A font's tables, with their checksums."""
    count = _read(">H", data, 4)[0] if len(data) > 12 else 0
    if not 4 <= count <= 64 or len(data) < 12 + 16 * count:
        return False
    names, end = set(), 0
    for at in range(12, 12 + 16 * count, 16):
        name, said, offset, length = unpack_from(">4sIII", data, at)
        table = data[offset : offset + length]
        names.add(name)
        end = max(end, offset + (length + 3 & ~3))
        if len(table) != length or (name != b"head" and _sum_of(table) != said):
            return False
    return b"cmap" in names and b"head" in names and 0 <= end - len(data) + 3 <= 6


def _read(form: str, data: bytes, at: int) -> tuple[int, ...]:
    return unpack_from(form, data, at)


def _sum_of(table: bytes) -> int:
    table += bytes(-len(table) % 4)
    return sum(_read(f">{len(table) // 4}I", table, 0)) & 0xFFFFFFFF


def is_web_font(data: bytes) -> bool:
    """WOFF, whose tables inflate to their lengths, and WOFF2, whose lengths are as stated."""
    if len(data) < 48 or _read(">I", data, 8)[0] != len(data):
        return False
    count = _read(">H", data, 12)[0]
    if not 4 <= count <= 64:
        return False
    if data.startswith(b"wOF2"):
        packed = _read(">I", data, 20)[0]
        # Tables are listed in one byte or more each, and packed as one stream to the end.
        return 48 + 2 * count <= len(data) - packed <= 48 + 14 * count + 3 + _extra(data)
    for at in range(44, 44 + 20 * count, 20):
        if at + 20 > len(data):
            return False
        offset, packed, length = _read(">III", data, at + 4)
        if packed < length and not _inflates_to(data[offset : offset + packed], length):
            return False
    return True


def _extra(data: bytes) -> int:
    """The data that a web font holds after its tables."""
    return sum(_read(">I", data, at)[0] for at in (32, 44)) + 3


def _inflates_to(packed: bytes, length: int) -> bool:
    try:
        stream = zlib.decompressobj()
        said = stream.decompress(packed, min(length, INFLATED_MAX))
    except zlib.error:
        return False
    return len(said) == min(length, INFLATED_MAX)


def is_module(data: bytes) -> bool:
    """WebAssembly: sections that fill it, in their order."""
    at, last, count = 8, 0, 0
    while at < len(data):
        kind = data[at]
        length, at = _leb(data, at + 1)
        if kind > 13 or length < 0:
            return False
        if kind:
            place = _ORDER.index(kind)
            if place < last:
                return False
            last = place
        at += length
        count += 1
    return at == len(data) and count > 1


_ORDER: Final = bytes((1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11))


def _leb(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        number |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return number, at
    return _NOTHING, at


_PDF_END: Final = re.compile(rb"startxref\s+([0-9]{1,10})\s+%%EOF\s*\Z")


def is_document(data: bytes) -> bool:
    """A PDF that is not encrypted: its table of objects where it says, and streams that inflate.

    Streams of pictures must be such pictures; anything else between its objects is text.
    """
    end = _PDF_END.search(data)
    if end is None or b"/Encrypt" in data:
        return False
    table = int(end[1])
    if not re.match(rb"xref|[0-9]{1,9} [0-9]{1,5} obj", data[table : table + 24]):
        return False
    between = b"".join(data[start:end] for start, end, _ in _between_streams(data))
    if len(_BEYOND_ASCII.findall(between)) > 16:
        return False
    left = 16 * INFLATED_MAX
    for packed in streams_of(data):
        said = packed if packed.isascii() else inflated(packed)
        left -= len(said)
        if left < 0 or not (said or (packed.startswith(b"\xff\xd8\xff") and is_jpeg(packed))):
            return False
    return True


_BEYOND_ASCII: Final = re.compile(rb"[\x00-\x08\x7f-\xff]")


def streams_of(document: bytes) -> Iterator[bytes]:
    return (stream for *_, stream in _between_streams(document) if stream)


def _between_streams(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The places outside of streams, each with the stream that follows."""
    at = 0
    while True:
        start = data.find(_STREAM, at)
        end = data.find(_STREAM_END, start)
        if start < 0 or end < 0:
            yield at, len(data), b""
            return
        stream = data[start + len(_STREAM) : end]
        yield at, start, stream.removeprefix(b"\r").removeprefix(b"\n").rstrip(b"\r\n")
        at = end + len(_STREAM_END)


_STREAM: Final = b"stream"
_STREAM_END: Final = b"endstream"


def inflated(packed: bytes) -> bytes:
    """The content of a complete stream, up to a bound; empty if it is torn or no stream."""
    stream = zlib.decompressobj()
    try:
        said = stream.decompress(packed, INFLATED_MAX)
    except zlib.error:
        return b""
    return said if stream.eof or stream.unconsumed_tail else b""


FORMS: Final[tuple[tuple[bytes, Callable[[bytes], bool]], ...]] = (
    (_PNG_HEAD, is_png),
    (b"\xff\xd8\xff", is_jpeg),
    (b"GIF8", is_gif),
    (b"RIFF", is_webp),
    (b"\0\0\1\0", is_icon),
    (b"\0\1\0\0", is_font),
    (b"OTTO", is_font),
    (b"wOFF", is_web_font),
    (b"wOF2", is_web_font),
    (b"\0asm\1\0\0\0", is_module),
    (b"%PDF-", is_document),
)


def is_whole(data: bytes) -> bool:
    """Whether the bytes are one such file and nothing else."""
    for head, is_one in FORMS:
        if data.startswith(head):
            try:
                return is_one(data)
            except (struct_error, IndexError):  # It ends within a field.
                return False
    return False
