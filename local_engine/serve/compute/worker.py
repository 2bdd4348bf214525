"""The process that computes: messages in, one step after another, updates out.

One loop, no locks: read the requests, plan a step, compute it, report what it added. With overlap
the next step is planned while this one is computed. An abort is read between two steps, so its
blocks are back in the pool before the next one is planned.
"""

import select
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from local_engine.core.limits import NeverFits, QueueFull
from local_engine.core.prefix_cache import extend_hashes
from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import PromptTooLong, Sequence
from local_engine.core.step import Step
from local_engine.core.tiers import tier_named
from local_engine.runner.choosing import Result
from local_engine.runner.model_runner import ModelRunner, Prepared
from local_engine.runner.occupancy import Gauge
from local_engine.runner.overlap import Computed, choose_lane
from local_engine.runner.sampler import SampledToken
from local_engine.runner.speculative import MAX_SPECULATING, Drafter, may_speculate
from local_engine.serve.cache_log import HASH_BYTES, encode_news
from local_engine.serve.compute.identity import WorkerIdentity
from local_engine.serve.log import log_event
from local_engine.serve.wire import (
    Abort,
    CacheNews,
    Chain,
    Chained,
    ClearCache,
    Embed,
    Embedded,
    Failed,
    Frames,
    Stats,
    Stop,
    Submit,
    Token,
    Update,
    Updates,
    encode,
)
from local_engine.text.grammar import Grammar, GrammarCompiler, GrammarRefused


_READ_BYTES = 1 << 20
# While a request waits for a grammar nothing wakes the loop; it polls at this interval.
_GRAMMAR_POLL_S = 0.005
# After so many steps an idle moment is used to count all blocks.
_CHECK_EVERY_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was started, and how to get its results."""

    step: Step
    land: Callable[[], Computed]


class Worker:
    """Serves one socket until it is closed or told to stop."""

    def __init__(
        self,
        link: socket.socket,
        runner: ModelRunner,
        scheduler: Scheduler,
        identity: WorkerIdentity,
        grammars: GrammarCompiler | None = None,
        drafter: Drafter | None = None,
        *,
        is_overlapping: bool = False,
    ) -> None:
        self._link = link
        self._runner = runner
        self._scheduler = scheduler
        self._identity = identity
        self._grammars = grammars
        self._drafter = drafter
        self._context_window = min(runner.spec.context_window, scheduler.most_tokens)
        self._frames = Frames.for_worker()
        self._occupancy = Gauge(runner.device)
        self._sequences: dict[str, Sequence] = {}
        self._texts: dict[str, list[int]] = {}
        """Texts to be embedded, in the order they came."""
        self._compiling: dict[str, Future[Grammar]] = {}
        self._compilers = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._lane = choose_lane(runner, is_ahead=is_overlapping)
        self._flight: Flight | None = None
        self._is_stopping = False
        self._checked_at_step = 0
        self._num_steps = self._prompt_tokens = self._cached_tokens = 0
        self._draft_tokens = self._accepted_tokens = 0
        self._handlers: dict[type, Callable[..., None]] = {
            Submit: self._submit,
            Abort: self._abort,
            Embed: self._embed,
            Chain: self._chain,
            ClearCache: lambda _: self._clear(),
            Stop: self._stop,
        }

    def run(self) -> None:
        """Loop until the other side hangs up or says `Stop`."""
        try:
            # An engine without requests so far has figures too.
            self._send(Updates([], self.stats()))
            while not self._is_stopping:
                is_idle = not self._advance()
                self._drain(is_idle=not self._embed_next() and is_idle)
        except (BrokenPipeError, ConnectionResetError):
            return
        finally:
            self._lane.close()
            self._compilers.shutdown(wait=False, cancel_futures=True)

    def stats(self) -> Stats:
        scheduler = self._scheduler
        return Stats(
            scheduler.num_waiting,
            scheduler.num_running,
            scheduler.limits.num_blocks,
            scheduler.blocks.pool.num_free,
            scheduler.num_preemptions,
            self._num_steps,
            self._prompt_tokens,
            self._cached_tokens,
            self._draft_tokens,
            self._accepted_tokens,
            scheduler.blocks.num_host_blocks_used,
            *self._occupancy.read(),
        )

    def _advance(self) -> bool:
        """Start the next step and conclude the previous one; false if there was neither."""
        before, prepared = self._flight, self._plan()
        self._flight = None
        if prepared is not None:
            self._flight = Flight(prepared.step, self._lane.start(prepared))
        outcome = None if before is None else self._land(before)
        if before is not None and outcome is not None:
            self._conclude(before.step, outcome)
        if self._flight is not None and not self._lane.is_ahead:
            flight, self._flight = self._flight, None
            outcome = self._land(flight)
            if outcome is not None:
                self._conclude(flight.step, outcome)
        return before is not None or prepared is not None

    def _plan(self) -> Prepared | None:
        step = self._scheduler.schedule() if self._scheduler.has_work else None
        if step is None:
            return None
        if self._drafter is not None:
            self._drafter.apply(step.copies)
        prepared = self._runner.prepare(step)
        if self._lane.is_ahead:
            self._scheduler.expect(step)
        return prepared

    def _land(self, flight: Flight) -> Computed | None:
        """The results of a step; None if it failed, which is reported to its sequences."""
        try:
            return flight.land()
        except Exception as error:  # noqa: BLE001 - the worker loop outlives one bad step
            self._fail(flight.step, type(error).__name__)
            return None

    def _are_blocks_whole(self) -> bool:
        """Whether every block is accounted for; if not, a new worker starts with a clean pool."""
        if self._num_steps - self._checked_at_step < _CHECK_EVERY_STEPS:
            return True
        self._checked_at_step = self._num_steps
        try:
            self._scheduler.check()
        except AssertionError as error:
            log_event("engine.blocks_lost", reason=str(error))
            return False
        return True

    def _drain(self, *, is_idle: bool) -> None:
        """Read every message there is; wait for one if there is nothing else to do."""
        if is_idle and not self._are_blocks_whole():
            self._is_stopping = True
            return
        timeout_s = (_GRAMMAR_POLL_S if self._compiling else None) if is_idle else 0.0
        while select.select([self._link], [], [], timeout_s)[0]:
            data = self._link.recv(_READ_BYTES)
            if not data:
                self._is_stopping = True
                return
            for message in self._frames.push(data):
                self._handlers[type(message)](message)
            timeout_s = 0.0
        self._attach_grammars()

    def _conclude(self, step: Step, computed: Computed) -> None:
        """Apply the results of a step, and report them."""
        results = computed.results
        num_prompt_tokens = step.num_tokens - step.num_decode_tokens
        if step.items:
            self._scheduler.pace.observe(step.num_decode_tokens, num_prompt_tokens, computed.took_s)
            self._num_steps += 1
        tokens = {name: result.token_ids for name, result in results.items()}
        lengths = {item.sequence.sequence_id: len(item.sequence.token_ids) for item in step.items}
        self._count(step, tokens)
        self._scheduler.complete(step, tokens, self._runner.spec.eos_token_ids)
        self._guess()
        updates = []
        for item in step.items:
            sequence = item.sequence
            result = results[sequence.sequence_id]
            num_new = len(sequence.token_ids) - lengths[sequence.sequence_id]
            if num_new or result.prompt_logprobs:
                updates.append(_update(sequence, result, num_new))
            if sequence.is_finished:
                self._forget(sequence)
        self._tell_cache()
        self._send(Updates(updates, self.stats()))
        for item in step.items:
            result = results[item.sequence.sequence_id]
            if item.sequence.is_finished:
                continue
            if result.is_broken:
                self._break(item.sequence)
            elif result.refusal is not None:
                self._refuse(item.sequence, result.refusal)

    def _tell_cache(self) -> None:
        """Report what happened to cached blocks since the last report."""
        number, events = self._scheduler.events.take_new()
        if events:
            self._send(CacheNews(number, encode_news(events)))

    def _clear(self) -> None:
        self._scheduler.blocks.clear_cache()
        self._tell_cache()

    def _chain(self, message: Chain) -> None:
        size = self._scheduler.limits.block_size
        hashes: list[bytes] = []
        if self._identity.has_group(message.tenant):
            salt = self._identity.salt(message.tenant, message.data_class)
            extend_hashes(hashes, salt, message.token_ids, len(message.token_ids), size)
        chain = b"".join(each[:HASH_BYTES] for each in hashes)
        self._send(Chained(message.request_id, size, chain))

    def _guess(self) -> None:
        """Draft tokens for the next step, while few enough sequences run for it to pay off."""
        if self._drafter is not None and self._scheduler.num_running <= MAX_SPECULATING:
            ready = [each for each in self._sequences.values() if may_speculate(each)]
            self._drafter.propose(ready)

    def _count(self, step: Step, tokens: dict[str, list[int]]) -> None:
        for item in step.items:
            sequence = item.sequence
            if item.is_sampled and sequence.num_output_tokens == 0:
                self._prompt_tokens += sequence.num_prompt_tokens
                self._cached_tokens += sequence.num_cached_tokens
            if item.num_drafts:
                self._draft_tokens += item.num_drafts
                self._accepted_tokens += max(0, len(tokens[sequence.sequence_id]) - 1)

    def _fail(self, step: Step, error_type: str) -> None:
        # The message of an error may quote tensors or text; its type is enough for the log.
        log_event("engine.step_failed", error_type=error_type)
        for sequence in {item.sequence for item in step.items}:
            self._scheduler.end(sequence)
            self._forget(sequence)
            self._send(Failed(sequence.sequence_id, "engine_failed"))
        if not self._runner.is_usable():
            # Every later step would fail, too: a new process gets the device back.
            log_event("engine.device_lost")
            self._is_stopping = True

    def _submit(self, message: Submit) -> None:
        try:
            sequence = Sequence(
                message.sequence_id,
                message.token_ids,
                message.params,
                context_window=self._context_window,
                tier=tier_named(message.tier),
                tenant=message.tenant,
                salt=self._identity.salt(
                    message.tenant, message.data_class, message.request_id, message.cache_salt
                ),
                is_zeroed=message.is_zeroed,
            )
            sequence.is_grammar_ready = message.params.grammar is None
            self._scheduler.add(sequence)
        except QueueFull as error:
            self._send(Failed(message.sequence_id, "queue_full", str(error)))
        except (NeverFits, PromptTooLong) as error:
            self._send(Failed(message.sequence_id, "context_length_exceeded", str(error)))
        else:
            self._sequences[sequence.sequence_id] = sequence
            self._start_compiling(sequence)

    def _start_compiling(self, sequence: Sequence) -> None:
        text = sequence.params.grammar
        if text is None:
            return
        if self._grammars is None:
            self._refuse(sequence, "grammars are not available")
            return
        is_kept = self._identity.has_group(sequence.tenant) and not sequence.is_zeroed
        group = sequence.salt if is_kept else None
        thinking = sequence.params.thinking
        future = self._compilers.submit(self._grammars.compile, text, group, thinking)
        self._compiling[sequence.sequence_id] = future

    def _attach_grammars(self) -> None:
        for name in [name for name, future in self._compiling.items() if future.done()]:
            future = self._compiling.pop(name)
            sequence = self._sequences.get(name)
            if sequence is None:
                continue
            try:
                self._runner.attach_grammar(sequence, future.result())
                sequence.is_grammar_ready = True
            except GrammarRefused as error:
                self._refuse(sequence, str(error))

    def _refuse(self, sequence: Sequence, reason: str) -> None:
        self._scheduler.end(sequence)
        self._forget(sequence)
        self._send(Failed(sequence.sequence_id, "invalid_grammar", reason))

    def _break(self, sequence: Sequence) -> None:
        log_event("engine.scores_broken", dtype=str(self._runner.dtype).removeprefix("torch."))
        self._scheduler.blocks.disown(sequence)
        self._scheduler.end(sequence)
        self._forget(sequence)
        self._send(Failed(sequence.sequence_id, "engine_failed"))

    def _abort(self, message: Abort) -> None:
        self._texts.pop(message.sequence_id, None)
        sequence = self._sequences.get(message.sequence_id)
        if sequence is not None:
            self._scheduler.end(sequence)
            self._forget(sequence)
            self._send(Updates([], self.stats()))

    def _embed(self, message: Embed) -> None:
        if len(self._texts) >= self._scheduler.limits.max_waiting:
            self._send(Failed(message.request_id, "queue_full"))
        else:
            self._texts[message.request_id] = message.token_ids

    def _embed_next(self) -> bool:
        """Embed one text between two steps, so that no answer waits for a whole pile of texts."""
        if not self._texts:
            return False
        request_id = next(iter(self._texts))
        try:
            embedding = self._runner.embed(self._texts.pop(request_id))
        except Exception as error:  # noqa: BLE001 - the worker loop outlives one bad text
            log_event("engine.embedding_failed", error_type=type(error).__name__)
            self._send(Failed(request_id, "engine_failed"))
        else:
            self._send(Embedded(request_id, embedding))
        return True

    def _stop(self, _: Stop) -> None:
        self._is_stopping = True

    def _forget(self, sequence: Sequence) -> None:
        self._sequences.pop(sequence.sequence_id, None)
        compiling = self._compiling.pop(sequence.sequence_id, None)
        if compiling is not None:
            compiling.cancel()  # There is one thread for all of them.
        self._runner.free(sequence.sequence_id)
        if self._drafter is not None:
            self._drafter.free(sequence.sequence_id)

    def _send(self, message: object) -> None:
        self._link.sendall(encode(message))


def _update(sequence: Sequence, result: Result, num_new: int) -> Update:
    return Update(
        sequence.sequence_id,
        [_token(token) for token in result.tokens[:num_new]],
        None if sequence.finish_reason is None else sequence.finish_reason.value,
        sequence.num_cached_tokens,
        [_token(token) for token in result.prompt_logprobs],
    )


def _token(token: SampledToken) -> Token:
    top = [(entry.token_id, entry.logprob) for entry in token.top]
    return Token(token.token_id, token.logprob, top, token.rank)
