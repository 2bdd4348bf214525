"""What an answer amounts to, whole or streamed, and which checks it fails."""

import pytest

from gateway.answers.traits import AnswerTraits, traits_of
from gateway.types import Completion, Delta, StreamEvent, ToolCall, Usage
from policies.document import ANSWER_CHECKS


CALL = ToolCall("1", "f", "{}")


def completion(
    text: str = "", stop: str = "end", refusal: str = "", *calls: ToolCall
) -> Completion:
    return Completion(b"", "m", "x", text, calls, stop, None, Usage(), refusal=refusal)


def streamed(whole: Completion) -> AnswerTraits:
    """The same answer in pieces."""
    deltas = [Delta("text", piece) for piece in whole.text]
    deltas += [Delta("tool_start", name=call.name) for call in whole.tool_calls]
    deltas += [Delta("refusal", whole.refusal)] if whole.refusal else []
    deltas += [Delta("stop", stop_reason=whole.stop_reason), Delta("usage")]
    traits = AnswerTraits()
    traits.see([StreamEvent(b"", (delta,)) for delta in deltas])
    return traits


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        (completion("Yes."), ()),
        (completion(" \n"), ("answered",)),
        (completion("", "tool_calls", "", CALL), ()),
        (completion("Ye", "length"), ("complete",)),
        (completion("", "end", "I cannot."), ("no_refusal",)),
        (completion("", "content_filter"), ("no_refusal",)),
    ],
)
def test_checks_are_the_same_for_whole_and_streamed_answers(
    answer: Completion, failed: tuple[str, ...]
) -> None:
    for traits in (traits_of(answer), streamed(answer)):
        assert traits.failed(ANSWER_CHECKS, lambda: False) == failed
        assert traits.failed((), lambda: True) == ()


def test_the_format_is_asked_only_where_it_is_checked_and_text_was_answered() -> None:
    assert traits_of(completion("{")).failed(("format",), lambda: True) == ("format",)
    called = traits_of(completion("", "tool_calls", "", CALL))
    assert called.failed(("format",), lambda: True) == ()
