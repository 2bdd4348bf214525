"""A model's name that was mistyped, or is another gateway's, leads to the one that it has here."""

import pytest

from gateway.routing.mistyped import meant


NAMES = ("claude-haiku-5-5", "gpt-6-luna", "gpt-6.2-sol", "meta-llama/Llama-3.1-8B", "llama")


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("openai/gpt-6-luna", "gpt-6-luna"),
        ("azure/gpt-6.2-sol", "gpt-6.2-sol"),
        ("openrouter/anthropic/claude-haiku-5.5", "claude-haiku-5-5"),
        ("GPT-6-Luna", "gpt-6-luna"),
        (" gpt-6-luna ", "gpt-6-luna"),
        ("gpt_6_2_sol", "gpt-6.2-sol"),
        ("meta-llama/llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("gpt-6-lunar", "gpt-6-luna"),
        ("openai/gtp-6-luna", "gpt-6-luna"),
        ("claud-haiku-5-5", "claude-haiku-5-5"),
        ("gpt-7-lune", ""),
        ("gpt-6", ""),
        ("openai/", ""),
        ("", ""),
    ],
)
def test_another_way_of_writing_is_recognised_and_another_name_is_not(
    asked: str, name: str
) -> None:
    assert meant(asked, NAMES) == name


def test_nobody_is_sent_to_one_of_two() -> None:
    assert meant("openai/Llama", ("llama", "LLAMA")) == ""
    assert meant("claude-opus-5", ("claude-opus-4", "claude-opus-6")) == ""
    assert meant("claude-opus-5", ()) == ""
