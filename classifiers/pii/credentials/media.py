"""Pictures, fonts and other files in base64 within a text: random-looking, but not keys.

Pages, style sheets, notebooks and results of tools carry them. Only a file that is complete, as far
as its form tells, is taken for one. What merely begins like a file is judged as any other run of
characters, and so is a file whose text would be too long to read. The text in a file is read with
all rules, and counts.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from classifiers.pii.credentials.secrets import random_token
from classifiers.pii.findings import Finding, without_overlaps
from classifiers.pii.labels import DataClass, data_class_of
from classifiers.pii.views.decoded import CUT
from classifiers.pii.views.encodings import BREAK, DECODED_MAX
from classifiers.pii.views.file_forms import inflated, is_whole, streams_of


_HEADS: Final = (
    "iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "AAABAA", "AAEAAA", "T1RUTw", "d09GR", "d09GMg",
    "AGFzbQE", "JVBERi0", "application/json;",
)  # fmt: skip
"""How the forms begin in base64; a source map has no beginning of its own."""
_RUN: Final = re.compile(
    r"(?<![A-Za-z0-9+/])(?:(?=iVBORw0KGgo|/9j/|R0lGOD|UklGR|AAABAA|AAEAAA|T1RUTw|d09GRg|d09GMg"
    r"|AGFzbQE|JVBERi0)|(?<=;base64,)(?=ey|ewog))"
    rf"[A-Za-z0-9+/]+(?:{BREAK}[A-Za-z0-9+/]+)*+={{0,2}}"
)
_LINE: Final = re.compile(BREAK)
_LEAST: Final = 24
_GUESSES: Final = frozenset(
    {"secret/assigned", "secret/random", "secret/unlisted-prefix", "secret/short-prefix"}
)
"""Rules that find a run by its looks; findings of a known form of key, or of a name, stay."""
# Text of one byte for a letter, or of two.
_STRETCH: Final = re.compile(rb"[\t\n\r -~]{8,}|(?:[ -~]\0){8,}|(?:\0[ -~]){8,}")
_LONGEST_BEHIND: Final = 400
_WINDOW: Final = 40
_STEP: Final = 4
_SCORE: Final = 0.55
_PACKED: Final = frozenset({b"zTXt", b"iCCP", b"iTXt"})
"""Chunks of a PNG with packed text: after a name and a method, or also after two languages."""
_OF_FILES: Final = "+file"
_OFTEN_BY_CHANCE: Final = "EAA"
"""A vendor's prefix that is common in outlines and icons: small numbers, one after the other."""
# Where lines of a drawing go: no text, and full of numbers that look like some.
_DRAWN: Final = re.compile(
    rb"(?<![^\s])(?:[+-]?[0-9]{0,6}\.?[0-9]{1,8}\s{1,4}){1,6}(?:[mlcvywjJMidgGkKhfSsnqQ]|re|cm|rg|RG|T[dDmcwz])(?=\s)"
)
_KERNED: Final = re.compile(rb"\)\s{0,4}-?[0-9.]{0,9}\s{0,4}\(")
_MAPPINGS: Final = re.compile(r"[A-Za-z0-9+/,;]*")
_MAP_VERSION: Final = 3

Media = tuple[int, int, str]
"""Its place in a text, and the text in it."""


def apart_from_media(
    text: str, found: list[Finding], look_in: Callable[[str], list[Finding]]
) -> list[Finding]:
    """Findings without those that such a file has by chance, plus those of the text in it."""
    for head in _HEADS:  # This is asked of every text.
        if head in text:
            break
    else:
        return found
    files, others = _runs(text)
    if not files and not others:
        return found
    kept = [f for f in found if not any(_is_chance(text, f, file) for file in files)]
    kept += [f for start, end in others for f in _behind_a_head(text, start, end)]
    for start, end, said in files:
        inside = [f for f in (look_in(said) if said else ()) if not _is_weak(f)]
        if not any(f.start < end and start < f.end for f in kept):
            kept += [
                Finding(start, end, f.label, f.score, f"{f.detector}{_OF_FILES}") for f in inside
            ]
    return without_overlaps(kept)


def _is_chance(text: str, finding: Finding, file: Media) -> bool:
    """Whether a finding is within a file, and only its looks speak for it."""
    start, end, _ = file
    if not start <= finding.start <= finding.end <= end or finding.detector.endswith(_OF_FILES):
        return False
    is_guess = finding.detector.partition("+")[0] in _GUESSES
    return is_guess or _is_weak(finding) or text.startswith(_OFTEN_BY_CHANCE, finding.start)


def _is_weak(finding: Finding) -> bool:
    """Digits and words occur in outlines and modules by chance; an e-mail address hardly does."""
    return data_class_of(finding.label) < DataClass.S3 and finding.label != "EMAIL"


def media(text: str) -> list[Media]:
    """The files of a text."""
    return _runs(text)[0]


def _runs(text: str) -> tuple[list[Media], list[tuple[int, int]]]:
    """Runs that begin like a file: those that are files, and the places of the others."""
    files: list[Media] = []
    others: list[tuple[int, int]] = []
    reached = 0
    while (run := _RUN.search(text, reached)) is not None:
        start, reached = run.span()
        for end in _ends(text, start, reached):
            said = _said_by(_LINE.sub("", text[start:end]))
            if said is not None:
                files.append((start, end, said))
                reached = end
                break
        else:
            others.append((start, reached))
    return files, others


def _behind_a_head(text: str, start: int, end: int) -> Iterator[Finding]:
    """A key that the beginning of a file makes look less random than it is."""
    if _LEAST < end - start <= _LONGEST_BEHIND:
        for at in range(start, end - _LEAST + 1, _STEP):
            window = text[at : min(at + _WINDOW, end)]
            if window.isprintable() and random_token(window):
                yield Finding(at, end, "SECRET", _SCORE, "secret/random+head")
                return


def _ends(text: str, start: int, end: int) -> Iterator[int]:
    """Where a run may end: at its end, before its last line, or after its first."""
    yield end
    breaks = list(_LINE.finditer(text, start, end))
    if breaks:
        yield breaks[-1].start()
        yield breaks[0].start()


def _said_by(run: str) -> str | None:
    """The text of a file; None if it is no file, or has more text than is read."""
    if len(run) < _LEAST:
        return None
    try:
        data = base64.b64decode(run[: len(run) & ~3], validate=True)
    except (binascii.Error, ValueError):
        return None
    if data.startswith(b"{"):
        return "" if len(data) <= DECODED_MAX and _is_source_map(data) else None
    if not is_whole(data):
        return None
    said = CUT.join(_stretches(data))
    return said if len(said) <= DECODED_MAX else None


def _is_source_map(data: bytes) -> bool:
    """Base64 in a source map is read anyway; its mappings are not text."""
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return False
    mappings = fields.get("mappings")
    return (
        fields.get("version") == _MAP_VERSION
        and isinstance(fields.get("sources"), list)
        and isinstance(mappings, str)
        and _MAPPINGS.fullmatch(mappings) is not None
    )


def _stretches(data: bytes) -> Iterator[str]:
    for part in _parts(data):
        for stretch in _STRETCH.finditer(part):
            yield stretch[0].replace(b"\0", b"").decode("ascii")


def _parts(data: bytes) -> Iterator[bytes]:
    """The parts of a file that may be text; not a PNG's pixels; streams of others are packed."""
    if data.startswith(b"%PDF-"):
        for packed in streams_of(data):
            said = _KERNED.sub(b"", packed if packed.isascii() else inflated(packed))
            yield _DRAWN.sub(b"", said)
        yield data
    elif data.startswith(b"\x89PNG"):
        yield from _chunks(data)
    else:
        yield data


def _chunks(png: bytes) -> Iterator[bytes]:
    at = 8
    while at + 8 <= len(png):
        length, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + length]
        if kind != b"IDAT":
            yield body
        if kind in _PACKED:
            _, _, said = body.partition(b"\0")
            _, _, text = said[2:].partition(b"\0")[2].partition(b"\0")
            yield from (inflated(said[1:]), inflated(text))
        at += 12 + length
