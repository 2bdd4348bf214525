"""The same tokens come out however they were computed: chunks, cache, company, drafts, moves."""

from typing import Any

import pytest
import torch

from local_engine.core.sequence import FinishReason, Sequence
from local_engine.core.tiers import Tier
from local_engine.kernels.linear import plain_linear
from local_engine.model.decoder import Decoder
from local_engine.model.moe import grouped_reference
from local_engine.model.spec import ModelSpec, MoeSpec
from local_engine.runner.graphs import graph_sizes, record_plainly
from local_engine.runner.kv_pool import FP8
from local_engine.runner.sampler import SampledToken
from local_engine.sampling_params import SamplingParams
from tests.local_engine.engine_loop import EngineLoop, greedy, greedy_tokens
from tests.local_engine.models import random_decoder, tiny_spec


WINDOWED = tiny_spec(windows=(0, 9), has_qk_norm=True, head_dim=32)
SPARSE = tiny_spec(moe=MoeSpec(num_experts=4, num_chosen=2, intermediate_size=24), head_dim=32)
SPECS = {
    "plain": tiny_spec(),
    "native": tiny_spec(head_dim=32),
    "native, in parts": tiny_spec(head_dim=40),
    "window": WINDOWED,
    "moe": SPARSE,
}
each_native = pytest.mark.parametrize("spec", [SPECS["native"], SPECS["native, in parts"]])
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


def prompt(length: int, seed: int = 1) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, 1536, (length,), generator=generator).tolist()


def contiguous(decoder: Decoder, tokens: list[int], count: int) -> list[int]:
    """Greedy decoding with no cache at all: the whole text again for each token."""
    tokens = list(tokens)
    with torch.inference_mode():
        for _ in range(count):
            hidden = decoder(torch.tensor([tokens]))
            tokens.append(int(decoder.logits(hidden[0, -1]).argmax()))
    return tokens[-count:]


@each_spec
@pytest.mark.parametrize("chunk", [1, 7, 16, 1 << 20])
def test_paged_tokens_equal_contiguous_ones_for_every_chunk_size(
    spec: ModelSpec, chunk: int
) -> None:
    expected = contiguous(random_decoder(spec), prompt(45), 12)
    assert greedy_tokens(random_decoder(spec), prompt(45), 12, token_budget=chunk) == expected


@each_spec
def test_a_sequence_writes_the_same_alone_and_in_company(spec: ModelSpec) -> None:
    loop = EngineLoop(random_decoder(spec), prefill_chunk=16)
    alone = greedy_tokens(random_decoder(spec), prompt(30), 16)
    company = [loop.add(prompt(10 + n, seed=n), greedy(10 + n)) for n in range(2, 12)]
    loop.step()
    late = loop.add(prompt(30), greedy(16))
    loop.run()
    assert list(late.output_token_ids) == alone
    assert all(each.is_finished for each in company)


def finished_by_length(loop: EngineLoop) -> None:
    loop.add(prompt(40), greedy(5))
    loop.run()


def finished_by_end_token(loop: EngineLoop) -> None:
    first = greedy_tokens(random_decoder(SPECS["native"]), prompt(40), 1)
    loop.add(prompt(40), greedy(9, stop_token_ids=(first[0],)))
    loop.run()


def aborted_while_decoding(loop: EngineLoop) -> None:
    sequence = loop.add(prompt(40), greedy(50))
    for _ in range(6):
        loop.step()
    loop.scheduler.end(sequence)
    loop.runner.free(sequence.sequence_id)


def aborted_inside_its_prompt(loop: EngineLoop) -> None:
    loop.add(prompt(10, seed=9), greedy(30))
    loop.step()
    sequence = loop.add(prompt(40), greedy(50))
    loop.step()
    loop.scheduler.end(sequence)
    loop.run()


def stopped_by_a_stop_string(loop: EngineLoop) -> None:
    sequence = loop.add(prompt(40), greedy(50))
    for _ in range(4):
        loop.step()
    loop.scheduler.end(sequence, FinishReason.STOP)


def evicted_by_others(loop: EngineLoop) -> None:
    finished_by_length(loop)
    for number in range(6):
        loop.add(prompt(70, seed=50 + number), greedy(10))
        loop.run()


def forked(loop: EngineLoop) -> None:
    loop.add([*prompt(40)[:33], *prompt(7, seed=8)], greedy(5))
    loop.run()


@pytest.mark.parametrize(
    "before",
    [
        finished_by_length,
        finished_by_end_token,
        aborted_while_decoding,
        aborted_inside_its_prompt,
        stopped_by_a_stop_string,
        evicted_by_others,
        forked,
    ],
)
def test_a_prefix_hit_changes_no_token_whatever_happened_before(before: object) -> None:
    spec = SPECS["native"]
    expected = greedy_tokens(random_decoder(spec), prompt(40), 20, is_caching=False)
    loop = EngineLoop(random_decoder(spec), num_blocks=24, prefill_chunk=16)
    before(loop)  # type: ignore[operator]
    again = loop.add(prompt(40), greedy(20))
    loop.run()
    assert list(again.output_token_ids) == expected
    if before is not evicted_by_others:
        assert again.num_cached_tokens >= 16


def test_preempted_sequences_write_what_undisturbed_ones_write() -> None:
    spec = SPECS["native"]
    loop = EngineLoop(random_decoder(spec), num_blocks=9, is_caching=False)
    crowd = [loop.add(prompt(30, seed=n), greedy(40)) for n in range(4)]
    loop.run()
    assert loop.scheduler.num_preemptions > 0
    for number, each in enumerate(crowd):
        expected = greedy_tokens(random_decoder(spec), prompt(30, seed=number), 40)
        assert list(each.output_token_ids) == expected


def test_batch_work_pushed_back_by_priority_writes_the_same() -> None:
    spec = SPECS["native"]
    loop = EngineLoop(random_decoder(spec), max_running=1)
    batch = loop.add(prompt(20), greedy(30), tier=Tier.BATCH)
    for _ in range(5):
        loop.step()
    urgent = loop.add(prompt(20, seed=2), greedy(5), tier=Tier.PRIORITY)
    loop.step()
    assert batch.num_preemptions == 1
    loop.run()
    assert list(batch.output_token_ids) == greedy_tokens(random_decoder(spec), prompt(20), 30)
    expected = greedy_tokens(random_decoder(spec), prompt(20, seed=2), 5)
    assert list(urgent.output_token_ids) == expected


def test_offloaded_and_restored_blocks_give_the_same_tokens() -> None:
    spec = SPECS["native"]
    expected = greedy_tokens(random_decoder(spec), prompt(60), 20)
    loop = EngineLoop(random_decoder(spec), num_blocks=8, num_host_blocks=32)
    loop.add(prompt(60), greedy(4))
    loop.run()
    for number in range(3):
        loop.add(prompt(60, seed=20 + number), greedy(4))
        loop.run()
    again = loop.add(prompt(60), greedy(20))
    loop.run()
    assert again.num_cached_tokens >= 48
    assert list(again.output_token_ids) == expected


@pytest.mark.parametrize("num_wrong", [0, 1, 3])
def test_drafts_change_no_token_however_many_are_right(num_wrong: int) -> None:
    spec = SPECS["native"]
    expected = greedy_tokens(random_decoder(spec), prompt(30), 30)
    loop = EngineLoop(random_decoder(spec))
    one = loop.add(prompt(30), greedy(30))
    while not one.is_finished:
        loop.step()
        written = one.num_output_tokens
        drafts = expected[written : written + 3]
        room = one.max_tokens - written - 1
        one.draft_token_ids = [*drafts[: 3 - num_wrong], *[7] * num_wrong][: max(0, room)]
    assert list(one.output_token_ids) == expected
    if num_wrong == 0:
        assert loop.num_steps < 15


def test_sampled_tokens_depend_on_their_seed_and_on_nothing_else() -> None:
    spec = SPECS["native"]

    def run(company: int, chunk: int) -> list[int]:
        loop = EngineLoop(random_decoder(spec), token_budget=chunk)
        for number in range(company):
            loop.add(prompt(12, seed=number + 5), greedy(20))
        params = SamplingParams(temperature=0.9, top_p=0.9, seed=4, max_tokens=20, ignore_eos=True)
        sequence: Sequence = loop.add(prompt(30), params)
        loop.run()
        return list(sequence.output_token_ids)

    assert run(0, 1 << 20) == run(7, 1 << 20) == run(3, 7)


def test_poisoned_free_blocks_reach_no_answer() -> None:
    for spec in (SPECS["plain"], SPECS["native"]):
        expected = greedy_tokens(random_decoder(spec), prompt(30), 10)
        loop = EngineLoop(random_decoder(spec))
        for tensor in (*loop.runner.pool.keys, *loop.runner.pool.values):
            tensor.fill_(float("nan"))
        one = loop.add(prompt(30), greedy(10))
        loop.run()
        assert list(one.output_token_ids) == expected


def scored(sequence_id: int, company: int, kind: str, **limits: Any) -> list[SampledToken]:
    """What one sequence is given, with log-probabilities, among others."""
    spec = SPECS[kind]
    loop = EngineLoop(random_decoder(spec), is_deterministic=True, **limits)
    crowd = [loop.add(prompt(5 + n, seed=n), greedy(20)) for n in range(company)]
    if company:
        loop.step()
    one = loop.add(prompt(33, seed=sequence_id), greedy(8, logprobs=True, top_logprobs=5))
    found: list[SampledToken] = []
    while not one.is_finished:
        step = loop.scheduler.schedule()
        assert step is not None
        results = loop.runner.execute(step)
        if one.sequence_id in results:
            found += results[one.sequence_id].tokens
        tokens = {name: result.token_ids for name, result in results.items()}
        loop.scheduler.complete(step, tokens, ())
    assert len(crowd) == company
    return found


@pytest.mark.parametrize("kind", ["native", "native, in parts", "moe"])
def test_in_deterministic_mode_every_bit_is_the_same_in_any_company(kind: str) -> None:
    alone = scored(77, 0, kind)
    for company in (1, 3, 17, 31):
        assert scored(77, company, kind, prefill_chunk=64) == alone
    assert scored(77, 5, kind, prefill_chunk=7) == alone
    # In its first step nobody's scores are asked for.
    assert scored(77, 0, kind, token_budget=20) == alone


@each_native
def test_in_deterministic_mode_who_starts_over_is_given_the_same_bits(spec: ModelSpec) -> None:
    """Its own words were written one by one, and are read all at once."""

    def given(**limits: Any) -> list[list[SampledToken]]:
        loop = EngineLoop(random_decoder(spec), is_deterministic=True, is_caching=False, **limits)
        crowd = [loop.add(prompt(30, seed=n), greedy(40, logprobs=True)) for n in range(4)]
        loop.run()
        assert bool(loop.scheduler.num_preemptions) == bool(limits)
        return [loop.told[each.sequence_id] for each in crowd]

    assert given(num_blocks=9) == given()


@each_native
def test_in_deterministic_mode_a_prefix_hit_changes_no_bit(spec: ModelSpec) -> None:
    loop = EngineLoop(random_decoder(spec), is_deterministic=True)
    seen = []
    for _ in range(2):
        one = loop.add(prompt(50), greedy(1, logprobs=True, top_logprobs=5))
        step = loop.scheduler.schedule()
        assert step is not None
        results = loop.runner.execute(step)
        tokens = {name: result.token_ids for name, result in results.items()}
        loop.scheduler.complete(step, tokens, ())
        seen.append((one.num_cached_tokens, results[one.sequence_id].tokens))
    assert [hits for hits, _ in seen] == [0, 48]
    assert seen[0][1] == seen[1][1]


@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "moe"])
def test_recorded_decode_steps_write_what_computed_ones_write(is_sparse: bool) -> None:
    """The buffers and the padding of CUDA graphs; that a graph repeats itself is the GPU's part."""
    spec = SPECS["moe" if is_sparse else "window"]
    plain, played = EngineLoop(random_decoder(spec)), EngineLoop(random_decoder(spec))
    played.runner._is_recordable = True
    played.runner.record_decodes(record_plainly, 19)
    for loop in (plain, played):
        for number in range(23):
            params = greedy(4 + number % 7, logprobs=number % 2 == 0)
            loop.add(prompt(3 + number, seed=number), params)
    sequences = [list(loop.scheduler._line) for loop in (plain, played)]
    plain.run()
    played.run()
    assert played.runner.num_played > 5
    assert plain.runner.num_played == 0
    expected, found = ([each.token_ids for each in loop] for loop in sequences)
    assert found == expected


def test_sizes_of_recordings_hold_every_batch() -> None:
    assert graph_sizes(1) == [1]
    assert graph_sizes(6) == [1, 2, 4, 6]
    assert graph_sizes(40) == [1, 2, 4, 8, 16, 32, 40]


def test_experts_all_at_once_say_what_they_say_one_by_one() -> None:
    one_by_one, at_once = random_decoder(SPARSE), random_decoder(SPARSE)
    one_by_one.fuse(plain_linear)
    at_once.fuse(plain_linear, grouped=grouped_reference)
    tokens = torch.tensor([prompt(40)])
    with torch.inference_mode():
        expected, found = one_by_one(tokens), at_once(tokens)
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_keys_and_values_in_fp8_take_a_quarter_and_stay_close() -> None:
    spec = SPECS["native"]
    loop = EngineLoop(random_decoder(spec), kv_dtype=FP8)
    whole = EngineLoop(random_decoder(spec))
    assert loop.runner.pool.keys[0].nbytes * 4 == whole.runner.pool.keys[0].nbytes
    rounded = EngineLoop(random_decoder(spec))
    write = rounded.runner.pool.write

    def write_rounded(layer: int, *places: Any) -> None:
        blocks, offsets, k, v = places
        write(layer, blocks, offsets, k.to(FP8).float(), v.to(FP8).float())

    rounded.runner._native = loop.runner._native = None
    rounded.runner.pool.write = write_rounded  # type: ignore[method-assign, assignment]
    mine = loop.add(prompt(40), greedy(12))
    theirs = rounded.add(prompt(40), greedy(12))
    loop.run()
    rounded.run()
    assert mine.token_ids == theirs.token_ids


def test_prompt_logprobs_are_those_of_the_whole_text_and_skip_the_cache() -> None:
    spec = SPECS["native"]
    tokens = prompt(20)
    decoder = random_decoder(spec)
    with torch.inference_mode():
        logprobs = decoder.logits(decoder(torch.tensor([tokens])))[0].log_softmax(-1)
    expected = [float(logprobs[at, token]) for at, token in enumerate(tokens[1:])]
    loop = EngineLoop(decoder, token_budget=6)
    loop.add(tokens, greedy(2))
    loop.run()
    sequence = loop.add(tokens, greedy(1, prompt_logprobs=0))
    found = []
    while loop.scheduler.has_work:
        step = loop.scheduler.schedule()
        assert step is not None
        results = loop.runner.execute(step)
        found += results[sequence.sequence_id].prompt_logprobs
        new = {name: result.token_ids for name, result in results.items()}
        loop.scheduler.complete(step, new, (1,))
    assert [token.token_id for token in found] == tokens[1:]
    assert [token.logprob for token in found] == pytest.approx(expected, abs=1e-4)


def test_who_starts_over_says_no_prompt_logprob_twice() -> None:
    loop = EngineLoop(random_decoder(SPECS["native"]), num_blocks=9, token_budget=50)
    crowd = [loop.add(prompt(30, seed=n), greedy(40, prompt_logprobs=0)) for n in range(4)]
    found: dict[str, list[int]] = {each.sequence_id: [] for each in crowd}
    while loop.scheduler.has_work:
        step = loop.scheduler.schedule()
        assert step is not None
        results = loop.runner.execute(step)
        for name, result in results.items():
            found[name] += [token.token_id for token in result.prompt_logprobs]
        new = {name: result.token_ids for name, result in results.items()}
        loop.scheduler.complete(step, new, ())
    assert loop.scheduler.num_preemptions > 0
    for number, each in enumerate(crowd):
        assert found[each.sequence_id] == prompt(30, seed=number)[1:]
