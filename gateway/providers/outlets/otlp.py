"""An OpenTelemetry collector as a web hook whose answer is read and obeyed.

By OTLP's specification a collector may accept a post and reject a part of it, and data that it
calls bad is not sent again. What is lost in this way is counted, and logged once until everything
is accepted again.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from gateway.clock import Clock
from gateway.oversight.exporting import Line, as_spans
from gateway.oversight.otlp_answers import Rejected, one_line, rejected_in
from gateway.oversight.otlp_resource import Source
from gateway.providers.outlets.pause import PAUSE_S_MAX, Pause
from gateway.providers.outlets.webhook import WebHook
from gateway.telemetry import Event, logger


REFUSED_FOR_GOOD = frozenset({400, 413, 422})
"""Bad or too long content stays so. A collector that rejects us (401) or is absent (404) may
not."""
POSTS_MAX = 24
"""For one batch: enough to find a single bad span among 500."""
TURN_S = 30.0
"""Then other sinks have their turn; with the last post it is shorter than a shipper's lease."""
BEGUN_S = PAUSE_S_MAX + TURN_S
"""By then the worker that cut a batch short is back, or has tried again."""
OUT_OF_TURN = "it refuses a part, and the rest waits for its next turn"
_ONE_EACH = (b'"spanId":', b'"timeUnixNano":')
"""Occurs once in every span, and in every point: no more can be rejected than were sent."""

Count = Callable[[str, int], None]
"""Takes a collector's name and how many of its spans or points were rejected."""


class OtlpCollector:
    """Where spans or points are posted."""

    def __init__(self, hook: WebHook, name: str, count: Count) -> None:
        """`name` is its section's in the settings; the hook reads answers."""
        self._hook = hook
        self._name = name
        self._count = count
        self._is_told = False
        self._log = logger()

    @property
    def problem(self) -> str:
        return self._hook.problem

    @property
    def retry_after_s(self) -> float | None:
        return self._hook.retry_after_s

    @property
    def has_refused(self) -> bool:
        """Whether the last post will never be accepted."""
        return self._hook.status in REFUSED_FOR_GOOD

    async def post(self, body: bytes, about: str = "") -> bool:
        """Whether it was accepted, at least in part."""
        if not await self._hook.post(body, about):
            return False
        found = rejected_in(self._hook.answer)
        if found is None:
            self._is_told = False
        else:
            most = max(map(body.count, _ONE_EACH))
            self.rejected(Rejected(min(found.count, most), found.message))
        return True

    def rejected(self, found: Rejected) -> None:
        """Count lost spans or points, and log once until everything is accepted again."""
        if found.count:
            self._count(self._name, found.count)
        if not self._is_told:
            self._is_told = True
            reason = one_line(self._hook.without_secrets(found.message))
            self._log.warning(
                Event.OTLP_REJECTED, component=self._name, count=found.count, reason=reason
            )


class _Begun(Struct, frozen=True):
    """How far a batch came that was cut short, so that the next attempt continues there."""

    sequence: int
    """The sequence of its first line."""
    done: int
    """How many of its lines were accepted, or lost for good."""
    size: int
    """How many lines the next post has."""
    posts: int
    until_s: float
    """Forgotten after this: another worker delivered it, and it may be sent again on purpose."""


class SpanSink:
    """Spans of outcomes, posted to a collector; 2xx confirms."""

    takes_checkpoints = False

    def __init__(
        self, collector: OtlpCollector, kinds: Mapping[str, str], source: Source, clock: Clock
    ) -> None:
        """`kinds` maps the settings' providers to their kinds; `source` describes this worker."""
        self._collector = collector
        self._kinds = kinds
        self._source = source
        self._clock = clock
        self._pause = Pause(clock)
        self._begun: dict[str, _Begun] = {}
        """By organisation, whose lines come in order."""
        self.problem = ""

    async def deliver(self, lines: Sequence[Line]) -> bool:
        """Deliver a batch; one that is refused for good is halved until a bad line stands alone.

        False also if that takes longer than a turn: the next attempt continues there.
        """
        if self._pause.is_on:
            return False
        organisation, begun = self._begun_of(lines)
        due_s = self._clock.monotonic_s() + TURN_S
        rest, posts = lines[begun.done :], begun.posts
        parts = [rest[begun.size :], rest[: begun.size]]
        while parts:
            part = parts.pop()
            is_taken = self._clock.monotonic_s() < due_s and await self._post(part)
            if is_taken is False:
                done = len(lines) - len(part) - sum(map(len, parts))
                until_s = self._clock.monotonic_s() + BEGUN_S
                came = _Begun(begun.sequence, done, len(part), posts, until_s)
                self._begun[organisation] = came
                self.problem = self._collector.problem or OUT_OF_TURN
                return False
            posts += bool(_spans(part))
            if is_taken is None and len(part) > 1 and posts < POSTS_MAX:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
            elif is_taken is None:
                self._collector.rejected(Rejected(_spans(part), self._collector.problem))
        self.problem = ""
        return True

    def _begun_of(self, lines: Sequence[Line]) -> tuple[str, _Begun]:
        """Whose lines they are, and how far they came before."""
        organisation = str(lines[0].get("organisation") or "")
        sequence = int(lines[0].get("sequence") or 0)
        begun = self._begun.pop(organisation, None)
        now_s = self._clock.monotonic_s()
        if begun is None or begun.sequence != sequence or begun.until_s < now_s:
            begun = _Begun(sequence, 0, len(lines), 0, now_s)
        return organisation, begun

    async def _post(self, part: Sequence[Line]) -> bool | None:
        """Whether it was accepted; None if it never will be."""
        body = await asyncio.to_thread(as_spans, part, self._kinds, self._source)
        if not body or await self._collector.post(body):
            return True
        if self._collector.has_refused:
            return None
        self._pause.begin(self._collector.retry_after_s)
        return False


def _spans(lines: Sequence[Line]) -> int:
    return sum(line.get("stage") == "outcome" and not line.get("ended_again") for line in lines)
