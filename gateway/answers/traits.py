"""Traits of an answer that can be seen without knowing the truth: empty, cut, refused, malformed.

Policies name these checks for a canary's target; its answers are then compared with the others'.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from gateway.types import Completion, StreamEvent


REFUSED: Final = frozenset({"content_filter", "refusal"})
CUT: Final = "length"
REFUSAL: Final = "refusal"
UNUSUAL: Final = REFUSED | {CUT}
"""Reasons to stop that a record names; those of a whole answer, or of a call, go without."""


class AnswerTraits(Struct):
    """What an answer amounted to; it is filled in as the answer passes."""

    has_text: bool = False
    has_calls: bool = False
    is_refused: bool = False
    stop_reason: str = ""

    def see(self, events: list[StreamEvent]) -> None:
        """Take note of one batch of a stream."""
        for event in events:
            for delta in event.deltas:
                match delta.kind:
                    case "text":
                        self.has_text = self.has_text or bool(delta.text.strip())
                    case "tool_start" | "text_tool_start":
                        self.has_calls = True
                    case "refusal":
                        self.is_refused = True
                    case "stop":
                        self.stop_reason = delta.stop_reason or self.stop_reason

    def failed(self, checks: tuple[str, ...], unmet: Callable[[], bool]) -> tuple[str, ...]:
        """Those of the checks that the answer fails; `unmet` is asked for `format` only."""
        is_refused = self.is_refused or self.stop_reason in REFUSED
        says_nothing = not self.has_text and not self.has_calls and not is_refused
        found = {
            "answered": says_nothing,
            "complete": self.stop_reason == CUT,
            "no_refusal": is_refused,
        }
        return tuple(
            check
            for check in checks
            if (unmet() if check == "format" and not self.has_calls else found.get(check, False))
        )


def stopped_by(completion: Completion) -> str:
    """Why a whole answer ended, also where only its text says that it refuses."""
    is_said = completion.stop_reason in UNUSUAL
    return REFUSAL if completion.refusal and not is_said else completion.stop_reason


def traits_of(completion: Completion) -> AnswerTraits:
    """The same of a whole answer."""
    return AnswerTraits(
        bool(completion.text.strip()),
        bool(completion.tool_calls),
        bool(completion.refusal),
        completion.stop_reason,
    )
