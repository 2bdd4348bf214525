"""Recorded requests under a document: what it decided, or what a draft would decide."""

from collections.abc import Iterable, Iterator

from policies.decide import decide
from policies.decision import Decision
from policies.facts import Facts
from policies.program import PolicyDocument


def replay(document: PolicyDocument, recorded: Iterable[Facts]) -> Iterator[Decision]:
    """One decision per recorded request, in order; the recorded version gives the recorded ones."""
    for facts in recorded:
        yield decide(document, facts)
