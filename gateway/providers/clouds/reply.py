"""A cloud's replies: answers that are passed on, and refusals that have been read to the end."""

from collections.abc import AsyncIterator, Mapping, Sequence

from gateway.errors import NO_RATE_LIMITS
from gateway.ports import Take
from gateway.providers.clouds.refusals import retold
from gateway.providers.egress.reply import EgressReply


class CloudReply:
    """An answer as it came; if it turns out to be an error, callers get a rewritten one."""

    def __init__(self, reply: EgressReply, hidden: Sequence[str]) -> None:
        """`hidden` are texts that nobody is told."""
        self._reply, self._hidden = reply, hidden
        self.status, self.retry_after_s = reply.status, reply.retry_after_s
        self.is_event_stream, self.upstream_ids = reply.is_event_stream, reply.upstream_ids
        self.read, self.flow, self.close = reply.read, reply.flow, reply.close
        self.chunks = reply.chunks

    @property
    def body_bytes(self) -> int:
        return self._reply.body_bytes

    @property
    def rate_limits(self) -> Mapping[str, str]:
        return self._reply.rate_limits

    def told(self, status: int, said: bytes) -> tuple[int, bytes]:
        return retold(status, said, self._hidden)


class Refusal:
    """See `gateway.ports.UpstreamReply`; its body is already in our words."""

    is_event_stream = False

    def __init__(
        self,
        status: int,
        body: bytes,
        retry_after_s: float | None,
        upstream_ids: tuple[str, ...],
    ) -> None:
        self.status, self._body, self.retry_after_s = status, body, retry_after_s
        self.upstream_ids = upstream_ids

    @property
    def body_bytes(self) -> int:
        return len(self._body)

    @property
    def rate_limits(self) -> Mapping[str, str]:
        return NO_RATE_LIMITS

    async def read(self) -> bytes:
        return self._body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def flow(self, take: Take) -> None:
        take(self._body)

    def told(self, status: int, said: bytes) -> tuple[int, bytes]:
        return status, said

    async def close(self) -> None:
        """The connection has already been given back."""
