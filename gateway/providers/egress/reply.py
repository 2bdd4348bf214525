"""An upstream's reply as it arrives: what its headers say, and how long its body may be."""

import math
import re
from collections.abc import AsyncIterator, Mapping
from email.utils import parsedate_to_datetime

from msgspec import Struct

from gateway.errors import (
    NO_RATE_LIMITS,
    UpstreamMalformed,
)
from gateway.ports import Take
from gateway.providers.egress.connection import TOO_LARGE, Connection
from gateway.providers.egress.kept_headers import RATE_LIMIT_HEADERS, REQUEST_IDS
from gateway.providers.egress.pool import Origin, Pool
from gateway.providers.egress.upstream_ids import ids_in


_PROOF = re.compile(rb"(?im)^(?:authorization: \S+ |(?:x-)?api-key: )(\S{6,})\r?$")
_LENGTH = re.compile(r"[0-9]{1,20}")
"""More digits are zeros: the parser takes any number of them, and Python reads 4300."""
_HARMLESS = re.compile(r"[0-9A-Za-z.:+-]{1,40}")
"""Numbers, durations and times: all that a rate-limit header needs."""

RETRY_AFTER_S_MAX = 86_400.0
REFUSAL_BYTES_MAX = 1024 * 1024 + 1
"""Of a longer refusal only the status is reported (`gateway.dispatch.refusals`)."""


class EgressLimits(Struct, frozen=True):
    """Bounds on what an upstream may cost us; the settings have the same names as numbers here."""

    first_byte_s: float = 120.0
    """From sending to the reply's headers, including the wait for a connection of the pool."""
    idle_s: float = 60.0
    """Between two pieces of a body, while we wait for it."""
    reply_bytes_max: int = 32 * 1024 * 1024
    connections_per_host_max: int = 1024
    keep_alive_s: float = 15.0
    may_be_coded: bool = False
    """Whether a compressed body is left unread instead of counting as a failure."""


class EgressReply:
    """An upstream's answer whose headers have arrived; see `gateway.ports.UpstreamReply`."""

    __slots__ = (
        "_body_bytes",
        "_connection",
        "_deadline",
        "_head",
        "_is_closed",
        "_length_bytes",
        "_limits",
        "_origin",
        "_pool",
        "is_coded",
        "is_event_stream",
        "retry_after_s",
        "status",
        "upstream_ids",
    )

    def __init__(
        self,
        pool: Pool,
        origin: Origin,
        connection: Connection,
        limits: EgressLimits,
        deadline: float,
        head: bytes = b"",
    ) -> None:
        """`head` is what was sent before the body; our credential in it is told to nobody."""
        self._head = head
        self._pool, self._origin, self._connection = pool, origin, connection
        self._limits, self._deadline = limits, deadline
        self._is_closed = False
        self._length_bytes: int | None = None
        """The length that the head states."""
        self._body_bytes = 0
        """Set on closing: afterwards the connection's figures may belong to another reply."""
        self.status = 0
        self.is_coded = False
        """Whether its body is compressed, and so cannot be read."""
        self.is_event_stream = False
        self.retry_after_s: float | None = None
        self.upstream_ids: tuple[str, ...] = ()

    def examine(self) -> None:
        """Read the head that has arrived; from here on its body's limits hold.

        Raises:
            UpstreamMalformed: it is a redirect, or its body is compressed although it must not be.
        """
        self._connection.expect_until(self._deadline, self._limits.idle_s)
        headers, self.status = self._connection.headers, self._connection.status
        length = headers.get("content-length", "")
        self._length_bytes = int(length) if _LENGTH.fullmatch(length) else None
        self.is_event_stream = headers.get("content-type", "").startswith("text/event-stream")
        self._connection.body_bytes_max = self._limits.reply_bytes_max
        if self.status // 100 not in (2, 4, 5):
            raise UpstreamMalformed("the upstream answered with a redirect or an unknown status")
        flaw = _coding(headers)
        if flaw and not self._limits.may_be_coded:
            raise UpstreamMalformed(flaw)
        self.is_coded = bool(flaw)
        if self.status // 100 != 2:  # noqa: PLR2004
            self.retry_after_s = parse_retry_after(headers)
        if (said := headers.get(REQUEST_IDS)) is not None:
            self.upstream_ids = ids_in(said, _PROOF.findall(self._head))

    @property
    def rate_limits(self) -> Mapping[str, str]:
        """Only for a refusal: on a good answer they would show how busy other callers are."""
        if self.status // 100 == 2:  # noqa: PLR2004
            return NO_RATE_LIMITS
        headers = self._connection.headers
        return {
            name: headers[name]
            for name in headers.keys() & RATE_LIMIT_HEADERS
            if _HARMLESS.fullmatch(headers[name])
        }

    @property
    def body_bytes(self) -> int:
        if self._is_closed:
            return self._body_bytes
        told = self._length_bytes
        return self._connection.body_bytes if told is None else told

    async def read(self) -> bytes:
        if self._length_bytes is not None and self._length_bytes > self._limits.reply_bytes_max:
            await self.close()
            raise UpstreamMalformed(TOO_LARGE)
        if self._connection.is_complete and not self._is_closed:
            # A small answer came with its head: no waiting.
            try:
                whole = self._connection.take()
            finally:
                await self.close()
        else:
            pieces = [piece async for piece in self]
            whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self.status // 100 == 2:  # noqa: PLR2004
            return whole
        return self.without_proof(whole[:REFUSAL_BYTES_MAX])

    def named(self, said: str) -> tuple[str, ...]:
        """The upstream's ids in an answer's body, as far as a record may repeat them."""
        return ids_in(said, _PROOF.findall(self._head))

    def without_proof(self, whole: bytes) -> bytes:
        """A refusal with our credential removed, in case it repeats it."""
        for proof in _PROOF.findall(self._head):
            whole = whole.replace(proof, b"[removed]")
        return whole

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._is_closed:
            raise StopAsyncIteration
        try:
            piece = await self._connection.read()
        except UpstreamMalformed:
            await self.close()
            raise
        if not piece:
            await self.close()
            raise StopAsyncIteration
        return piece

    async def flow(self, take: Take) -> None:
        if not self._is_closed:
            await self._connection.flow(take)

    def told(self, status: int, said: bytes) -> tuple[int, bytes]:
        return status, said

    async def close(self) -> None:
        if not self._is_closed:
            self._body_bytes = self.body_bytes
            self._is_closed = True
            self._pool.give_back(self._origin, self._connection)


def _coding(headers: Mapping[str, str]) -> str:
    """What is wrong with a body's coding; empty if nothing."""
    if (headers.get("content-encoding") or "identity") != "identity":
        return "the upstream compressed its reply although it must not"
    if headers.get("transfer-encoding", "chunked").lower() != "chunked":
        # Inside the chunks may be gzip, which the parser hands on as the body.
        return "the upstream coded its reply although it must not"
    return ""


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after` in either of its forms.

    Names are in lower case. A date is compared with the upstream's own `date`, so that no clock has
    to be right. The result is never longer than a day.
    """
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            wait_s = float(milliseconds) / 1000
        elif (value := headers.get("retry-after")) is None:
            return None
        elif value.isdigit():
            wait_s = float(value)
        else:
            wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])
            wait_s = wait.total_seconds()
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    return None if math.isnan(wait_s) else min(max(0.0, wait_s), RETRY_AFTER_S_MAX)
