"""Runs the worker as a process: loads, reports what was loaded, then serves the inherited socket.

Started by `serve.supervisor` as `python -m local_engine.serve.compute.worker_process FD` with its
options as one JSON line on standard input.
"""

import secrets
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import torch

from local_engine.core.limits import Limits
from local_engine.core.scheduler import Scheduler
from local_engine.model.config import read_model_name, read_sampling_defaults
from local_engine.model.errors import ModelRefused
from local_engine.model.loader import describe, load_decoder
from local_engine.model.manifest import ModelFiles, open_model, public_key_of
from local_engine.model.spec import ModelSpec
from local_engine.runner.graphs import CudaRecorder
from local_engine.runner.memory import KvBudget
from local_engine.runner.model_runner import ModelRunner, choose_device
from local_engine.runner.parallel import shard
from local_engine.runner.speculative import Drafter, ModelDrafter, NgramDrafter
from local_engine.runner.warm_up import warm_up
from local_engine.serve.compute.identity import WorkerIdentity
from local_engine.serve.compute.ranks import RankGroup
from local_engine.serve.compute.sharing import agreed, budget_of, dtype_of, share_options
from local_engine.serve.compute.worker import Worker
from local_engine.serve.options import WorkerOptions
from local_engine.serve.wire import Ready, Refused, encode
from local_engine.text.grammar import GrammarCompiler
from local_engine.text.tokenizer import check_tokenizer
from local_engine.text.tokenizer_bounds import refusing


# Prompt tokens beside decoders until step times are known, and where nothing may depend on them.
_FIRST_CHUNK = 128
_LEAST_LONG = 512


def main() -> int:
    # Ctrl-C, and what ends a service, reach the whole group: the HTTP side decides when this ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    link = socket.socket(fileno=int(sys.argv[1]))
    options = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerOptions)
    torch.set_num_threads(options.threads)
    try:
        group = RankGroup(options) if options.tensor_parallel > 1 else None
        worker, ready = load_worker(link, options, group)
    except ModelRefused as error:
        _tell(link, Refused(str(error)))
        return 2
    _tell(link, ready)
    worker.run()
    if group is not None:
        group.end()
    return 0


def _tell(link: socket.socket, message: Ready | Refused) -> None:
    """Who was stopped while this loaded does not listen any more."""
    with suppress(ConnectionError):
        link.sendall(encode(message))


def load_worker(
    link: socket.socket, options: WorkerOptions, group: RankGroup | None = None
) -> tuple[Worker, Ready]:
    """Verify, load and measure; raises `ModelRefused`."""
    directory = Path(options.model)
    device = choose_device(options.device) if group is None else group.device
    options = options.on(device.type)
    key = public_key_of(options.model_public_key)
    with open_model(directory, key) as files:
        decoder = load_decoder(files, dtype=dtype_of(options))
        if group is not None:
            shard(decoder, 0, options.tensor_parallel)
        spec = decoder.spec
        check_tokenizer(files, spec.vocab_size)
        budget = budget_of(decoder, device, options)
        if group is not None:
            budget = agreed(budget)
        # What no session can be as long as takes no memory either, whatever `config.json` says.
        window = min(spec.context_window, budget.longest_context_tokens)
        decoder.spec = spec = msgspec.structs.replace(spec, context_window=window)
        runner = ModelRunner(
            decoder,
            device,
            share_options(options, budget),
            ranks=None if group is None else group.leader,
        )
        scheduler = Scheduler(_limits(options, budget))
        ready = _ready(files, runner, scheduler, budget, options)
    grammars = _grammars(ready, spec)
    identity = WorkerIdentity(secrets.token_bytes(32), files.digest, options.shares_nameless)
    drafter = _drafter(options, runner, budget)
    if runner.device.type == "cuda" and options.has_graphs:
        runner.record_decodes(CudaRecorder(), options.max_running)
    warm_up(runner, scheduler)
    is_ahead = _is_overlapping(options, runner)
    worker = Worker(link, runner, scheduler, identity, grammars, drafter, is_overlapping=is_ahead)
    return worker, ready


def _grammars(ready: Ready, spec: ModelSpec) -> GrammarCompiler:
    text = ready.tokenizer_json.decode()
    unusable = "tokenizer.json cannot be used for grammars"
    with refusing(lambda error: ModelRefused(f"{unusable}: {error}")):
        return GrammarCompiler(text, spec.vocab_size, spec.eos_token_ids)


def _is_overlapping(options: WorkerOptions, runner: ModelRunner) -> bool:
    if options.overlap not in {"auto", "on", "off"}:
        raise ModelRefused(f"overlap is on, off or auto, not {options.overlap}")
    # Guesses are made from tokens that are known: with them there is nothing to plan ahead.
    # Ranks agree by the order in which they are told: one thread speaks to them.
    if options.num_drafts or options.tensor_parallel > 1:
        return False
    return options.overlap == "on" or (options.overlap == "auto" and runner.device.type == "cuda")


def _drafter(options: WorkerOptions, runner: ModelRunner, budget: KvBudget) -> Drafter | None:
    if not options.num_drafts:
        return None
    if not options.draft_model:
        return NgramDrafter(options.num_drafts)
    with open_model(Path(options.draft_model)) as files:
        decoder = load_decoder(files, dtype=runner.dtype)
    if decoder.spec.vocab_size != runner.spec.vocab_size:
        raise ModelRefused("the draft model has another vocabulary")
    if decoder.spec.context_window < runner.spec.context_window:
        raise ModelRefused("the draft model has a shorter context window")
    return ModelDrafter(
        decoder,
        runner.device,
        num_drafts=options.num_drafts,
        num_blocks=budget.num_blocks,
        block_size=budget.block_size,
    )


def _limits(options: WorkerOptions, budget: KvBudget) -> Limits:
    return Limits(
        num_blocks=budget.num_blocks,
        block_size=budget.block_size,
        num_host_blocks=budget.num_host_blocks,
        max_running=options.max_running,
        max_waiting=options.max_waiting,
        token_budget=max(options.token_budget, options.max_running),
        # What one step reads whole keeps nobody waiting for long.
        long_prompt=max(options.token_budget, _LEAST_LONG),
        prefill_chunk=options.prefill_chunk or _FIRST_CHUNK,
        is_paced=options.prefill_chunk == 0 and not options.is_deterministic,
        tenant_share=options.tenant_share,
        is_caching=options.is_caching,
    )


def _ready(
    files: ModelFiles,
    runner: ModelRunner,
    scheduler: Scheduler,
    budget: KvBudget,
    options: WorkerOptions,
) -> Ready:
    spec: ModelSpec = runner.spec
    limits = scheduler.limits
    defaults = read_sampling_defaults(files)
    template = "chat_template.jinja"
    return Ready(
        name=read_model_name(files, Path(options.model).resolve().name),
        digest=files.digest,
        dtype=str(runner.dtype).removeprefix("torch."),
        device=_named(runner.device, options.tensor_parallel),
        precision=_precision(runner, options),
        vocab_size=spec.vocab_size,
        context_window=min(spec.context_window, scheduler.most_tokens),
        eos_token_ids=spec.eos_token_ids,
        defaults=msgspec.to_builtins(defaults),
        tokenizer_json=files.read("tokenizer.json"),
        tokenizer_config=files.read("tokenizer_config.json"),
        chat_template=files.read(template) if template in files else b"",
        max_places=limits.max_running + limits.max_waiting,
        memory=msgspec.to_builtins(budget),
        description=describe(spec),
    )


def _precision(runner: ModelRunner, options: WorkerOptions) -> str:
    dtype, kind = str(runner.dtype).removeprefix("torch."), runner.device.type
    weights = options.quantise or dtype
    return f"{dtype} weights={weights} kv={options.kv_dtype} on {kind}"


def _named(device: torch.device, num_ranks: int) -> str:
    return str(device) if num_ranks == 1 else f"{num_ranks} x {device.type}"


if __name__ == "__main__":
    sys.exit(main())
