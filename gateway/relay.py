"""Carries a live stream to the caller, and ends it honestly.

A stream that broke ends with an error event and no terminal event; one that is whole ends only
after its outcome is durable. When the caller leaves, the upstream is cut before anything else.
"""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.attempts import AttemptLog, end_code
from gateway.catalogue import saved_by_cache
from gateway.conclusion import Conclusion
from gateway.dispatch import LiveStream
from gateway.errors import GatewrightError, UpstreamFailed
from gateway.passage import Passage
from gateway.ports import StreamEncoder
from gateway.settings import Limits
from gateway.tally import Tally


Write = Callable[[bytes], Awaitable[None]]
Keep = Callable[[Passage, bytes], Awaitable[None]]


class Relay:
    """One stream on its way to one caller."""

    def __init__(
        self,
        passage: Passage,
        attempts: AttemptLog,
        live: LiveStream,
        conclusion: Conclusion,
        limits: Limits,
        keep: Keep,
    ) -> None:
        self._passage = passage
        self._attempts = attempts
        self._live = live
        self._conclusion = conclusion
        self._tally = Tally(limits.audited_reply_bytes_max)
        self._ping_every_s = limits.ping_every_s
        self._keep = keep

    async def run(self, write: Write) -> None:
        """Write the whole answer, whatever its end."""
        request = self._passage.request
        encoder = self._passage.arrival.dialect.stream_encoder(request, self._live.source)
        pings = _Pings(encoder, write, self._ping_every_s)
        try:
            await self._carry(encoder, write, pings)
        except UpstreamFailed as error:
            await pings.stop()
            await write(await self._failure(encoder, error))
            return
        except BaseException as error:
            # The upstream is cut first: every token it still makes would be paid for.
            await self._live.close()
            await asyncio.shield(self._break_off(error))
            raise
        finally:
            await pings.stop()
            await self._live.close()
        try:
            ending = await self._finish(encoder)
        except GatewrightError as error:
            ending = encoder.fail(error, request.request_id)
        await write(ending)

    async def _carry(self, encoder: StreamEncoder, write: Write, pings: "_Pings") -> None:
        while events := await self._live.next_batch():
            self._tally.add(events)
            if data := encoder.encode(events):
                pings.is_quiet = False
                await write(data)

    async def _finish(self, encoder: StreamEncoder) -> bytes:
        passage, candidate = self._passage, self._live.candidate
        usage = self._tally.usage(passage.request.input_tokens_estimate)
        concluded = await self._conclusion.answered(
            passage,
            self._attempts,
            candidate.target,
            usage,
            self._tally.content,
            self._live.dropped,
        )
        told = " x-gatewright-usage=estimated" if usage.estimated else ""
        if saved := saved_by_cache(candidate.target.price, usage):
            told += f" x-gatewright-cache-saved-microusd={saved}"
        ending = encoder.finish(
            f"x-gatewright-cost-microusd={concluded.cost_microusd} "
            f"x-gatewright-receipt={concluded.receipt}{told}",
            usage,
        )
        if encoder.response:
            # Before its caller sees the end: it may be continued at once.
            await self._keep(passage, encoder.response)
        return ending

    async def _failure(self, encoder: StreamEncoder, error: GatewrightError) -> bytes:
        """The error event of a stream that broke, once that is on record."""
        try:
            await self._break_off(error)
        except GatewrightError as unrecorded:
            error = unrecorded
        return encoder.fail(error, self._passage.request.request_id)

    async def _break_off(self, error: BaseException) -> None:
        passage = self._passage
        await self._conclusion.broken_off(
            passage,
            self._attempts,
            self._live.candidate.target,
            self._tally.usage_so_far(passage.request.input_tokens_estimate),
            self._tally.content,
            end_code(error),
        )


class _Pings:
    """Writes for the relay, and says something harmless whenever nothing was written for a while.

    A timer looks once per period whether there was anything: a timer for each piece would cost more
    than the piece.
    """

    __slots__ = ("_encoder", "_every_s", "_task", "_timer", "_write", "is_quiet")

    def __init__(self, encoder: StreamEncoder, write: Write, every_s: float) -> None:
        self._encoder = encoder
        self._write = write
        self._every_s = every_s
        self.is_quiet = True
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(every_s, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._every_s, self._look)
        if self.is_quiet and (self._task is None or self._task.done()):
            self._task = loop.create_task(self._ping())
        self.is_quiet = True

    async def _ping(self) -> None:
        await self._write(self._encoder.ping())

    async def stop(self) -> None:
        """No ping after this; one under way is let through, so that no two writes mix."""
        self._timer.cancel()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait((task,))
