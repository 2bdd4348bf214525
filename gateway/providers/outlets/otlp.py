"""A collector of OpenTelemetry behind a web hook: what it answers is read, and heeded.

By OTLP's specification a collector may take a post and reject a part of it, and data that it calls
bad is not sent again. What is lost so is counted, and named once until all is kept again.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from gateway.oversight.exporting import Line, as_spans
from gateway.oversight.otlp_answers import Rejected, one_line, rejected_in
from gateway.oversight.otlp_resource import Source
from gateway.providers.outlets.pause import Pause
from gateway.providers.outlets.webhook import WebHook
from gateway.telemetry import Event, logger


REFUSED_FOR_GOOD = frozenset({400, 413, 422})
"""What is bad or too long stays so. Whoever does not know us (401), or is not there (404), will."""
POSTS_MAX = 24
"""For one batch: enough to find a single bad span among 500."""

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
        """Whether the last post will never be taken."""
        return self._hook.status in REFUSED_FOR_GOOD

    async def post(self, body: bytes, about: str = "") -> bool:
        """Whether it was taken, if not in whole."""
        if not await self._hook.post(body, about):
            return False
        found = rejected_in(self._hook.answer)
        if found is None:
            self._is_told = False
        else:
            self.rejected(found)
        return True

    def rejected(self, found: Rejected) -> None:
        """Count what is lost, and say so once until all is kept again."""
        if found.count:
            self._count(self._name, found.count)
        if not self._is_told:
            self._is_told = True
            reason = one_line(self._hook.without_secrets(found.message))
            self._log.warning(
                Event.OTLP_REJECTED, component=self._name, count=found.count, reason=reason
            )


class SpanSink:
    """Spans of outcomes, posted to a collector; 2xx confirms."""

    takes_checkpoints = False

    def __init__(
        self, collector: OtlpCollector, kinds: Mapping[str, str], source: Source, pause: Pause
    ) -> None:
        """`kinds` are the settings' providers each with its kind; `source` is of this worker."""
        self._collector = collector
        self._kinds = kinds
        self._source = source
        self._pause = pause

    @property
    def problem(self) -> str:
        return self._collector.problem

    async def deliver(self, lines: Sequence[Line]) -> bool:
        """A batch that is refused for good is halved, until what is bad stands alone."""
        if self._pause.is_on:
            return False
        parts, posts = [lines], 0
        while parts:
            part = parts.pop()
            body = await asyncio.to_thread(as_spans, part, self._kinds, self._source)
            if not body or await self._collector.post(body):
                posts += bool(body)
                continue
            posts += 1
            if not self._collector.has_refused:
                self._pause.begin(self._collector.retry_after_s)
                return False
            if len(part) == 1 or posts >= POSTS_MAX:
                self._collector.rejected(Rejected(_spans(part), self._collector.problem))
            else:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
        return True


def _spans(lines: Sequence[Line]) -> int:
    return sum(line.get("stage") == "outcome" and not line.get("ended_again") for line in lines)
