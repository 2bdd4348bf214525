"""Forms with one file, read as they arrive: memory never holds more than a part of the file."""

from collections.abc import Mapping
from typing import Any, Final

from litestar import Request
from multipart import (
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    parse_options_header,
)

from gateway.api.bodies import check_plain, pieces_of
from gateway.api.places import Places
from gateway.batches import KeptFile
from gateway.clock import DAY_US, SECOND_US
from gateway.configuration.settings import Limits
from gateway.dialects.resources.openai_batches import EXPIRY_S_MAX, EXPIRY_S_MIN
from gateway.errors import BodyTooLarge, GatewrightError, RequestInvalid
from gateway.projects import project_of
from gateway.store.batching.files import FULL, FileStore, FileWriter
from gateway.types import Principal


FORM_BYTES_MAX: Final = 64 * 1024
"""The size of a form without its file."""
FIELD_BYTES_MAX: Final = 1024
SEGMENTS_MAX: Final = 8
NAME_LENGTH_MAX: Final = 255
UPLOADS_MAX: Final = 8
"""At once on one worker: each may hold two parts in memory."""
PURPOSE: Final = "batch"


class Uploads:
    """Takes in files for projects that have room for them."""

    def __init__(self, files: FileStore, limits: Limits, keep_days: float) -> None:
        self._files = files
        self._limits = limits
        self._keep_us = round(keep_days * DAY_US)
        self._places = Places(UPLOADS_MAX, "Too many files are arriving; try again shortly.")

    async def receive(
        self, request: Request[Any, Any, Any], principal: Principal, stored_bytes: int
    ) -> KeptFile:
        """Keep the file of a form.

        Raises:
            RequestInvalid: it is no form with one file and the purpose `batch`.
            BodyTooLarge: the file is too long, or its project holds too much already.
            Unavailable: too many files arrive at once.
        """
        check_plain(request)
        room = self._limits.project_bytes_max - stored_bytes
        if room <= 0:
            raise BodyTooLarge(FULL.format(stored_bytes))
        with self._places.place(project_of(principal)):
            form = _Form(self._files, principal, min(room, self._limits.file_bytes_max))
            try:
                return await self._receive(request, form)
            except GatewrightError:
                await form.discard()
                raise

    async def _receive(self, request: Request[Any, Any, Any], form: "_Form") -> KeptFile:
        parser = _parser_for(request)
        bytes_max = form.file_bytes_max + FORM_BYTES_MAX
        try:
            async for piece in pieces_of(request, bytes_max, self._limits):
                if piece:
                    for event in parser.parse(piece):
                        await form.take(event)
            parser.close()
        except MultipartError:
            raise RequestInvalid("The body is not a whole multipart form.") from None
        return await form.finish(self._keep_us, self._limits.project_bytes_max)


def _parser_for(request: Request[Any, Any, Any]) -> PushMultipartParser:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get("boundary", "")
    if kind.lower() != "multipart/form-data" or not boundary:
        raise RequestInvalid("Send the file as multipart/form-data with a boundary.")
    try:
        return PushMultipartParser(boundary, max_segment_count=SEGMENTS_MAX, strict=True)
    except MultipartError:
        raise RequestInvalid("The form's boundary is not one.") from None


class _Form:
    """What has arrived of one form."""

    def __init__(self, files: FileStore, principal: Principal, file_bytes_max: int) -> None:
        self.file_bytes_max = file_bytes_max
        self._files = files
        self._principal = principal
        self._fields: dict[str, bytes] = {}
        self._writer: FileWriter | None = None
        self._name = ""
        self._field = ""

    async def take(self, event: MultipartSegment | bytes | bytearray | None) -> None:
        """Take the head of a segment, a piece of its body, or None at its end."""
        if isinstance(event, MultipartSegment):
            self._field = event.name or ""
            if self._field in self._fields or (self._field == "file" and self._writer):
                raise RequestInvalid("The form has the same field twice.")
            if self._field == "file":
                self._name = _name_of(event.filename or "")
                principal = self._principal
                self._writer = await self._files.begin(
                    project_of(principal), principal.key_id, PURPOSE
                )
            else:
                self._fields[self._field] = b""
        elif event is not None:
            await self._take_piece(bytes(event))

    async def _take_piece(self, piece: bytes) -> None:
        if self._field == "file" and self._writer is not None:
            if self._writer.size_bytes + len(piece) > self.file_bytes_max:
                raise BodyTooLarge(f"The file is longer than {self.file_bytes_max} bytes.")
            await self._writer.write(piece)
            return
        value = self._fields[self._field] + piece
        if len(value) > FIELD_BYTES_MAX:
            raise RequestInvalid("A field of the form is too long.")
        self._fields[self._field] = value

    async def finish(self, keep_us: int, project_bytes_max: int) -> KeptFile:
        """The file, kept for a time from when it was made, however long it took to arrive.

        Other arrivals meanwhile may have taken the room that it had when it began.
        """
        if self._writer is None:
            raise RequestInvalid("The form has no file.", parameter="file")
        purpose = self._fields.get("purpose", b"").decode("utf-8", "replace")
        if purpose != PURPOSE:
            raise RequestInvalid(
                "Only files for the purpose `batch` are kept.", parameter="purpose"
            )
        if not self._writer.size_bytes:
            raise RequestInvalid("The file is empty.", parameter="file")
        keep_us = min(keep_us, _expiry_us(self._fields) or keep_us)
        file, length_bytes = self._writer.file, self._writer.size_bytes
        check = self._files.room(file.project, length_bytes, project_bytes_max)
        return await self._writer.finish(self._name, file.created_us + keep_us, check)

    async def discard(self) -> None:
        if self._writer is not None:
            await self._writer.discard()


def _expiry_us(fields: Mapping[str, bytes]) -> int:
    """The form's `expires_after`; 0 without one."""
    anchor, seconds = (fields.get(f"expires_after[{name}]") for name in ("anchor", "seconds"))
    if anchor is None and seconds is None:
        return 0
    if anchor != b"created_at":
        raise RequestInvalid("The anchor must be `created_at`.", parameter="expires_after.anchor")
    text = (seconds or b"").decode("ascii", "replace")
    number = int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 0  # noqa: PLR2004
    if not EXPIRY_S_MIN <= number <= EXPIRY_S_MAX:
        reason = f"Between {EXPIRY_S_MIN} and {EXPIRY_S_MAX} seconds."
        raise RequestInvalid(reason, parameter="expires_after.seconds")
    return number * SECOND_US


def _name_of(given: str) -> str:
    """A file's name as it is repeated: the last part of a path, one line, bounded."""
    last = given.replace("\\", "/").rpartition("/")[2]
    kept = "".join(each for each in last if each.isprintable())
    return kept[:NAME_LENGTH_MAX] or "file.jsonl"
