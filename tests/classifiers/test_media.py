"""Pictures, fonts and other files in base64: no keys, and no place to hide one."""

import base64
import json
import random
import struct
import zlib

import pytest

from classifiers.pii.credentials.media import media
from classifiers.pii.findings import Finding
from classifiers.pii.labels import SOFT, DataClass, data_class_of
from classifiers.pii.scanner import PATTERNS_ONLY, Scanner, load
from classifiers.units import Unit
from classifiers.verdicts import judge


RANDOM = random.Random(31)
BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
KEY = "".join(RANDOM.choice(BASE64[at % 2 * 26 : 62]) for at in range(32)) + "7pQ4x9Lw"
TOKEN = f"ghp_{''.join(RANDOM.choice(BASE64[:62]) for _ in range(36))}"


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(side: int = 24, *more: bytes) -> bytes:
    rows = b"".join(b"\0" + RANDOM.randbytes(3 * side) for _ in range(side))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    parts = (head, *more, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def gif() -> bytes:
    blocks = bytes(range(1, 25))
    return (
        b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0x80, 0, 0) + bytes(6) + b"\x2c"
        + struct.pack("<HHHHB", 0, 0, 8, 8, 0) + b"\x02" + bytes([len(blocks)]) + blocks + b"\0\x3b"
    )  # fmt: skip


def jpeg() -> bytes:
    def segment(kind: int, body: bytes) -> bytes:
        return bytes((0xFF, kind)) + struct.pack(">H", len(body) + 2) + body

    return (
        b"\xff\xd8" + segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0") + segment(0xDB, bytes(range(65)))
        + segment(0xC0, b"\x08\0\x20\0\x20\x01\x01\x11\0")
        + segment(0xC4, b"\0" + bytes(16)) + segment(0xDA, b"\x01\x01\0\0\x3f\0")
        + RANDOM.randbytes(90).replace(b"\xff", b"\1") + b"\xff\xd9"
    )  # fmt: skip


def font() -> bytes:
    tables = {name: RANDOM.randbytes(64) for name in (b"cmap", b"glyf", b"head", b"loca", b"name")}
    head, body, at = struct.pack(">IHHHH", 0x10000, len(tables), 64, 2, 16), b"", 12 + 16 * 5
    for name, table in tables.items():
        said = sum(struct.unpack(">16I", table)) & 0xFFFFFFFF
        head += struct.pack(">4sIII", name, said, at + len(body), len(table))
        body += table
    return head + body


def web_font() -> bytes:
    tables = [zlib.compress(bytes(9) + RANDOM.randbytes(55) + bytes(90)) for _ in range(4)]
    body, head = b"", b""
    for table in tables:
        head += struct.pack(">4sIIII", b"glyf", 44 + 80 + len(body), len(table), 154, 0)
        body += table
    size = 44 + len(head) + len(body)
    return struct.pack(">4sIIHHI24x", b"wOFF", 0x10000, size, 4, 0, 900) + head + body


def webp() -> bytes:
    picture = b"\x2f\x1f\xc0\x07\0" + RANDOM.randbytes(81)
    body = b"WEBPVP8L" + struct.pack("<I", len(picture)) + picture
    return b"RIFF" + struct.pack("<I", len(body)) + body


def icon() -> bytes:
    picture = png(16)
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(picture), 22) + picture


def module() -> bytes:
    code = RANDOM.randbytes(100)
    return b"\0asm\1\0\0\0" + b"\x01\x04\x01\x60\0\0" + bytes((10, len(code))) + code


def document(text: bytes = b"BT (Rules of the house) Tj ET") -> bytes:
    packed = zlib.compress(text + b"\n0.5 0 m 12 99 l S" * 9)
    said = b"%PDF-1.4\n1 0 obj\n<< /Filter /FlateDecode >>\nstream\n" + packed + b"\nendstream\n"
    return said + b"xref\n0 1\ntrailer << >>\nstartxref\n%d\n%%%%EOF\n" % len(said)


FILES = {
    "png": png(), "gif": gif(), "jpeg": jpeg(), "webp": webp(), "x-icon": icon(), "ttf": font(),
    "woff": web_font(), "wasm": module(), "pdf": document(), "large": png(120),
}  # fmt: skip


def as_lines(encoded: str) -> str:
    return "\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76))


def written(data: bytes) -> dict[str, str]:
    said = base64.b64encode(data).decode()
    return {
        "html": f'<img alt="x" src="data:image/x;base64,{said}">',
        "css": f"a{{background:url(data:image/x;base64,{said}) no-repeat}}",
        "markdown": f"![x](data:image/x;base64,{said})\n\nAs above.",
        "notebook": json.dumps({"outputs": [{"data": {"image/x": as_lines(said) + "\n"}}]}),
        "mail": f"Content-Transfer-Encoding: base64\n\n{as_lines(said)}\n\n--part--",
    }


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return load()


def kept_home(text: str, scanner: Scanner = PATTERNS_ONLY) -> list[Finding]:
    found = judge(Unit(text), scanner).findings
    return [f for f in found if f.label not in SOFT and data_class_of(f.label) >= DataClass.S3]


@pytest.mark.parametrize("form", FILES)
def test_a_whole_file_is_no_key(form: str, scanner: Scanner) -> None:
    for name, text in written(FILES[form]).items():
        assert not kept_home(text, scanner), name


def test_the_picture_of_a_page_is_a_guess_without_its_end() -> None:
    # It would be taken for a key if nothing told what it is.
    data = bytearray(FILES["jpeg"])
    del data[-2:]
    assert any(kept_home(text) for text in written(bytes(data)).values())


def test_a_picture_that_is_cut_within_its_pixels_is_one() -> None:
    said = base64.b64encode(png()).decode()
    assert not kept_home(f'<img src="data:image/png;base64,{said[:400]}… (cut)')


def test_a_source_map_is_no_key_and_is_read() -> None:
    fields = {"version": 3, "sources": ["a.ts"], "names": [], "mappings": "AAAA,SAASA;" * 40}
    for more, count in (({}, 0), ({"sourcesContent": [f"const k = '{TOKEN}'"]}, 1)):
        said = base64.b64encode(json.dumps(fields | more).encode()).decode()
        text = f"//# sourceMappingURL=data:application/json;charset=utf-8;base64,{said}\n"
        assert len(kept_home(text)) == count


@pytest.mark.parametrize(
    "head",
    [
        "iVBORw0KGgo",
        "iVBORw0KGgoAAAANSUhEUg",
        "/9j/4AAQSkZJRg",
        "R0lGODlhAQAB",
        "UklGR",
        "JVBERi0xLjQK",
        "AGFzbQEAAAA",
        "d09GMgABAAAA",
        "AAEAAAASAQAABAAg",
        "AAABAAEAEBAA",
    ],
)
def test_a_key_behind_a_beginning_is_found(head: str) -> None:
    for text in (f"key {head}{KEY}", f'"data:image/png;base64,{head}{KEY}"', f"{head}\n{KEY}"):
        assert kept_home(text), text


@pytest.mark.parametrize("form", FILES)
def test_a_key_behind_a_whole_file_is_found(form: str) -> None:
    data = FILES[form]
    said = base64.b64encode(data + bytes(-len(data) % 3)).decode()
    for text in (f'src="{said}{KEY}"', f'"{KEY}{said}"'):
        assert not media(text), text[-60:]
    for text in (f'src="{said}"; key = "{KEY}"', f'"{said}"\n{KEY}', f"{said}\n{KEY}"):
        assert kept_home(text), text[-60:]


def test_a_key_in_place_of_the_pixels_is_found() -> None:
    head = png()[:33]
    raw = base64.b64decode(KEY)
    pixels = struct.pack(">I", 9999) + b"IDAT"
    for data in (head + raw, head + pixels + raw, head + chunk(b"IDAT", raw) + chunk(b"IEND", b"")):
        assert kept_home(f"data:image/png;base64,{base64.b64encode(data).decode()}")


@pytest.mark.parametrize(
    "data",
    [
        png(24, chunk(b"tEXt", b"Comment\0" + TOKEN.encode())),
        png(24, chunk(b"zTXt", b"Comment\0\0" + zlib.compress(TOKEN.encode()))),
        png(24, chunk(b"iTXt", b"Comment\0\1\0\0\0" + zlib.compress(TOKEN.encode()))),
        png(24, chunk(b"eXIf", TOKEN.encode("utf-16-le"))),
        jpeg().replace(b"JFIF\0\1\1\0\0\1\0\1\0\0", b"")[:2]
        + b"\xff\xfe" + struct.pack(">H", len(TOKEN) + 2) + TOKEN.encode() + jpeg()[2:],
        document(f"BT [({TOKEN[:9]})-20({TOKEN[9:]})] TJ ET".encode()),
        document(f"BT ({TOKEN}) Tj ET".encode()),
    ],
)  # fmt: skip
def test_text_within_a_file_is_read(data: bytes) -> None:
    for name, text in written(data).items():
        found = kept_home(text)
        assert [f.label for f in found] == ["SECRET"], name
        assert found[0].detector.endswith("+file"), name


def test_what_names_a_key_is_believed_over_a_files_form() -> None:
    said = base64.b64encode(FILES["png"]).decode()
    assert kept_home(f'api_key = "{said[:100]}"')
