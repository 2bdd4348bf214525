"""The shape of a pattern rule; the tables are in `patterns` and `secrets`."""

from collections.abc import Callable

from msgspec import Struct


class Rule(Struct, frozen=True, eq=False):
    """One RE2 pattern over the ASCII view of a text, and what to believe if it matches.

    The finding is capture group 1 if the pattern has one, otherwise the complete match. Repetitions
    in `regex` are bounded or cannot match less than they read, so that iterating stays linear.
    """

    label: str
    name: str
    regex: str
    score: float
    accepts: Callable[[str], bool] | None = None
    # A shorter pattern for the gate that matches at least wherever `regex` does.
    gate: str = ""
    # The full finding from its start on, read by Python's `re`; `regex` then finds only its head.
    whole: str = ""
    # Words one of which must be near when `needs_context`; they raise the score otherwise.
    context: tuple[str, ...] = ()
    needs_context: bool = False
    # Words that, right before the value, say that it is something else.
    veto: tuple[str, ...] = ()
