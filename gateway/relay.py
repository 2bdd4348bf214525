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
from gateway.passage import UNMET, Passage, is_unenforced, unmet_format
from gateway.pings import Pings, Write
from gateway.ports import StreamEncoder
from gateway.tally import Tally


Keep = Callable[[Passage, bytes], Awaitable[None]]


class Relay:
    """One stream on its way to one caller."""

    def __init__(
        self,
        passage: Passage,
        attempts: AttemptLog,
        live: LiveStream,
        conclusion: Conclusion,
        *,
        kept_bytes_max: int,
        keep: Keep,
        pings: Pings,
    ) -> None:
        self._passage = passage
        self._attempts = attempts
        self._live = live
        self._conclusion = conclusion
        kept = passage.ruling.plan.audit_content
        self._tally = Tally(kept_bytes_max, by_channel=kept == "redacted")
        self._keep = keep
        self._said: list[str] | None = [] if is_unenforced(live.dropped) else None
        """The answer's text, where its format has to be looked at in the end."""
        self._pings = pings
        self._has_written = False

    async def run(self, write: Write) -> bool:
        """Write the whole answer, whatever its end; whether the body may end as if it were whole.

        Where a dialect has no event for an error, a body that just ends would look complete.
        """
        request, pings = self._passage.request, self._pings
        encoder = self._passage.arrival.dialect.stream_encoder(request, self._live.source)
        pings.go_on(write, encoder.ping)
        try:
            await self._carry(encoder, write, pings)
        except UpstreamFailed as error:
            await pings.stop()
            await write(await self._failure(encoder, error))
            return not encoder.is_cut_on_failure
        except BaseException as error:
            # The upstream is cut first: every token it still makes would be paid for.
            await self._live.close(error)
            await asyncio.shield(self._break_off(error))
            if self._has_written and isinstance(error, Exception):
                await pings.stop()
                await write(encoder.fail(_told(error), request.request_id))
            raise
        finally:
            await pings.stop()
            await self._live.close()
        try:
            ending = await self._finish(encoder)
        except GatewrightError as error:
            await write(encoder.fail(error, request.request_id))
            return not encoder.is_cut_on_failure
        await write(ending)
        return True

    async def _carry(self, encoder: StreamEncoder, write: Write, pings: Pings) -> None:
        while events := await self._live.next_batch():
            self._tally.add(events)
            if self._said is not None:
                self._said += [
                    delta.text for event in events for delta in event.deltas if delta.kind == "text"
                ]
            if data := encoder.encode(events):
                pings.is_quiet = False
                await write(data)
                self._has_written = True

    async def _finish(self, encoder: StreamEncoder) -> bytes:
        passage, candidate = self._passage, self._live.candidate
        usage = self._tally.usage(passage.request.input_tokens_estimate)
        dropped = self._live.dropped
        unmet = unmet_format(passage, dropped, "".join(self._said or ()))
        concluded = await self._conclusion.answered(
            passage,
            self._attempts,
            candidate.target,
            usage,
            self._tally.content,
            (*dropped, UNMET) if unmet else dropped,
        )
        told = self._told_late()
        if usage.estimated:
            told += " x-gatewright-usage=estimated"
        if unmet:
            told += f" x-gatewright-schema=unmet at {unmet}"
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

    def _told_late(self) -> str:
        """What the head would have said, had it not been sent with a ping before the answer."""
        if not self._pings.have_begun:
            return ""
        told = f" x-gatewright-target={self._live.candidate.target.name}"
        if self._live.dropped and self._passage.principal.translation != "lenient":
            told += f" x-gatewright-dropped={','.join(self._live.dropped)}"
        return told

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


def _told(error: Exception) -> GatewrightError:
    """What a caller may hear of a failure of ours in the middle of an answer."""
    if isinstance(error, GatewrightError):
        return error
    return GatewrightError("The gateway failed to serve this request.")
