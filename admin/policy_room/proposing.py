"""Turns a tried request into a test case: the facts that the document reads, and the result.

Test cases run against a document's own example targets and without the other levels. So the result
shown in the pane is decided again under those conditions: a case that is offered passes as it is.
"""

from collections.abc import Mapping
from itertools import chain, count
from typing import Final

import msgspec
from msgspec import Struct

from gateway.errors import RequestInvalid
from policies.decide import decide
from policies.document import Case, Expectation, PolicyBody
from policies.examples import EXAMPLE_TARGETS, facts_from_example
from policies.facts import Facts
from policies.forms import fact_fields
from policies.limits import NAME_LENGTH_MAX
from policies.problems import DocumentInvalid, FactsInvalid
from policies.program import PolicyDocument
from policies.text.amending import entry_as
from policies.text.loading import case_from
from policies.text.writing import table_of


SHOWN: Final[Mapping[str, object]] = {"data_class": "S3"}
"""The facts of the case that stands where a document has none."""
_FIELDS: Final = tuple(field.name for field in fact_fields())


class Offer(Struct, frozen=True):
    """A case to be put into a draft."""

    text: str
    """As it would stand there, in the draft's own form: TOML, YAML or JSON."""
    encoded: str
    """For the button that puts it there."""


def offer_of(case: Case | None, text: str) -> Offer | None:
    """A case for a draft of this text."""
    if case is None:
        return None
    encoded = msgspec.json.encode(table_of(case)).decode()
    return Offer(entry_as(text, "tests", case), encoded)


def offered(encoded: str, body: PolicyBody) -> Case:
    """The case of an offer among a document's own targets, under a name that no other case has.

    Raises:
        RequestInvalid: it is none.
    """
    try:
        table = msgspec.json.decode(encoded, type=dict[str, object])
        case = case_from(table, body.example_targets or EXAMPLE_TARGETS)
    except (msgspec.DecodeError, RecursionError, DocumentInvalid):
        raise RequestInvalid("this is no test case of this document", parameter="case") from None
    taken = {each.name for each in body.tests}
    others = (f"{case.name[: NAME_LENGTH_MAX - 6]} {number}" for number in count(2))
    name = next(each for each in chain([case.name], others) if each not in taken)
    return msgspec.structs.replace(case, name=name)


def case_of(document: PolicyDocument, facts: Facts) -> Case | None:
    """A case of these facts; None where they cannot be written as an example's."""
    usual = facts_from_example({})
    read = [name for name in _FIELDS if name in document.facts_read]
    example = {
        name: msgspec.to_builtins(getattr(facts, name))
        for name in read
        if getattr(facts, name) != getattr(usual, name)
    }
    return case_with(document, example)


def case_with(document: PolicyDocument, example: Mapping[str, object]) -> Case | None:
    """A case of these facts, with what the document decides of them; None for none."""
    targets = document.body.example_targets or EXAMPLE_TARGETS
    try:
        decision = decide(document, facts_from_example(example, targets))
    except FactsInvalid:
        return None
    expected = Expectation(
        effect=decision.effect,
        first=decision.candidates[0] if decision.candidates else None,
        matched=decision.matched_constraints,
    )
    said = ", ".join(f"{name} {value}" for name, value in example.items())
    name = "".join(each for each in said if each.isprintable())[:NAME_LENGTH_MAX].strip()
    return Case(name or "a harmless request", example, expected)
