"""Where each equality of the engine and each kind of bad input is tested: one line, one test.

A reader finds the proof by its name; the test below fails when a named proof is gone.
"""

from pathlib import Path

import pytest


HERE = Path(__file__).parent
PROMISES = {
    # The same tokens, however they are computed.
    "logits and greedy text equal transformers, ten configurations": (
        "test_parity::test_logits_and_greedy_texts_equal_those_of_transformers"
    ),
    "paged == contiguous, for every chunk size": (
        "test_equalities::test_paged_tokens_equal_contiguous_ones_for_every_chunk_size"
    ),
    "prefix cache on == off, whatever ended before": (
        "test_equalities::test_a_prefix_hit_changes_no_token_whatever_happened_before"
    ),
    "preempted == not": (
        "test_equalities::test_preempted_sequences_write_what_undisturbed_ones_write"
    ),
    "offloaded to the host and restored == not": (
        "test_equalities::test_offloaded_and_restored_blocks_give_the_same_tokens"
    ),
    "overlap on == off": "test_engine::test_planning_ahead_changes_no_token",
    "recorded decode steps == computed ones": (
        "test_equalities::test_recorded_decode_steps_write_what_computed_ones_write"
    ),
    "two ranks == one": "test_parallel::test_two_ranks_write_what_one_writes",
    "speculation == plain, greedy and sampled": (
        "test_speculative::test_drafts_change_neither_greedy_nor_sampled_tokens"
    ),
    "samples follow their distribution": (
        "test_sampler::test_frequencies_of_samples_follow_the_probabilities"
    ),
    "salt A never meets B": "test_core::test_groups_with_other_salts_share_nothing",
    "aborted inside a prompt: the pool stays whole": (
        "test_core::test_an_aborted_sequence_gives_its_blocks_back_at_once"
    ),
    "alone == in company, to the bit": (
        "test_equalities::test_in_deterministic_mode_every_bit_is_the_same_in_any_company"
    ),
    "prefix hit == miss, to the bit": (
        "test_equalities::test_in_deterministic_mode_a_prefix_hit_changes_no_bit"
    ),
    "blocks are conserved, whatever comes": "test_core_stateful::TestEngine",
    "Triton kernels == torch references in float64": (
        "test_triton::test_each_triton_kernel_equals_its_reference_in_float64"
    ),
    "experts at once == one by one": (
        "test_equalities::test_experts_all_at_once_say_what_they_say_one_by_one"
    ),
    "fp8 keys and values == rounded ones": (
        "test_equalities::test_keys_and_values_in_fp8_take_a_quarter_and_stay_close"
    ),
    "the dtype of config.json is the dtype served": (
        "test_loader_trust::test_the_dtype_of_the_configuration_is_the_dtype_served"
    ),
    "every output of a grammar follows it": "test_grammar::test_noise_under_a_grammar_follows_it",
    "parser streaming == whole, for every cut": (
        "test_output_parser::test_every_cut_gives_the_same_parts"
    ),
    "stop strings across tokens": (
        "test_text::test_a_stop_string_cuts_the_same_wherever_the_text_is_split"
    ),
    "half a character is held back": "test_text::test_half_a_character_is_held_back",
    # Bad input: a typed answer at once, and nothing else disturbed.
    "over-long prompt": "test_server::test_a_prompt_longer_than_the_context_is_refused_by_its_code",
    "what can never fit": "test_core::test_what_can_never_fit_is_refused_at_once",
    "impossible grammar": "test_grammar::test_what_is_no_grammar_is_refused",
    "bad image, unknown sampling field": (
        "test_chat_request::test_a_bad_request_is_refused_by_code_and_parameter"
    ),
    "cancelled client": "test_server::test_a_hang_up_stops_the_computation",
    "cancelled in the middle of a step": (
        "test_engine::test_leaving_in_the_middle_of_a_step_frees_its_blocks_before_the_next"
    ),
    "full queue": "test_server::test_a_full_queue_refuses_and_the_event_loop_stays_awake",
    "failing step": "test_engine::test_a_failing_step_fails_its_requests_and_not_the_engine",
    "worker killed in the middle of a decode": (
        "test_process::test_a_killed_worker_fails_its_requests_by_name_and_is_replaced"
    ),
    "draining": "test_engine::test_a_draining_engine_begins_nothing_new_and_ends_what_it_began",
    "corrupt model": "test_loader::test_one_changed_bit_in_any_file_refuses_the_model",
    "unsigned model": (
        "test_loader_trust::test_where_a_key_is_configured_an_unsigned_model_is_refused_by_name"
    ),
    "links": "test_loader_trust::test_a_link_is_refused_wherever_it_points",
    "names that lead outside": "test_loader::test_a_damaged_directory_is_refused",
    "overlapping tensors": (
        "test_loader_trust::test_a_header_that_lies_about_its_tensors_is_refused_by_file"
    ),
    "oversized header": (
        "test_loader_trust::test_a_header_longer_than_allowed_or_than_the_file_is_refused"
    ),
    "exchanged after it was verified": "test_loader_trust::test_what_was_verified_is_what_is_read",
    "template that reaches out": "test_text::test_a_template_that_reaches_out_is_stopped",
}


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_its_proof(promise: str) -> None:
    module, _, name = PROMISES[promise].partition("::")
    text = (HERE / f"{module}.py").read_text()
    assert f"def {name}(" in text or f"\n{name} = " in text
