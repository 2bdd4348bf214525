"""Carries a live stream to the caller, and ends it honestly.

A stream that broke ends with an error event and no terminal event; one that is whole ends only
after its outcome is durable. When the caller leaves, the upstream is cut before anything else.
"""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.attempts import AttemptLog, end_code
from gateway.conclusion import Conclusion
from gateway.dispatch import LiveStream
from gateway.errors import GatewrightError, UpstreamFailed
from gateway.passage import Passage
from gateway.ports import StreamEncoder
from gateway.tally import Tally


Write = Callable[[bytes], Awaitable[None]]


class Relay:
    """One stream on its way to one caller."""

    def __init__(
        self,
        passage: Passage,
        attempts: AttemptLog,
        live: LiveStream,
        conclusion: Conclusion,
        kept_bytes_max: int,
    ) -> None:
        self._passage = passage
        self._attempts = attempts
        self._live = live
        self._conclusion = conclusion
        self._tally = Tally(kept_bytes_max)

    async def run(self, write: Write) -> None:
        """Write the whole answer, whatever its end."""
        request = self._passage.request
        encoder = self._passage.arrival.dialect.stream_encoder(request, self._live.source)
        try:
            await self._carry(encoder, write)
        except UpstreamFailed as error:
            await write(await self._failure(encoder, error))
            return
        except BaseException as error:
            # The upstream is cut first: every token it still makes would be paid for.
            await self._live.close()
            await asyncio.shield(self._break_off(error))
            raise
        finally:
            await self._live.close()
        try:
            ending = await self._finish(encoder)
        except GatewrightError as error:
            ending = encoder.fail(error, request.request_id)
        await write(ending)

    async def _carry(self, encoder: StreamEncoder, write: Write) -> None:
        while events := await self._live.next_batch():
            self._tally.add(events)
            if data := encoder.encode(events):
                await write(data)

    async def _finish(self, encoder: StreamEncoder) -> bytes:
        passage, candidate = self._passage, self._live.candidate
        concluded = await self._conclusion.answered(
            passage,
            self._attempts,
            candidate.target,
            self._tally.usage(passage.request.input_tokens_estimate),
            self._tally.content,
            self._live.dropped,
        )
        return encoder.finish(
            f"x-gatewright-cost-microusd={concluded.cost_microusd} "
            f"x-gatewright-receipt={concluded.receipt}"
        )

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
