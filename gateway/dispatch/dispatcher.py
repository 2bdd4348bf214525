"""Walks a plan: one attempt per candidate until one answers; the gateway owns every retry.

The walk itself is in `walking`; here is what comes back from it: a whole answer or a live stream.
It knows no vendor, no money and no audit: it takes a plan and a request and gives back an answer,
or raises what the last attempt said.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct, structs

from gateway.admission.bounds import answers_of
from gateway.admission.hosted_tools import offers_hosted_tools
from gateway.clock import Clock
from gateway.dispatch.attempts import NO_ANSWER, AttemptLog, RunningAttempt
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.hedging import HEDGE
from gateway.dispatch.retrying import RetryBudget
from gateway.dispatch.walking import Ground, Walk
from gateway.errors import (
    FeatureUnsupported,
    GatewrightError,
    StreamBroken,
)
from gateway.money.catalogue import PARAMETER_FIELDS
from gateway.ports import (
    Dialect,
    Provider,
    StreamDecoder,
    UpstreamBody,
    UpstreamReply,
)
from gateway.tally import Tally, read_tokens, tokens_of, usage_of
from gateway.turns import Turns
from gateway.types import (
    CUT_SHORT,
    Candidate,
    ChatRequest,
    Completion,
    DialectName,
    Plan,
    StreamEvent,
    Translation,
    Usage,
)
from gateway.veiling.rewriting import AnswerRewriter


HELD_EVENTS_MAX = 64
HELD_BYTES_MAX = 256 * 1024


class Answered(Struct, frozen=True):
    """A whole answer and who gave it."""

    candidate: Candidate
    source: DialectName
    completion: Completion
    dropped: tuple[str, ...]
    attempt: int = NO_ANSWER


class LiveStream:
    """A stream whose first content has arrived; must be closed."""

    def __init__(
        self,
        candidate: Candidate,
        source: DialectName,
        reply: UpstreamReply,
        decoder: StreamDecoder,
        attempt: RunningAttempt,
        rewriting: AnswerRewriter | None = None,
    ) -> None:
        self.candidate = candidate
        self._lift = rewriting.lifted() if rewriting is not None else None
        self.source = source
        self.dropped: tuple[str, ...] = ()
        self._reply = reply
        self._decoder = decoder
        self._chunks = reply.chunks()
        self._held: list[StreamEvent] = []
        self._ended = False
        self._broken: StreamBroken | None = None
        """An error of the upstream's that came in one read with content before it."""
        self._attempt = attempt
        self._counted = self._uncounted()
        self._was_refused = False
        attempt.counted = self._owed

    @property
    def attempt(self) -> int:
        """Its attempt's number."""
        return self._attempt.number

    def counted_by(self, tally: Tally) -> None:
        """Whoever reads it from now on counts it: nothing is counted twice."""
        self._counted = tally

    def _uncounted(self) -> Tally:
        candidate = self.candidate
        return Tally(0, vendor=candidate.target.vendor, is_silent=candidate.output_tokens_cap == 0)

    def _owed(self) -> Usage | None:
        """What its upstream asks for what it sent: all that was read, passed on or not."""
        tally = self._counted.and_then(self._held)
        if self._was_refused and tally.is_empty:
            return None
        tokens = 0 if tally.knows_input else self._attempt.read_tokens()
        return tally.usage(tokens) if self._ended else tally.usage_so_far(tokens)

    async def hold_until_content(self) -> None:
        """Read until the caller could see something, so that an error before it can fall back.

        Bounded: an upstream that only ever says hello is let through.
        """
        held_bytes = 0
        while not self._ended:
            events = await self._read()
            self._held += events
            if any(event.has_content for event in events):
                return
            held_bytes += sum(len(event.raw) for event in events)
            if len(self._held) >= HELD_EVENTS_MAX or held_bytes >= HELD_BYTES_MAX:
                return

    async def next_batch(self) -> list[StreamEvent]:
        """The events of the next network read; empty after the terminal event.

        One coroutine for each level: a stream of generators was resumed for every token.

        Raises:
            StreamBroken: the upstream ended, cut or reported an error before the terminal event.
            UpstreamFailed: the connection broke, stalled or sent something else.
        """
        if self._held:
            held, self._held = self._held, []
            return held
        if self._ended:
            self._attempt.end(None)
            return []
        try:
            return await self._read()
        except GatewrightError as error:
            self._attempt.end(error)
            raise

    async def flow(self, take: Callable[[list[StreamEvent]], bool]) -> None:
        """Hand events to `take` as they arrive, until it has enough or the stream is over.

        `next_batch` goes on from there, and says what went wrong. Raises like it.
        """
        if self._held or self._ended:
            return

        def read(data: bytes) -> bool:
            events = self._lifted(self._checked(self._decoder.feed(data)))
            has_enough = bool(events) and take(events)
            return has_enough or self._ended or self._broken is not None

        try:
            await self._reply.flow(read)
        except GatewrightError as error:
            self._attempt.end(error)
            raise

    async def _read(self) -> list[StreamEvent]:
        """At least one event, or an error."""
        if self._broken is not None:
            raise self._broken
        async for data in self._chunks:
            if events := self._lifted(self._checked(self._decoder.feed(data))):
                return events
            if self._broken is not None:
                raise self._broken
        events = self._lifted(self._checked(self._decoder.close()))
        if not self._ended and not events:
            raise StreamBroken("The upstream's stream ended before its terminal event.")
        return events

    def _lifted(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Events as the caller sees them; of some it is not known yet what may be shown."""
        return self._lift.events(events) if events and self._lift is not None else events

    def put_back(self, events: list[StreamEvent]) -> None:
        """Events that were read and are to be read again; nothing was shown yet."""
        self._held = events
        self._counted = self._uncounted()

    def _checked(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """The events, up to an error among them; it is raised at once unless content came first."""
        for place, event in enumerate(events):
            if event.is_terminal:
                self._ended = True
            elif not event.has_content and _is_error(event):
                broken = StreamBroken(_said_of(event))
                if not any(before.has_content for before in events[:place]):
                    self._was_refused = True
                    self._held += events[:place]
                    raise broken
                self._broken = broken
                return events[:place]
        return events

    async def close(self, cause: BaseException | None = None) -> None:
        """Give the upstream up; if it was still sending, for this cause or the caller has left."""
        self._attempt.end(cause or asyncio.CancelledError())
        await self._reply.close()


class Dispatcher:
    """Turns a plan into an answer, using providers and dialects it was given."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        dialects: Mapping[DialectName, Dialect],
        health: TargetHealth,
        clock: Clock,
        budget: RetryBudget | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._providers = providers
        self._dialects = dialects
        self._turns = turns or Turns()
        self._ground = Ground(
            *(providers, self._dialect_of, health, budget or RetryBudget(), clock),
            *(self._encode, self._turns),
        )

    def prepare(self, request: ChatRequest, plan: Plan, translation: Translation) -> Plan:
        """The plan without candidates at its head that cannot be asked what the caller asks.

        What has to be converted is converted now, once: before money is reserved or anything is
        written down, and the body is kept for the attempt.

        Those at its head that would be asked for less, because a tool that only another vendor runs
        is left out, come after all others.

        Raises:
            FeatureUnsupported: no candidate can be asked; says what the first one lacks.
        """
        if translation != plan.translation:
            plan = structs.replace(plan, translation=translation)
        refusal: FeatureUnsupported | None = None
        less: list[Candidate] = []
        for index, candidate in enumerate(plan.candidates):
            dialect = self._dialect_of(request, candidate)
            if dialect.name == request.dialect and not _may_be_refused(request):
                return self._from(plan, index, candidate, less)
            try:
                body = self._encode(dialect, request, candidate, plan)
            except FeatureUnsupported as error:
                refusal = refusal or error
                continue
            asked = structs.replace(candidate, body=body.body, dropped=body.dropped)
            if not body.is_less:
                return self._from(plan, index, asked, less)
            less.append(asked)
        if less:
            return structs.replace(plan, candidates=tuple(less))
        raise refusal or FeatureUnsupported("No target is left.")

    def first_body(self, request: ChatRequest, plan: Plan) -> tuple[DialectName, UpstreamBody]:
        """The request as the plan's first candidate would get it; raises FeatureUnsupported."""
        candidate = plan.candidates[0]
        dialect = self._dialect_of(request, candidate)
        return dialect.name, self._encode(dialect, request, candidate, plan)

    def _dialect_of(self, request: ChatRequest, candidate: Candidate) -> Dialect:
        provider = self._providers[candidate.target.provider]
        return self._dialects[provider.speaks(request, candidate.target)]

    @staticmethod
    def _from(plan: Plan, index: int, candidate: Candidate, less: list[Candidate]) -> Plan:
        if index == 0 and candidate is plan.candidates[0]:
            return plan
        rest = plan.candidates[index + 1 :]
        return structs.replace(plan, candidates=(candidate, *rest, *less))

    @staticmethod
    def _encode(
        dialect: Dialect, request: ChatRequest, candidate: Candidate, plan: Plan
    ) -> UpstreamBody:
        if candidate.body:
            return UpstreamBody(candidate.body, candidate.dropped)
        body = dialect.encode_request(request, candidate.target, candidate.output_tokens_cap)
        if body.dropped and plan.translation == "strict":
            names = ", ".join(body.dropped)
            raise FeatureUnsupported(
                f"The target has no word for: {names}. This key refuses to leave things out.",
                parameter=body.dropped[0],
            )
        return body

    async def complete(
        self,
        request: ChatRequest,
        plan: Plan,
        log: AttemptLog,
        rewriting: AnswerRewriter | None = None,
    ) -> Answered:
        """A whole answer from the first candidate that gives one."""

        async def receive(
            candidate: Candidate, dialect: Dialect, reply: UpstreamReply, attempt: RunningAttempt
        ) -> Answered:
            attempt.counted = partial(_of_body, reply, request, candidate)
            raw = await reply.read()
            completion = dialect.decode_reply(raw if rewriting is None else rewriting.unveiled(raw))
            attempt.counted = partial(usage_of, completion, request, candidate.target.vendor)
            await self._turns
            await reply.close()
            attempt.end(None)
            return Answered(candidate, dialect.name, completion, (), attempt.number)

        async def give_up(_: Answered) -> None:
            """It came too late, and nothing of it is held."""

        walk = Walk(self._ground, request, plan, log, receive, give_up)
        answer, dropped = await walk.first_answer()
        log.answer = answer.attempt
        return Answered(answer.candidate, answer.source, answer.completion, dropped, answer.attempt)

    async def open_stream(
        self,
        request: ChatRequest,
        plan: Plan,
        log: AttemptLog,
        rewriting: AnswerRewriter | None = None,
    ) -> LiveStream:
        """A stream from the first candidate whose content began to arrive; close it."""

        async def receive(
            candidate: Candidate, dialect: Dialect, reply: UpstreamReply, attempt: RunningAttempt
        ) -> LiveStream:
            live = LiveStream(
                *(candidate, dialect.name, reply),
                dialect.stream_decoder(answers_of(request)),
                *(attempt, rewriting),
            )
            await live.hold_until_content()
            return live

        async def give_up(live: LiveStream) -> None:
            await live.close(asyncio.CancelledError(HEDGE))

        walk = Walk(self._ground, request, plan, log, receive, give_up)
        live, dropped = await walk.first_answer()
        log.answer = live.attempt
        live.dropped = dropped
        return live


def _of_body(reply: UpstreamReply, request: ChatRequest, candidate: Candidate) -> Usage:
    """What an answer costs that had begun and cannot be read: as much as its body may hold."""
    output_tokens = min(tokens_of(reply.body_bytes), candidate.output_tokens_cap)
    input_tokens = read_tokens(request, candidate.target.vendor)
    return Usage(input_tokens, output_tokens, estimated=True)


def _said_of(event: StreamEvent) -> str:
    if any(delta.text == CUT_SHORT for delta in event.deltas):
        return "The upstream's stream ended before all of its answers had."
    return "The upstream reported an error inside its stream."


def _is_error(event: StreamEvent) -> bool:
    return any(delta.kind == "error" for delta in event.deltas)


def _may_be_refused(request: ChatRequest) -> bool:
    """Whether even a target of the caller's own dialect may not do what is asked."""
    tree = request.tree
    is_plain = tree.get("service_tier") is None and tree.get("speed") is None
    if request.wants_json_schema or bool(request.dropped) or not is_plain:
        return True
    return offers_hosted_tools(request) or not PARAMETER_FIELDS.isdisjoint(tree)
