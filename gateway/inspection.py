"""Runs the classifiers over a request, within a deadline; the one place where CPU leaves the loop.

Unknown, failed or late inspection counts as the most sensitive class: fail closed. It knows labels
and counts; the values that were found stay inside the classifiers.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf

from classifiers.complexity.model import ComplexityModel
from classifiers.extraction import extract
from classifiers.inspection import inspect_extraction
from classifiers.pii.scanner import PATTERNS_ONLY, Scanner
from gateway.clock import Clock
from gateway.settings import InspectionSettings
from gateway.telemetry import Event, logger, raised_at
from gateway.types import ChatRequest, Inspection, Tier


MOST_SENSITIVE = "S4"
TIERS: Mapping[str, Tier] = {"light": "cheap", "standard": "mid", "demanding": "frontier"}
US_PER_S = 1e6
BYTES_PER_MIB = 1 << 20


class Inspector:
    """Request → Inspection; never raises anything but a cancellation."""

    def __init__(
        self,
        settings: InspectionSettings,
        scorer: ComplexityModel,
        clock: Clock,
        scanner: Scanner = PATTERNS_ONLY,
    ) -> None:
        self._tolerated = frozenset(settings.tolerated_opaque)
        self._deadline_s = settings.deadline_s
        self._deadline_s_per_byte = settings.deadline_s_per_mib / BYTES_PER_MIB
        self._inline_bytes_max = settings.inline_bytes_max
        self._scorer = scorer
        self._scanner = scanner
        self._clock = clock
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inspection")
        self._log = logger()

    async def inspect(self, request: ChatRequest) -> Inspection:
        """Look at every string of the request once."""
        started_s = self._clock.monotonic_s()
        try:
            if len(request.raw) <= self._inline_bytes_max:
                return self._classify(request, started_s)
            loop = asyncio.get_running_loop()
            limit_s = self._deadline_s + len(request.raw) * self._deadline_s_per_byte
            async with asyncio.timeout(limit_s):
                return await loop.run_in_executor(
                    self._threads, self._classify, request, started_s, started_s + limit_s
                )
        except TimeoutError:
            return self._unknown("deadline", started_s)
        except Exception as error:  # noqa: BLE001 - a broken classifier must close, not open
            self._log.error(
                Event.INSPECTION_FAILED,
                request_id=request.request_id,
                error_class=type(error).__name__,
                where=raised_at(error),
            )
            return self._unknown("failed", started_s)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _classify(
        self, request: ChatRequest, started_s: float, deadline_s: float = inf
    ) -> Inspection:
        extraction = extract(request.tree)
        result = inspect_extraction(
            extraction,
            self._tolerated,
            self._scanner,
            lambda: self._clock.monotonic_s() >= deadline_s,
        )
        complexity = self._scorer.assess(extraction.newest_user_text())
        return Inspection(
            data_class=result.data_class.name,
            findings=result.counts,
            complete=result.complete,
            incomplete_reasons=result.reasons,
            complexity=complexity.score,
            complexity_tier=TIERS.get(complexity.tier, "frontier"),
            classifier_version=complexity.model_version,
            duration_us=self._elapsed_us(started_s),
        )

    def _unknown(self, reason: str, started_s: float) -> Inspection:
        return Inspection(
            data_class=MOST_SENSITIVE,
            findings={},
            complete=False,
            incomplete_reasons=(reason,),
            complexity=1.0,
            complexity_tier="frontier",
            classifier_version="",
            duration_us=self._elapsed_us(started_s),
        )

    def _elapsed_us(self, started_s: float) -> int:
        return round((self._clock.monotonic_s() - started_s) * US_PER_S)
