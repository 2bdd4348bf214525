"""Carries a live stream to the caller, and ends it honestly.

A broken stream ends with an error event and no terminal event; a complete one ends only after its
outcome is durable. When the caller leaves, the upstream is cut off before anything else.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from gateway.admission.plausible_counts import believing
from gateway.answers.checks import UNMET, is_unenforced, on_trial, unmet_format, unsound
from gateway.answers.traits import AnswerTraits
from gateway.caching.kept_streams import NotedStream, RepeatedStream
from gateway.conclusion import Conclusion
from gateway.dispatch.attempts import AttemptLog, end_code
from gateway.dispatch.live_stream import LiveStream, TakePlain
from gateway.errors import GatewrightError, UpstreamFailed
from gateway.heads import ending_headers, late_headers
from gateway.pacing.pings import Direct, Pings, Push, Write, never_direct
from gateway.passage import Passage
from gateway.ports import StreamEncoder
from gateway.tally import Tally, read_tokens
from gateway.types import StreamEvent


Keep = Callable[[Passage, bytes], Awaitable[None]]


class Relay:
    """One stream on its way to one caller."""

    def __init__(
        self,
        passage: Passage,
        attempts: AttemptLog,
        live: LiveStream | NotedStream | RepeatedStream,
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
        self._by_channel = passage.ruling.plan.audit_content == "redacted"
        self._tally = Tally(
            kept_bytes_max,
            vendor=live.candidate.target.vendor,
            by_channel=self._by_channel,
            is_silent=live.candidate.output_tokens_cap == 0,
            believe=believing(passage.request, live.candidate),
        )
        live.counted_by(self._tally)
        self._keep = keep
        tried = on_trial(passage)
        self._traits = AnswerTraits() if tried is not None else None
        is_looked_at = tried is not None and "format" in tried.checks
        is_looked_at = is_looked_at or is_unenforced(live.dropped)
        self._said: list[str] | None = [] if is_looked_at else None
        """The answer's text, where its format has to be checked at the end."""
        self._pings = pings
        self._has_written = False

    async def run(self, write: Write, direct: Direct = never_direct) -> bool:
        """Write the answer to its end; returns whether the body may end as if it were complete.

        Where a dialect has no event for an error, a body that just ends would look complete.
        """
        request, pings = self._passage.request, self._pings
        encoder = self._passage.arrival.dialect.stream_encoder(request, self._live.source)
        pings.go_on(write, encoder.ping)
        try:
            await self._carry(encoder, write, direct)
            # Here, because a ping may be stuck at a caller who reads nothing, and then leaves.
            await pings.stop()
        except UpstreamFailed as error:
            ending = await self._failure(encoder, error)
            await pings.stop()
            await write(ending)
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

    async def _carry(self, encoder: StreamEncoder, write: Write, direct: Direct) -> None:
        """Pass on what arrives. Once the answer has begun, no task is woken for each piece."""
        while events := await self._live.next_batch():
            if data := self._next(encoder, events):
                await write(data)
                self._has_written = True
            push = direct() if self._has_written else None
            if push is not None:
                await self._live.flow(
                    partial(self._pass_on, encoder, push), self._plainly(encoder, push)
                )
                # This only waits for a slow caller.
                await write(b"")

    def _plainly(self, encoder: StreamEncoder, push: Push) -> TakePlain | None:
        """The function that takes events of plain text, if nothing here looks at the text."""
        is_looked_at = self._traits is not None or self._said is not None or self._by_channel
        plain = None if is_looked_at else encoder.plain(push)
        if plain is None:
            return None
        count, pings = self._tally.add_plain, self._pings

        def pass_plain(words: list[str], raw: bytes) -> bool:
            count(words, raw)
            pings.is_quiet = False
            return plain(raw)

        return pass_plain

    def _pass_on(self, encoder: StreamEncoder, push: Push, events: list[StreamEvent]) -> bool:
        data = self._next(encoder, events)
        return bool(data) and push(data)

    def _next(self, encoder: StreamEncoder, events: list[StreamEvent]) -> bytes:
        """Count these events; the bytes that the caller gets of them."""
        self._tally.add(events)
        if self._traits is not None:
            self._traits.see(events)
        if self._said is not None:
            self._said += [
                delta.text for event in events for delta in event.deltas if delta.kind == "text"
            ]
        data = encoder.encode(events)
        if data:
            self._pings.is_quiet = False
        return data

    async def _finish(self, encoder: StreamEncoder) -> bytes:
        passage, candidate = self._passage, self._live.candidate
        vendor = candidate.target.vendor
        read = 0 if self._tally.knows_input else read_tokens(passage.request, vendor)
        usage = self._tally.usage(read)
        dropped = self._live.dropped
        text = "".join(self._said or ())
        unmet = unmet_format(passage, dropped, text)
        concluded = await self._conclusion.answered(
            passage,
            self._attempts,
            candidate.target,
            usage,
            self._tally.content,
            (*dropped, UNMET) if unmet else dropped,
            stop_reason=self._tally.stop_reason,
            unsound=partial(unsound, passage, self._traits or AnswerTraits(), text),
        )
        told = {
            "x-gatewright-cost-microusd": concluded.cost_microusd,
            "x-gatewright-receipt": concluded.receipt,
        }
        if self._pings.have_begun:
            told |= {**late_headers(passage, candidate, dropped), **self._attempts.told}
        told |= ending_headers(self._attempts, candidate.target, usage, unmet)
        ending = encoder.finish(" ".join([f"{name}={told[name]}" for name in told]), usage)
        if encoder.response:
            # Before the caller sees the end, since it may continue the answer at once.
            await self._keep(passage, encoder.response)
        return ending

    async def _failure(self, encoder: StreamEncoder, error: GatewrightError) -> bytes:
        """The error event of a stream that broke, once the break is recorded."""
        try:
            await self._live.close(error)
            await self._break_off(error)
        except GatewrightError as unrecorded:
            error = unrecorded
        return encoder.fail(error, self._passage.request.request_id)

    async def _break_off(self, error: BaseException) -> None:
        """Record the break, after the stream is closed: only then is its result known."""
        await self._conclusion.broken_off(
            self._passage, self._attempts, self._tally.content, end_code(error)
        )


def _told(error: Exception) -> GatewrightError:
    """What a caller may be told of a failure of ours in the middle of an answer."""
    if isinstance(error, GatewrightError):
        return error
    return GatewrightError("The gateway failed to serve this request.")
