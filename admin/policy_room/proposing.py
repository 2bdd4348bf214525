"""A test case of what was just tried: the facts that the document reads, and what came out.

Cases run against a document's own example targets and without the other levels, so what the pane
shows is decided anew under those: a case that is offered passes as it is.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from policies.decide import decide
from policies.document import Case, Expectation
from policies.examples import EXAMPLE_TARGETS, facts_from_example
from policies.facts import Facts
from policies.forms import fact_fields
from policies.limits import NAME_LENGTH_MAX
from policies.problems import FactsInvalid
from policies.program import PolicyDocument
from policies.text.writing import rule_text, table_of


SHOWN: Final[Mapping[str, object]] = {"data_class": "S3"}
"""The facts of the case that stands where a document has none."""
_FIELDS: Final = tuple(field.name for field in fact_fields())


def case_of(document: PolicyDocument, facts: Facts) -> str:
    """A case of these facts as TOML; empty where they cannot be written as an example's."""
    usual = facts_from_example({})
    read = [name for name in _FIELDS if name in document.facts_read]
    example = {
        name: msgspec.to_builtins(getattr(facts, name))
        for name in read
        if getattr(facts, name) != getattr(usual, name)
    }
    return case_text(document, example)


def case_text(document: PolicyDocument, example: Mapping[str, object]) -> str:
    """A case of these facts, with what the document decides of them, as TOML; empty for none."""
    targets = document.body.example_targets or EXAMPLE_TARGETS
    try:
        decision = decide(document, facts_from_example(example, targets))
    except FactsInvalid:
        return ""
    expected = Expectation(
        effect=decision.effect,
        first=decision.candidates[0] if decision.candidates else None,
        matched=decision.matched_constraints,
    )
    said = ", ".join(f"{name} {value}" for name, value in example.items())
    name = "".join(each for each in said if each.isprintable())[:NAME_LENGTH_MAX].strip()
    return rule_text("tests", table_of(Case(name or "a harmless request", example, expected)))
