"""The engine as the event loop sees it: conversations in, outputs out, cancelled by closing."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from collections.abc import Sequence as Messages
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from local_engine.core.sampling_params import InvalidParameter, SamplingParams
from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import FinishReason, Sequence
from local_engine.model.errors import ModelRefused
from local_engine.model.loader import load_model
from local_engine.model.spec import (
    ModelSpec,
    SamplingDefaults,
    read_model_name,
    read_sampling_defaults,
)
from local_engine.runner.model_runner import ModelRunner, choose_device
from local_engine.serve.metrics import Metrics
from local_engine.serve.worker import Failure, Generation, Output, Worker
from local_engine.text.detokenize import IncrementalDetokenizer
from local_engine.text.template import TemplateMessage
from local_engine.text.tokenizer import ChatTokenizer, load_chat_tokenizer


# A prompt is read in chunks, so that a hang-up is noticed between them.
TOKEN_BUDGET = 256


class StepFailed(RuntimeError):
    """The runner failed on this sequence; others go on."""


@dataclass(frozen=True, slots=True)
class Running:
    """A submitted sequence and the stream of its outputs."""

    sequence: Sequence
    outputs: AsyncGenerator[Output, None]


class Engine:
    """Tokenizer, worker and what the HTTP side must know about the model."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        runner: ModelRunner,
        *,
        name: str,
        digest: str,
        defaults: SamplingDefaults,
        max_waiting: int,
    ) -> None:
        self.tokenizer = tokenizer
        self.name = name
        self.digest = digest
        self.defaults = defaults
        self.metrics = Metrics()
        self._spec = runner.spec
        scheduler = Scheduler(max_waiting=max_waiting, token_budget=TOKEN_BUDGET)
        self._worker = Worker(runner, scheduler)
        self._worker.start()

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    def stop(self) -> None:
        self._worker.stop()

    def queue_lengths(self) -> tuple[int, int]:
        return self._worker.queue_lengths()

    async def prepare(
        self, messages: Messages[TemplateMessage], params: SamplingParams
    ) -> Sequence:
        """Tokens of a conversation; raises `PromptRefused`, `PromptTooLong`, `InvalidParameter`."""
        if any(not 0 <= token_id < self._spec.vocab_size for token_id in params.logit_bias):
            raise InvalidParameter("logit_bias", "logit_bias names a token that does not exist")
        prompt = await asyncio.to_thread(self.tokenizer.encode_chat, messages)
        return Sequence(uuid.uuid4().hex, prompt, params, context_window=self._spec.context_window)

    @asynccontextmanager
    async def generate(self, sequence: Sequence) -> AsyncGenerator[Running, None]:
        """Submit and stream; leaving the context in any way stops the computation.

        Raises `QueueFull` on entry; the stream raises `StepFailed`.
        """
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[Output | Failure] = asyncio.Queue()

        def emit(item: Output | Failure) -> None:
            loop.call_soon_threadsafe(inbox.put_nowait, item)

        detokenizer = IncrementalDetokenizer(self.tokenizer.decode)
        self._worker.submit(Generation(sequence, detokenizer, emit))
        outputs = _outputs(inbox)
        try:
            yield Running(sequence, outputs)
        finally:
            self._worker.abort(sequence)
            await outputs.aclose()
            self._count(sequence)

    def _count(self, sequence: Sequence) -> None:
        reason = sequence.finish_reason or FinishReason.ABORT
        self.metrics.count_sequence(
            reason.value, sequence.num_prompt_tokens, sequence.num_output_tokens
        )


async def _outputs(
    inbox: "asyncio.Queue[Output | Failure]",
) -> AsyncGenerator[Output, None]:
    while True:
        item = await inbox.get()
        if isinstance(item, Failure):
            raise StepFailed(item.error_type)
        yield item
        if item.finish_reason is not None:
            return


def load_engine(directory: Path, *, device: str, max_waiting: int) -> Engine:
    """Verify and load a model directory; raises `ModelRefused`. Blocking: call it off the loop."""
    chosen = choose_device(device)
    dtype = torch.bfloat16 if chosen.type == "cuda" else torch.float32
    loaded = load_model(directory, dtype=dtype)
    tokenizer = load_chat_tokenizer(directory)
    if tokenizer.vocab_size > loaded.decoder.spec.vocab_size:
        raise ModelRefused("the tokenizer knows more tokens than the model")
    return Engine(
        tokenizer,
        ModelRunner(loaded.decoder, chosen),
        name=read_model_name(directory),
        digest=loaded.digest,
        defaults=read_sampling_defaults(directory),
        max_waiting=max_waiting,
    )
