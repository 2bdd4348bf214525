"""Updates metrics and trials and writes a log line after a request has ended.

Nobody waits for any of this, and nothing is decided by it until somebody has looked.
"""

from collections.abc import Callable

from gateway.answers.checks import OnTrial, on_trial
from gateway.errors import DENIED_STATUSES
from gateway.metrics import Metrics
from gateway.passage import Passage
from gateway.recording.evidence import Ending, above_reserved
from gateway.rollout.trials import Trials, shadow_change
from gateway.rollout.versions import Governing
from gateway.routing.planning import Ruling
from gateway.telemetry import Event, logger
from gateway.types import Attempt, AuditRecord, Usage
from policies.decide import decide
from policies.document import ANSWER_CHECKS


NO_USAGE = Usage()
HELD = frozenset({"kept", "escalation_failed"})
"""Endings of cascades whose caller gets the cheap answer, which had been read to its end."""

Unsound = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Names of checks → those that the answer fails."""


def sound(_: tuple[str, ...]) -> tuple[str, ...]:
    """Nothing that was checked failed."""
    return ()


class Aftermath:
    """Counts how requests ended."""

    def __init__(self, metrics: Metrics, trials: Trials) -> None:
        self._metrics = metrics
        self._requests = metrics.requests
        self._own = metrics.requests.own
        self._trials = trials
        self._log = logger().bind()

    def decided(self, governing: Governing, ruling: Ruling) -> None:
        """Count what a shadow policy would have decided instead; it never acts."""
        if governing.shadow is not None:
            change = shadow_change(ruling.decision, decide(governing.shadow, ruling.facts))
            self._metrics.count_shadow(change)

    def refused(self, record: AuditRecord, duration_us: int, *, is_on_record: bool = True) -> None:
        """For a request that was not let through; without a record it has no log line either."""
        self._trials.count(
            record.policy_digest, failed=False, refused=True, duration_us=0, cost_microusd=0
        )
        self._requests.add(("", "refused", "", "", ""), duration_us)
        if not is_on_record:
            return
        self._log.info(
            Event.REQUEST_REFUSED,
            request_id=record.request_id,
            key_id=record.key_id,
            code=record.error,
            status=record.http_status,
            duration_us=duration_us,
        )

    def lost(self, record: AuditRecord) -> None:
        """For a request of which too little is known, with its cost all the same."""
        usage = record.usage or NO_USAGE
        self._requests.add(
            (record.target, "failed", "", "", record.endpoint),
            record.duration_us,
            usage.input_tokens,
            usage.output_tokens,
            record.cost_microusd,
        )

    def ended(
        self,
        passage: Passage,
        ending: Ending,
        duration_us: int,
        unsound: Unsound,
    ) -> None:
        """For a request that was let through; `unsound` is called only if somebody watches."""
        self._count(passage, ending, duration_us, unsound)
        is_of_today = ending.status != "cancelled" and not ending.repeats
        if is_of_today and (tried := on_trial(passage)) is not None:
            self._tried(tried, ending, unsound(tried.checks), duration_us)

    def _count(self, passage: Passage, ending: Ending, duration_us: int, unsound: Unsound) -> None:
        name = ending.target.name if ending.target else ""
        place = ending.target.jurisdiction if ending.target else ""
        usage = ending.usage or NO_USAGE
        data_class = passage.inspection.data_class
        sums = self._requests.add(
            (name, ending.status, data_class, place, passage.arrival.endpoint),
            duration_us,
            usage.input_tokens,
            usage.output_tokens,
            ending.cost_microusd,
        )
        attempts = ending.attempts
        attempt = attempts[0] if len(attempts) == 1 and not ending.extra else None
        if attempt is not None and not (attempt.error or ending.cascade or passage.arrival.errand):
            # Nearly every request: its times are noted where it was counted.
            beside_us = duration_us - attempt.duration_us
            sums.took(attempt.duration_us)
            self._own(beside_us)
            if passage.request.stream:
                sums.spoke(attempt.first_byte_us)
                sums.heard(beside_us + attempt.first_byte_us)
        elif attempts:
            self._attempted(passage, ending, duration_us)
        digest = passage.ruling.decision.document_digest
        if self._trials.watches(digest):
            self._trials.count(
                digest,
                failed=ending.status in {"failed", "incomplete"},
                refused=False,
                duration_us=duration_us,
                cost_microusd=ending.cost_microusd,
                unsound=unsound(ANSWER_CHECKS) if ending.status == "ok" else (),
            )
        if usage.disbelieved:
            self._disbelieved(passage, name, usage.disbelieved)
        if above := above_reserved(passage, ending):
            self._above_reserved(passage, name, above)
        self._log.info(
            Event.REQUEST_SERVED if ending.status == "ok" else Event.REQUEST_FAILED,
            request_id=passage.request.request_id,
            key_id=passage.principal.key_id,
            target=name,
            status=ending.http_status,
            code=ending.error,
            data_class=data_class,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_microusd=ending.cost_microusd,
            duration_us=duration_us,
        )

    def _attempted(self, passage: Passage, ending: Ending, duration_us: int) -> None:
        """Count failed and extra attempts, and time the calls if their times mean anything."""
        for attempt in ending.attempts:
            if attempt.error:
                self._failed(passage, attempt)
        for extra in ending.extra:
            if extra.was_made:
                self._metrics.count_extra_attempt(
                    extra.target, extra.kind, extra.reason, ending.status
                )
            else:
                self._metrics.count_withheld_attempt(extra.target, extra.kind)
        errand = passage.arrival.errand
        if errand is None or not (errand.is_parked or errand.vendor_batch):
            self._timed(passage, ending, duration_us)

    def _timed(self, passage: Passage, ending: Ending, duration_us: int) -> None:
        """Time each call by itself; the times of a vendor's own batch would say little."""
        requests, is_stream = self._requests, passage.request.stream
        endpoint = passage.arrival.endpoint
        upstream_us, heard_us = 0, duration_us
        for attempt in ending.attempts:
            upstream_us += attempt.duration_us
            if attempt.error:
                requests.failed_call(attempt.target, endpoint, attempt.error, attempt.duration_us)
                continue
            sums = requests.of_call(attempt.target, endpoint)
            sums.took(attempt.duration_us)
            if is_stream:
                sums.spoke(attempt.first_byte_us)
                heard_us = duration_us - attempt.duration_us + attempt.first_byte_us
        if is_stream and ending.status == "ok" and ending.target is not None:
            is_held = ending.cascade.get("cascade") in HELD
            heard = requests.of_call(ending.target.name, endpoint).heard
            heard(duration_us if is_held else heard_us)
        if not any(extra.kind == "hedge" and extra.was_made for extra in ending.extra):
            # Two parallel calls together take longer than their request.
            self._own(duration_us - upstream_us)

    def _failed(self, passage: Passage, attempt: Attempt) -> None:
        self._metrics.count_failed_attempt(attempt.target, attempt.error)
        if attempt.status in DENIED_STATUSES:
            self._metrics.count_refused_credential(attempt.target)
        self._log.warning(
            Event.ATTEMPT_FAILED,
            request_id=passage.request.request_id,
            target=attempt.target,
            status=attempt.status,
            code=attempt.error,
            duration_us=attempt.duration_us,
        )

    def _disbelieved(self, passage: Passage, target: str, count: int) -> None:
        self._metrics.count_disbelieved(target)
        request_id = passage.request.request_id
        self._log.warning(
            Event.USAGE_DISBELIEVED, request_id=request_id, target=target, count=count
        )

    def _above_reserved(self, passage: Passage, target: str, above_microusd: int) -> None:
        self._metrics.count_above_reserved(target)
        self._log.warning(
            Event.COST_ABOVE_RESERVED,
            request_id=passage.request.request_id,
            target=target,
            cost_microusd=above_microusd,
        )

    def _tried(
        self, tried: OnTrial, ending: Ending, unsound: tuple[str, ...], duration_us: int
    ) -> None:
        """Count the ending of a request that a canary among the targets could have got."""
        failed = ending.status != "ok"
        self._trials.targets.count(
            tried.trial,
            is_canary=tried.is_canary,
            failed=failed,
            unsound=unsound,
            duration_us=duration_us,
            cost_microusd=ending.cost_microusd,
        )
        results = ("failed",) if failed else unsound or ("ok",)
        arm = "canary" if tried.is_canary else "others"
        for result in results:
            self._metrics.count_trial(tried.trial.rule, arm, result)
