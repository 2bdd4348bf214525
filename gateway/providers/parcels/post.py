"""What both vendors' batch APIs share: checked ids, bounded JSON, and results line by line."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct, structs

from gateway.admission.answer_bounds import SHORT_BYTES_MAX, check_json, weighed
from gateway.errors import UpstreamFailed, UpstreamMalformed, UpstreamRefused
from gateway.parcels import ResultsTooLong, VendorResult, json_lines
from gateway.ports import UpstreamCall
from gateway.providers.egress.client import Egress, Route
from gateway.providers.egress.reply import EgressReply


RESULT_BYTES_MAX = 1024 * 1024 * 1024
"""For a complete download, even of few lines; it is read line by line."""
RESULT_LINE_BYTES_MAX = 16 * 1024 * 1024
TIMES_TOLD = 2
"""How often a vendor may report on a line; one that reports more often might never end."""
LINES_AT_ONCE = 256
"""Short lines read in a row; then other work has its turn."""
ANSWER_BYTES_MAX = 2 * 1024 * 1024
"""For answers about batches and files: a page of a hundred is at most half as long."""
PAGE = 100
PAGES_MAX = 20
EMPTY = b"{}"
_ID = re.compile(r"[A-Za-z0-9_-]{1,120}")
Wire = TypeVar("Wire")


class Named(Protocol):
    """An object of the vendor's."""

    @property
    def id(self) -> str: ...


Each = TypeVar("Each", bound=Named)


class Page(Struct, Generic[Each], frozen=True):
    """A page of objects, the newest first."""

    data: list[Each]
    has_more: bool = False


MakeRoute = Callable[[str, Mapping[str, str]], Route]
"""A path and headers besides the usual ones → the prepared route."""


class ParcelPost:
    """Calls to one vendor's batch API, over the one egress."""

    def __init__(self, egress: Egress, make_route: MakeRoute) -> None:
        self._egress = egress
        self._make_route = make_route

    async def hand_over(
        self,
        path: str,
        calls: Sequence[UpstreamCall],
        body: bytes,
        deadline_s: float,
        headers: Mapping[str, str],
    ) -> bytes:
        """Send callers' lines; returns the vendor's answer. Raises UpstreamFailed."""
        route = self._make_route(path, headers)
        return await _good(await self._egress.hand_over(route, calls, body, deadline_s))

    async def get(self, path: str, deadline_s: float) -> bytes:
        return await _good(await self._egress.ask(self._make_route(path, {}), deadline_s))

    async def tell(self, path: str, body: bytes, deadline_s: float) -> bytes:
        return await _good(await self._egress.tell(self._make_route(path, {}), body, deadline_s))

    async def drop(self, path: str, deadline_s: float) -> None:
        """Delete something; it is no error if it is gone already."""
        try:
            await _good(await self._egress.drop(self._make_route(path, {}), deadline_s))
        except UpstreamRefused as error:
            if error.upstream_status not in _GONE:
                raise

    async def pages(
        self,
        path: str,
        after: str,
        decoder: msgspec.json.Decoder[Page[Each]],
        is_old: Callable[[Each], bool],
        deadline_s: float,
    ) -> AsyncIterator[Each]:
        """A vendor's list, from the newest on until entries are too old; pages follow an id.

        Raises:
            UpstreamFailed: also if the list is so long that the entry may lie beyond it.
        """
        place = ""
        for _ in range(PAGES_MAX):
            page = read_wire(decoder, await self.get(f"{path}limit={PAGE}{place}", deadline_s))
            for each in page.data:
                yield each
            if not page.data or not page.has_more or is_old(page.data[-1]):
                return
            place = f"&{after}={checked_id(page.data[-1].id)}"
        raise UpstreamFailed("too much was made since to look for one of ours")

    async def results(
        self, path: str, read: Callable[[bytes], VendorResult], lines: int, deadline_s: float
    ) -> AsyncGenerator[VendorResult, None]:
        """A download's lines; refused ones are cleared of our credential.

        A line that cannot be read is skipped without affecting others; the reader can try again.

        Raises:
            ResultsTooLong: after the results that were not too much for so many `lines`.
            UpstreamFailed: also if it is cut or, at its end, if lines were skipped: nobody knows
                whose they were, and the vendor may have answered them.
        """
        route = self._make_route(path, {})
        bytes_max = min(RESULT_BYTES_MAX, (lines + 1) * RESULT_LINE_BYTES_MAX)
        reply = await self._egress.fetch(route, deadline_s, bytes_max)
        try:
            if reply.status // 100 != 2:  # noqa: PLR2004
                raise _refusal(reply)
            count = unread = 0
            async for line in json_lines(_bounded(reply, bytes_max), RESULT_LINE_BYTES_MAX):
                count += 1
                if count > TIMES_TOLD * lines:
                    raise ResultsTooLong("the upstream's batch service gave too many results")
                if not count % LINES_AT_ONCE:
                    await asyncio.sleep(0)
                result = await _result(read, line)
                if result is None:
                    unread += 1
                    continue
                if result.kind == "refused":
                    result = structs.replace(result, body=reply.without_proof(result.body))
                if result.upstream_ids:
                    ids = [name for said in result.upstream_ids for name in reply.named(said)]
                    result = structs.replace(result, upstream_ids=tuple(ids))
                yield result
            if unread:
                raise UpstreamMalformed("the upstream's batch service gave what is no result")
        finally:
            await reply.close()


async def _bounded(reply: EgressReply, bytes_max: int) -> AsyncIterator[bytes]:
    """The data that arrives, up to this limit; raises ResultsTooLong."""
    try:
        async for piece in reply.chunks():
            yield piece
    except UpstreamMalformed as error:
        if reply.body_bytes > bytes_max:
            raise ResultsTooLong("the upstream's batch service answered without end") from error
        raise


async def _result(read: Callable[[bytes], VendorResult], line: bytes) -> VendorResult | None:
    """A line's result; None if it is not a result, or holds more than any answer does.

    A long one is counted and decoded off the loop, one at a time.
    """
    with suppress(UpstreamMalformed):
        if len(line) <= SHORT_BYTES_MAX:
            return read(line)
        await asyncio.to_thread(weighed, line)
        return await asyncio.to_thread(read, line)
    return None


_GONE = frozenset({404, 410})


async def _good(reply: EgressReply) -> bytes:
    try:
        if reply.status // 100 != 2:  # noqa: PLR2004
            await reply.read()
            raise _refusal(reply)
        raw = await reply.read()
        if len(raw) > ANSWER_BYTES_MAX:
            raise UpstreamMalformed("the upstream's batch service answered at too great length")
        check_json(raw)
        return raw
    finally:
        await reply.close()


def _refusal(reply: EgressReply) -> UpstreamRefused:
    return UpstreamRefused(
        "The upstream's batch service refused.",
        upstream_status=reply.status,
        retry_after_s=reply.retry_after_s,
    )


def read_wire(decoder: msgspec.json.Decoder[Wire], raw: bytes) -> Wire:
    """Raises UpstreamMalformed unless it has the promised shape."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UpstreamMalformed(
            "the upstream's batch service answered with something else"
        ) from None


def ids_of(*said: Any) -> tuple[str, ...]:
    """Ids of a call, without malformed ones, which are no reason to lose the answer."""
    return tuple(each for each in said if isinstance(each, str) and each)


def checked_id(vendor_id: str) -> str:
    """An id of the vendor's that is safe in a path.

    Raises:
        UpstreamMalformed: it is not.
    """
    if _ID.fullmatch(vendor_id) is None:
        raise UpstreamMalformed("the upstream's batch service named something oddly")
    return vendor_id
