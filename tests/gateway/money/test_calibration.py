"""Estimates of tokens: by kinds of characters, and learned per target."""

import pytest
from msgspec import structs

from gateway.dialects.token_count import count_input_tokens
from gateway.estimate import FAMILIES, estimate_text_tokens
from gateway.money.calibration import SAMPLED_EVERY, Calibration
from gateway.types import Target, Usage
from tests.gateway.dialects.samples import chat, messages, target


PROSE = "The bridge was built by masons from the next valley, who were paid in salt. " * 20


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        (PROSE, 0.2, 0.3),
        ("1234567890 " * 50, 0.4, 0.9),
        ("桥是由石匠建造的。" * 50, 0.2, 0.5),
        ("def f(x):\n    return x[0] + 1\n" * 30, 0.25, 0.6),
    ],
)
def test_tokens_per_byte_are_those_of_the_kind_of_text(
    family: str, text: str, least: float, most: float
) -> None:
    raw = text.encode()

    assert least <= estimate_text_tokens(raw, family) / len(raw) <= most


def test_an_estimate_grows_with_the_text_and_an_unknown_family_is_no_error() -> None:
    assert estimate_text_tokens(b"", "openai") == 0
    assert estimate_text_tokens(PROSE.encode() * 2, "x") == pytest.approx(
        2 * estimate_text_tokens(PROSE.encode(), "x"), abs=1
    )


def test_what_is_not_text_does_not_count_as_text() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}
    image["source"]["data"] = "A" * 100_000  # type: ignore[index]
    bare = count_input_tokens(messages(messages=[{"role": "user", "content": [image]}]).tree, "")

    assert 1600 <= bare < 1700


def test_tools_and_instructions_count() -> None:
    tool = {"name": "f", "input_schema": {"type": "object", "description": PROSE}}
    with_tool = count_input_tokens(messages(tools=[tool]).tree, "anthropic")
    with_system = count_input_tokens(messages(system=PROSE).tree, "anthropic")
    plain = count_input_tokens(messages().tree, "anthropic")

    assert min(with_tool, with_system) > plain + 250


def test_what_upstreams_count_moves_the_estimate_of_that_target_only() -> None:
    calibration = Calibration(count_input_tokens)
    request = chat(messages=[{"role": "user", "content": PROSE}])
    here, there = target(), structs.replace(target(), name="other")
    before = calibration.estimate(request, here)
    for _ in range(SAMPLED_EVERY * 100):
        calibration.observe(request, here, Usage(input_tokens=before * 2))

    assert calibration.estimate(request, here) == pytest.approx(before * 2, rel=0.02)
    assert calibration.estimate(request, there) == before


@pytest.mark.parametrize(
    "usage", [Usage(input_tokens=10**9), Usage(input_tokens=900, estimated=True), Usage()]
)
def test_an_odd_count_or_one_of_our_own_teaches_little_or_nothing(usage: Usage) -> None:
    calibration = Calibration(count_input_tokens)
    request = chat(messages=[{"role": "user", "content": PROSE}])
    before = calibration.estimate(request, target())
    calibration.observe(request, target(), usage)

    assert before <= calibration.estimate(request, target()) <= before * 3 + 1


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "url", "url": "https://pictures.example/1.png"}},
        {"type": "document", "source": {"type": "url", "url": "https://papers.example/1.pdf"}},
    ],
)
def test_what_pictures_and_documents_are_counted_as_teaches_nothing_of_text(
    part: dict[str, object],
) -> None:
    calibration = Calibration(count_input_tokens)
    words = {"type": "text", "text": PROSE}
    request = messages(messages=[{"role": "user", "content": [words, part]}])
    before = calibration.estimate(request, target())
    for _ in range(SAMPLED_EVERY * 2):
        calibration.observe(request, target(), Usage(input_tokens=before * 3))
    assert calibration.estimate(request, target()) == before


@pytest.mark.parametrize("several", [Usage(web_searches=1), Usage(compactions=1)])
def test_what_several_prompts_are_counted_as_teaches_nothing_of_one(several: Usage) -> None:
    calibration = Calibration(count_input_tokens)
    request = messages(messages=[{"role": "user", "content": PROSE}])
    before = calibration.estimate(request, target())
    for _ in range(SAMPLED_EVERY * 2):
        calibration.observe(request, target(), structs.replace(several, input_tokens=before * 3))
    assert calibration.estimate(request, target()) == before


@pytest.mark.parametrize("of", [None, target()])
def test_a_request_is_estimated_at_one_token_at_least(of: Target | None) -> None:
    assert Calibration(lambda _, __: 0).estimate(chat(), of) == 1
