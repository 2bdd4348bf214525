"""OpenAI's batch API: a file of lines goes up, a batch is made of it, two files come back."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from gateway.clock import SECOND_US
from gateway.dialects.bodies.body import one_line
from gateway.errors import (
    UpstreamFailed,
    UpstreamMalformed,
    UpstreamRefused,
    UpstreamUnreachable,
)
from gateway.parcels import (
    Parcel,
    ResultKind,
    ResultsTooLong,
    VendorBatch,
    VendorResult,
    VendorState,
    may_have_taken,
)
from gateway.providers.parcels.post import Page, ParcelPost, checked_id, ids_of, read_wire
from gateway.types import DialectName


PATHS: dict[DialectName, str] = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "openai_embeddings": "/v1/embeddings",
    "openai_completions": "/v1/completions",
}
MARK = "gatewright"
"""The key of a batch's metadata that holds the parcel's name."""
KEEP_S = 259_200
"""Three days: when a file of ours expires that nobody has deleted."""
SKEW_S = 120
_STATUSES = frozenset((*range(200, 300), *range(400, 600)))
"""The statuses with which a line may end."""
_OVER = frozenset({"completed", "expired", "cancelled"})


class _File(Struct, frozen=True):
    id: str
    created_at: int
    filename: str = ""


class _Batch(Struct, frozen=True):
    id: str
    status: str
    created_at: int
    input_file_id: str = ""
    output_file_id: str | None = None
    error_file_id: str | None = None
    metadata: dict[str, str] | None = None


class _Response(Struct, frozen=True):
    status_code: int
    request_id: Any = None
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Result(Struct, frozen=True):
    custom_id: str
    response: _Response | None = None


_FILE = msgspec.json.Decoder(_File)
_FILES = msgspec.json.Decoder(Page[_File])
_BATCH = msgspec.json.Decoder(_Batch)
_BATCHES = msgspec.json.Decoder(Page[_Batch])
_RESULT = msgspec.json.Decoder(_Result)


class OpenAIParcels:
    """Implements `gateway.parcels.ParcelService`."""

    dialects = frozenset(PATHS)
    remains = "the batch's name, its counts and its times stay; they hold no content"

    def __init__(self, post: ParcelPost) -> None:
        self._post = post

    async def submit(self, parcel: Parcel, deadline_s: float) -> str:
        boundary = f"gatewright-{secrets.token_hex(16)}"
        headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
        calls = [line.call for line in parcel.lines]
        # Ten thousand lines take longer than others should wait.
        form = await asyncio.to_thread(_form, parcel, boundary.encode())
        raw = await self._post.hand_over("/v1/files", calls, form, deadline_s, headers)
        file_id = checked_id(read_wire(_FILE, raw).id)
        order = {
            "input_file_id": file_id,
            "endpoint": PATHS[parcel.dialect],
            "completion_window": "24h",
            "metadata": {MARK: parcel.name},
            "output_expires_after": {"anchor": "created_at", "seconds": KEEP_S},
        }
        try:
            made = await self._post.tell("/v1/batches", msgspec.json.encode(order), deadline_s)
        except UpstreamRefused as error:
            if may_have_taken(error.upstream_status):
                # The batch would fail without its file; a search in vain deletes that.
                raise UpstreamUnreachable("Nobody knows whether a batch was made.") from error
            await self._take_back(file_id, deadline_s)
            raise
        return checked_id(read_wire(_BATCH, made).id)

    async def _take_back(self, file_id: str, deadline_s: float) -> None:
        """Delete the file of a refused batch: nobody else would look for it.

        Raises:
            UpstreamUnreachable: it may still be there; the search for the batch deletes it by name.
        """
        try:
            await self._post.drop(f"/v1/files/{file_id}", deadline_s)
        except UpstreamFailed as error:
            raise UpstreamUnreachable("An upload could not be taken back.") from error

    async def find(
        self, name: str, count: int, made_us: int, deadline_s: float
    ) -> VendorBatch | None:
        """Find it by its metadata, among batches made since; a file without a batch is deleted."""
        del count
        is_old = partial(_is_before, made_us)
        async for each in self._post.pages("/v1/batches?", "after", _BATCHES, is_old, deadline_s):
            if (each.metadata or {}).get(MARK) == name:
                return _described(each)
        await self._forget_upload(name, made_us, deadline_s)
        return None

    async def look(self, vendor_id: str, deadline_s: float) -> VendorBatch:
        raw = await self._post.get(f"/v1/batches/{checked_id(vendor_id)}", deadline_s)
        return _described(read_wire(_BATCH, raw))

    async def results(
        self, batch: VendorBatch, lines: int, deadline_s: float
    ) -> AsyncGenerator[VendorResult, None]:
        failure: UpstreamFailed | None = None
        loop = asyncio.get_running_loop()
        due_s = loop.time() + deadline_s  # For both files together.
        for file_id in batch.files:
            path = f"/v1/files/{file_id}/content"
            one = self._post.results(path, _result, lines, due_s - loop.time())
            try:
                async with aclosing(one) as found:
                    async for each in found:
                        yield each
            except UpstreamFailed as error:
                # What the other file says is valid all the same.
                failure = failure if isinstance(failure, ResultsTooLong) else error
        if failure is not None:
            raise failure

    async def cancel(self, vendor_id: str, deadline_s: float) -> None:
        try:
            await self._post.tell(f"/v1/batches/{checked_id(vendor_id)}/cancel", b"{}", deadline_s)
        except UpstreamRefused as error:
            if error.upstream_status not in (400, 409):  # It is over already.
                raise

    async def tidy(self, batch: VendorBatch, deadline_s: float) -> None:
        for file_id in (batch.input_file, *batch.files):
            if file_id:
                await self._post.drop(f"/v1/files/{checked_id(file_id)}", deadline_s)

    async def _forget_upload(self, name: str, made_us: int, deadline_s: float) -> None:
        path, is_old = "/v1/files?purpose=batch&order=desc&", partial(_is_before, made_us)
        found = [
            each.id
            async for each in self._post.pages(path, "after", _FILES, is_old, deadline_s)
            if each.filename == _file_name(name)
        ]
        for file_id in found:
            await self._post.drop(f"/v1/files/{checked_id(file_id)}", deadline_s)


def _form(parcel: Parcel, boundary: bytes) -> bytes:
    """The upload as a multipart form; the file's lines are bodies as they were encoded."""
    url = PATHS[parcel.dialect]
    lines = [
        one_line(
            msgspec.json.encode(
                {
                    "custom_id": line.custom_id,
                    "method": "POST",
                    "url": url,
                    "body": msgspec.Raw(line.call.body),
                }
            )
        )
        for line in parcel.lines
    ]
    fields = {
        "purpose": "batch",
        "expires_after[anchor]": "created_at",
        "expires_after[seconds]": str(KEEP_S),
    }
    parts = [
        b'--%b\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n'
        % (boundary, name.encode(), value.encode())
        for name, value in fields.items()
    ]
    head = (
        b'--%b\r\ncontent-disposition: form-data; name="file"; filename="%b"\r\n'
        b"content-type: application/jsonl\r\n\r\n" % (boundary, _file_name(parcel.name).encode())
    )
    return b"".join([*parts, head, b"\n".join(lines), b"\r\n--%b--\r\n" % boundary])


def _file_name(name: str) -> str:
    return f"{name}.jsonl"


def _is_before(made_us: int, wire: _File | _Batch) -> bool:
    return wire.created_at < made_us // SECOND_US - SKEW_S


def _described(wire: _Batch) -> VendorBatch:
    files = tuple(checked_id(each) for each in (wire.output_file_id, wire.error_file_id) if each)
    is_over = wire.status in _OVER
    state: VendorState = "ended" if is_over else "under_way"
    state = "failed" if wire.status == "failed" else state
    return VendorBatch(checked_id(wire.id), state, files if is_over else (), wire.input_file_id)


def _result(line: bytes) -> VendorResult:
    wire = read_wire(_RESULT, line)
    if wire.response is None:
        return VendorResult(wire.custom_id, "unsent")
    status, body = wire.response.status_code, bytes(wire.response.body)
    if status not in _STATUSES:
        # It is stored, and shown to the batch's owner.
        raise UpstreamMalformed("the upstream's batch service gave a status that is none")
    kind: ResultKind = "answered" if status // 100 == 2 else "refused"  # noqa: PLR2004
    return VendorResult(wire.custom_id, kind, status, body, ids_of(wire.response.request_id))
