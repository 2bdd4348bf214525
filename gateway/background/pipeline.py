"""A `Pipeline` whose callers may leave: the second half of such a request goes on without them.

The first half is the same for every request, so that what is refused is refused at once. Upstreams
are always asked for a stream, so that nothing ends a long answer while it is arriving.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import structs

from gateway.background.following import Followers
from gateway.background.ruled_again import narrowed
from gateway.background.runner import Runner
from gateway.continuing.threads import at_least
from gateway.dispatch.attempts import AttemptLog
from gateway.errors import GatewrightError, Unauthenticated
from gateway.heads import Begin, answer_headers
from gateway.intake import Asked, Intake, Stages
from gateway.pacing.pings import Pings, Write
from gateway.passage import Arrival, Passage
from gateway.pipeline import Pipeline, StreamedAnswer, WholeAnswer
from gateway.projects import project_of
from gateway.relay import Relay
from gateway.rollout.versions import Governing
from gateway.routing import planning
from gateway.routing.planning import Ruling
from gateway.snapshot import Snapshot
from gateway.types import ChatRequest, Principal
from policies.program import PolicyDocument


SETTLED_S = 60.0
"""How much longer than an answer may take its money is reserved: by then its end is written."""
_KEY_OVER = "The key that asked for this answer is not valid any more."


class Governed(NamedTuple):
    """What applies to a key at one moment."""

    snapshot: Snapshot
    principal: Principal
    governing: Governing
    document: PolicyDocument


class BackgroundIntake(Intake):
    """An `Intake` that gives background answers more time, if there is room for them."""

    def __init__(self, stages: Stages, runner: Runner) -> None:
        super().__init__(stages)
        self._runner = runner
        self._most_s = stages.settings.responses.background_deadline_s

    def defer(
        self, arrival: Arrival, principal: Principal, request: ChatRequest, ruling: Ruling
    ) -> tuple[Arrival, Ruling]:
        del principal
        if is_away(request):
            self._runner.check_room(len(request.raw))
            plan = structs.replace(
                ruling.plan,
                deadline_s=self._most_s,
                reserved_for_s=self._most_s + SETTLED_S,
            )
            ruling = structs.replace(ruling, plan=plan)
        return arrival, ruling

    def governed_now(self, passage: Passage, snapshot: Snapshot) -> Governed:
        """What applies to a passage that has waited; raises Unauthenticated if its key is over."""
        key = snapshot.keys.live(passage.principal.key_id, self.clock.utc_us())
        if key is None:
            raise Unauthenticated(_KEY_OVER)
        governing = snapshot.policies.governing(key.principal)
        return Governed(snapshot, key.principal, governing, governing.document_for(key.principal))

    async def rule_again(self, passage: Passage, by: Governed) -> Passage:
        """A passage that has waited, as it may be sent by what applies now; its intent stays.

        Raises:
            GatewrightError: it may be sent to no target, or not as it was let through.
        """
        snapshot, principal, governing, governed = by
        request, then = passage.request, passage.ruling
        arrival = structs.replace(passage.arrival, snapshot=snapshot)
        planning.check_model(request, snapshot.board, governed, principal.models)
        reads = governing.facts_read(governed)
        inspection = at_least(
            await self._inspector.inspect(request, principal.organisation, reads, principal.key_id),
            request,
        )
        asked = Asked(
            *(arrival, principal, request, inspection, governing, governed),
            passage.reservation.accounts,
            passage.permit,
        )
        # Its own money is reserved already, so it is judged by what was left before that.
        now = self._ruling(asked, then.facts.budget_left_microusd, self.clock.utc_us())
        plan = self.dispatcher.prepare(passage.sent, narrowed(then, now), principal.translation)
        return structs.replace(passage, ruling=structs.replace(then, plan=plan))


class BackgroundPipeline(Pipeline):
    """Answers at once, with an answer that can be fetched later, if the request wants that."""

    def __init__(
        self,
        stages: Stages,
        runner: Runner,
        followers: Followers,
        current: Callable[[], Snapshot],
    ) -> None:
        """`current` gives the snapshot of this moment."""
        intake = BackgroundIntake(stages, runner)
        super().__init__(stages, intake)
        self._waited, self._current = intake, current
        self._runner = runner
        self._followers = followers

    async def _stream(self, passage: Passage, begin: Begin) -> StreamedAnswer | WholeAnswer:  # type: ignore[override]
        if not is_away(passage.request):
            return await super()._stream(passage, begin)
        try:
            answer = await self._runner.accept(_Half(self, passage))
        except GatewrightError as error:
            concluded = await self._conclusion.failed(passage, AttemptLog(), error)
            error.evidence = answer_headers(passage, None, concluded=concluded)
            raise
        except BaseException as error:
            await asyncio.shield(self._break_off(passage, AttemptLog(), error))
            raise
        headers = answer_headers(passage, None)
        thread = passage.request.thread
        if thread is None or not thread.is_followed:
            return WholeAnswer(answer.response, headers)
        place = (project_of(passage.principal), answer.answer_id)
        return StreamedAnswer(headers, partial(self._followers.relay, place))

    async def make(
        self,
        passage: Passage,
        deadline_s: float,
        write: Write,
        check_lease: Callable[[], None],
    ) -> bytes:
        """See `under_way.SecondHalf.answer`."""
        plan = structs.replace(passage.ruling.plan, deadline_s=deadline_s)
        passage = structs.replace(passage, ruling=structs.replace(passage.ruling, plan=plan))
        attempts, whole = AttemptLog(), [b""]
        attempts.check_lease = check_lease

        async def keep(_: Passage, response: bytes) -> None:
            whole[0] = response

        def begun(_: Mapping[str, str] = {}) -> Write:
            return write

        pings = Pings(self._limits.ping_every_s, begun, bytes)
        try:
            live = await self._answers.open_stream(passage, attempts)
        except GatewrightError as error:
            try:
                await self._conclusion.failed(passage, attempts, error)
            finally:
                await pings.stop()
            raise
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
            keep=keep,
            pings=pings,
        )
        await relay.run(write)
        return whole[0]

    async def rule_again(self, half: "_Half") -> None:
        """See `under_way.SecondHalf.rule_again`."""
        by = self._waited.governed_now(half.passage, self._current())
        # Its outcome says which policy was asked, whatever that says.
        half.passage = structs.replace(half.passage, ruled_again=by.document.digest)
        half.passage = await self._waited.rule_again(half.passage, by)

    async def never_begun(self, passage: Passage, error: BaseException) -> None:
        """See `under_way.SecondHalf.never_begun`."""
        attempts = AttemptLog()
        if isinstance(error, GatewrightError):
            await self._conclusion.failed(passage, attempts, error)
        else:
            await self._break_off(passage, attempts, error)


class _Half:
    """The second half of one request."""

    def __init__(self, pipeline: BackgroundPipeline, passage: Passage) -> None:
        self._pipeline = pipeline
        self.passage = passage

    async def rule_again(self) -> None:
        await self._pipeline.rule_again(self)

    async def answer(
        self, deadline_s: float, write: Write, check_lease: Callable[[], None]
    ) -> bytes:
        return await self._pipeline.make(self.passage, deadline_s, write, check_lease)

    async def never_begun(self, error: BaseException) -> None:
        await self._pipeline.never_begun(self.passage, error)


def is_away(request: ChatRequest) -> bool:
    """Whether the caller does not wait for the answer."""
    return request.thread is not None and request.thread.background
