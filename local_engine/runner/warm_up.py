"""Runs a worker's first steps: they compile, allocate, and teach the scheduler step times."""

from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.model.errors import ModelRefused
from local_engine.runner.model_runner import ModelRunner
from local_engine.sampling_params import SamplingParams


_PROMPT_TOKENS = 64
_OUTPUT_TOKENS = 4


def warm_up(runner: ModelRunner, scheduler: Scheduler) -> None:
    """Write a few tokens in every way, since compiling and allocating slow down the first time.

    Nothing of it can be found in the cache later. Raises `ModelRefused` for a model that answers
    nothing at all.
    """
    window = min(runner.spec.context_window, scheduler.most_tokens)
    length = min(_PROMPT_TOKENS, window - _OUTPUT_TOKENS)
    if length < 1:
        return
    greedy = SamplingParams(temperature=0.0, max_tokens=_OUTPUT_TOKENS, ignore_eos=True)
    sampled = SamplingParams(top_p=0.9, max_tokens=_OUTPUT_TOKENS, ignore_eos=True, seed=0)
    for params in (greedy, sampled, greedy):
        sequence = Sequence("warm-up", [0] * length, params, context_window=window, is_zeroed=True)
        scheduler.add(sequence)
        while not sequence.is_finished:
            step = scheduler.schedule()
            assert step is not None, "nobody else is there"
            started = runner.clock_s()
            results = runner.execute(step)
            took_s = runner.clock_s() - started
            if any(result.is_broken for result in results.values()):
                dtype = str(runner.dtype).removeprefix("torch.")
                raise ModelRefused(
                    f"the weights give scores that are no numbers as {dtype}:"
                    " they are damaged, or need another --dtype"
                )
            num_prompt_tokens = step.num_tokens - step.num_decode_tokens
            scheduler.pace.observe(step.num_decode_tokens, num_prompt_tokens, took_s)
            tokens = {name: result.token_ids for name, result in results.items()}
            scheduler.complete(step, tokens, ())
        runner.free(sequence.sequence_id)
