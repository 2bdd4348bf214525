"""The thread that computes: drains the scheduler step by step and hands out text as it comes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from local_engine.core.scheduler import Scheduler, Step
from local_engine.core.sequence import FinishReason, Sequence
from local_engine.runner.model_runner import ModelRunner
from local_engine.runner.sampler import SampledToken
from local_engine.serve.log import log_event
from local_engine.text.detokenize import IncrementalDetokenizer, StopStringFilter


@dataclass(frozen=True, slots=True)
class Output:
    """What one step added to a sequence."""

    text: str
    tokens: tuple[SampledToken, ...]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The step failed; nothing more comes for this sequence."""

    error_type: str


class Generation:
    """A sequence with its way back to text and to whoever waits for it.

    `emit` is called on the worker's thread.
    """

    def __init__(
        self,
        sequence: Sequence,
        detokenizer: IncrementalDetokenizer,
        emit: Callable[[Output | Failure], None],
    ) -> None:
        self.sequence = sequence
        self.emit = emit
        self._detokenizer = detokenizer
        self._stop_filter = StopStringFilter(sequence.params.stop)

    def accept(self, sampled: SampledToken, eos_token_ids: tuple[int, ...]) -> Output:
        """Append the token; text held back is part of a later output."""
        self.sequence.append(sampled.token_id, eos_token_ids)
        is_end_token = sampled.token_id in eos_token_ids
        fresh = "" if is_end_token else self._detokenizer.push(sampled.token_id)
        if self.sequence.is_finished:
            fresh += self._detokenizer.finish()
        release = self._stop_filter.push(fresh)
        text = release.text
        if release.is_stopped:
            self.sequence.finish(FinishReason.STOP)
        elif self.sequence.is_finished:
            text += self._stop_filter.finish()
        shown = () if is_end_token else (sampled,)
        return Output(text, shown, self.sequence.finish_reason)


class Worker:
    """One thread, one runner, one scheduler; `submit` and `abort` may come from any thread."""

    def __init__(self, runner: ModelRunner, scheduler: Scheduler) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._generations: dict[str, Generation] = {}
        self._condition = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="engine-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the current step; sequences still there are dropped."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        self._thread.join()

    def submit(self, generation: Generation) -> None:
        """Queue a generation; raises `QueueFull`."""
        with self._condition:
            self._scheduler.add(generation.sequence)
            self._generations[generation.sequence.sequence_id] = generation
            self._condition.notify()

    def abort(self, sequence: Sequence) -> None:
        """Stop computing a sequence after the step that is running; finished ones are ignored."""
        with self._condition:
            if not sequence.is_finished:
                sequence.finish(FinishReason.ABORT)
                self._forget(sequence)

    def queue_lengths(self) -> tuple[int, int]:
        """How many sequences wait and run."""
        with self._condition:
            return self._scheduler.num_waiting, self._scheduler.num_running

    def _run(self) -> None:
        while (step := self._next_step()) is not None:
            try:
                sampled = self._runner.execute(step)
            except Exception as error:  # noqa: BLE001 - the worker loop outlives one bad sequence
                self._fail(step, type(error).__name__)
            else:
                self._conclude(step, sampled)

    def _next_step(self) -> Step | None:
        with self._condition:
            while not self._is_stopping and not self._scheduler.has_work:
                self._condition.wait()
            return None if self._is_stopping else self._scheduler.schedule()

    def _conclude(self, step: Step, sampled: SampledToken | None) -> None:
        with self._condition:
            generation = self._generations.get(step.sequence.sequence_id)
            if generation is None:
                # Aborted while the step ran: the runner has put its cache back meanwhile.
                self._runner.free(step.sequence.sequence_id)
                return
            if sampled is None:
                return
            output = generation.accept(sampled, self._runner.spec.eos_token_ids)
            if step.sequence.is_finished:
                self._forget(step.sequence)
            # Under the lock, so that nothing is emitted once `abort` has returned.
            generation.emit(output)

    def _fail(self, step: Step, error_type: str) -> None:
        # The message of an error may quote tensors or text; its type is enough for the log.
        log_event("engine.step_failed", error_type=error_type)
        with self._condition:
            generation = self._generations.get(step.sequence.sequence_id)
            step.sequence.finish(FinishReason.ABORT)
            self._forget(step.sequence)
            if generation is not None:
                generation.emit(Failure(error_type))

    def _forget(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence)
        self._generations.pop(sequence.sequence_id, None)
        self._runner.free(sequence.sequence_id)
