"""The journey of one request, in order. Read this file first, then `intake`.

The first half ends with an intent that is durable; only then `dispatch` sends a byte. The second
half begins here: the outcome is durable before the caller sees the end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from msgspec import Struct, structs

from gateway.admission.answer_bounds import SHORT_BYTES_MAX
from gateway.admission.plausible_counts import believing
from gateway.answers.checks import UNMET, unmet_format, unsound_whole
from gateway.answers.traits import stopped_by
from gateway.dispatch.attempts import AttemptLog, end_code
from gateway.dispatch.dispatcher import Answered
from gateway.errors import GatewrightError
from gateway.heads import (
    Begin,
    answer_headers,
    begin_early,
    cap_headers,
    ending_headers,
    fail_late,
    ping_early,
)
from gateway.intake import Intake, Stages
from gateway.pacing.pings import Direct, Pings, Write
from gateway.passage import Arrival, Passage
from gateway.relay import Relay
from gateway.tally import usage_of
from gateway.types import Completion


class WholeAnswer(Struct, frozen=True):
    """A complete answer, ready to be sent."""

    body: bytes
    headers: Mapping[str, str]


class StreamedAnswer(Struct, frozen=True):
    """An answer that is still arriving; `relay` writes it to its end, directly where possible.

    `relay` returns whether the body may end like that of a complete answer; if not, it is cut off.
    """

    headers: Mapping[str, str]
    relay: Callable[[Write, Direct], Awaitable[bool]]


class Pipeline:
    """Both halves of a journey."""

    def __init__(self, stages: Stages, intake: Intake | None = None) -> None:
        """`intake` replaces the usual first half."""
        self.intake = intake or Intake(stages)
        self._answers = stages.answers
        self._conclusion = stages.conclusion
        self._threads = stages.threads
        self._dispatcher = stages.dispatcher
        self._turns = stages.turns
        self._limits = stages.settings.limits

    async def serve(
        self, arrival: Arrival, read_body: Callable[[], Awaitable[bytes]], begin: Begin
    ) -> WholeAnswer | StreamedAnswer:
        """Take one request from the door to its answer.

        `begin` is called when a stream's caller must be sent something before there is an answer.

        Raises:
            GatewrightError: the answer is an error; its outcome has been recorded.
        """
        try:
            passage = await self.intake.let_through(arrival, read_body)
            is_stream = passage.request.stream
            return await (self._stream(passage, begin) if is_stream else self._complete(passage))
        except BaseException:
            await self._threads.let_go(arrival.request_id)
            raise

    def _complete(self, passage: Passage) -> Awaitable[WholeAnswer]:
        attempts = AttemptLog()
        return self._end(passage, attempts, lambda: self._answers.complete(passage, attempts))

    async def _end(
        self, passage: Passage, attempts: AttemptLog, answer: Callable[[], Awaitable[Answered]]
    ) -> WholeAnswer:
        """Read an answer and conclude; whatever happens, there is an outcome afterwards."""
        try:
            answered = await answer()
            await self._turns
            if len(answered.completion.raw) > SHORT_BYTES_MAX:
                encode = partial(self._encoded, passage, answered)
                upstream = answered.candidate.target.name
                completion, body = await self._dispatcher.long_answers.encode(upstream, encode)
            else:
                completion, body = self._encoded(passage, answered)
        except GatewrightError as error:
            concluded = await self._conclusion.failed(passage, attempts, error)
            error.evidence = answer_headers(passage, None, concluded=concluded)
            raise
        except BaseException as error:
            await asyncio.shield(self._break_off(passage, attempts, error))
            raise
        target, usage = answered.candidate.target, completion.usage
        unmet = unmet_format(passage, answered.dropped, completion.text)
        concluded = await self._conclusion.answered(
            passage,
            attempts,
            target,
            usage,
            completion.raw[: self._limits.audited_reply_bytes_max],
            (*answered.dropped, UNMET) if unmet else answered.dropped,
            stop_reason=stopped_by(completion),
            unsound=partial(unsound_whole, passage, completion),
        )
        if passage.request.thread is not None:
            await self._threads.keep(passage, body)
        headers = answer_headers(passage, target, answered.dropped, concluded)
        headers |= cap_headers(passage, answered.candidate)
        headers |= attempts.told
        headers |= ending_headers(attempts, target, usage, unmet)
        return WholeAnswer(body, headers)

    def _encoded(self, passage: Passage, answered: Answered) -> tuple[Completion, bytes]:
        """The answer, always with a usage, and the bytes that its caller gets."""
        completion, request = answered.completion, passage.request
        # A veiled request was sent in other words, so the request's bounds do not fit its usage.
        usage = answered.usage if passage.veil is None else None
        if usage is None:
            candidate = answered.candidate
            believe = believing(request, candidate)
            usage = usage_of(completion, request, candidate.target.vendor, believe)
        if usage is not completion.usage:
            completion = structs.replace(completion, usage=usage)
        return completion, passage.arrival.dialect.encode_reply(
            completion, answered.source, request
        )

    async def _stream(self, passage: Passage, begin: Begin) -> StreamedAnswer:
        attempts = AttemptLog()
        pings = Pings(
            self._limits.ping_every_s,
            partial(begin_early, passage, begin),
            partial(ping_early, passage),
        )
        try:
            live = await self._answers.open_stream(passage, attempts)
        except GatewrightError as error:
            # Recorded before the wait for a ping: the caller may be about to leave.
            try:
                concluded = await self._conclusion.failed(passage, attempts, error)
            finally:
                await pings.stop()
            if not pings.have_begun:
                error.evidence = answer_headers(passage, None, concluded=concluded)
                raise
            await self._threads.let_go(passage.request.request_id)
            return StreamedAnswer({}, partial(fail_late, passage, error))
        except BaseException as error:
            pings.cancel()
            await asyncio.shield(self._break_off(passage, attempts, error))
            raise
        relay = Relay(
            passage,
            attempts,
            live,
            self._conclusion,
            kept_bytes_max=self._limits.audited_reply_bytes_max,
            keep=self._threads.keep,
            pings=pings,
        )
        headers = answer_headers(passage, live.candidate.target, live.dropped)
        headers |= cap_headers(passage, live.candidate)
        run = relay.run
        if passage.request.thread is not None:
            run = partial(self._threads.letting_go, passage.request.request_id, run)
        return StreamedAnswer({**headers, **attempts.told}, run)

    async def _break_off(
        self, passage: Passage, attempts: AttemptLog, error: BaseException
    ) -> None:
        """The caller left, or we failed, before anything came back: what was sent may be billed."""
        await self._conclusion.broken_off(passage, attempts, b"", end_code(error))
