"""A request that was tried becomes a test case, and passes as one."""

import html
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.policy_room.proposing import SHOWN, case_of, case_text
from policies.checking.check import check
from policies.examples import facts_from_example
from policies.text.loading import load_document
from tests.admin.listener import Listener
from tests.admin.policies.people import WRITER, signed_in, staff
from tests.admin.policies.test_writing import HOME, TEXT, saved


DOCUMENT = """
name = "tried"
version = 1
[[constraints]]
name = "stay-home"
when = 'data_class >= "S3" or findings.EMAIL > 2 or headers.x_team == "red"'
allow_only = { in_house = true }
[[constraints]]
name = "no-night"
when = 'hour_utc > 22'
deny = "at night"
[[preferences]]
name = "lab"
when = '"lab" in labels and complexity > 0.5'
order = ["frontier"]
"""
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "data_class": st.sampled_from(["S0", "S1", "S2", "S3", "S4"]),
        "findings": st.dictionaries(st.sampled_from(["EMAIL", "PERSON"]), st.integers(1, 9)),
        "headers": st.dictionaries(st.just("x_team"), st.text(max_size=9)),
        "hour_utc": st.integers(0, 23),
        "labels": st.lists(st.sampled_from(["lab", "hr"]), unique=True),
        "complexity": st.floats(0, 1),
        "stream": st.booleans(),
    },
)


@given(FACTS)
def test_what_was_tried_passes_as_a_case(example: dict[str, Any]) -> None:
    document = load_document(DOCUMENT)
    case = case_of(document, facts_from_example(example))
    report = check(DOCUMENT + case, "a document")
    assert [result.failures for result in report.tests] == [()]
    # What the document does not read says nothing about it.
    assert "stream" not in case


def test_a_case_says_what_came_out() -> None:
    assert case_text(load_document(DOCUMENT), SHOWN) == (
        "[[tests]]\n"
        'name = "data_class S3"\n'
        'facts = { data_class = "S3" }\n'
        'expect = { effect = "allow", first = "in-house", matched = ["stay-home"] }\n'
    )
    refused = case_text(load_document(DOCUMENT), {"hour_utc": 23})
    assert refused.endswith('expect = { effect = "deny", matched = ["no-night"] }\n')


def shown(page: str, label: str) -> str:
    found = re.search(rf'aria-label="{label}"><code>(.*?)</code>', page, re.DOTALL)
    return html.unescape(found[1]) if found else ""


@pytest.mark.anyio
async def test_the_editor_offers_a_case_where_there_is_none_and_one_of_what_was_tried(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT)
        _, page = await wanda.send("GET", f"{HOME}/edit?as=cards")
        case = shown(page, "A test case")
        assert 'matched = ["stay-home"]' in case
        form = {"text": TEXT, "revision": "1", "fact.data_class": "S4"}
        _, page = await wanda.send("POST", f"{HOME}/edit/try", form)
        other = shown(page, "As a test case")
        assert 'facts = { data_class = "S4" }' in other
        await saved(wanda, f"{TEXT}\n{case}\n{other}", 1)
        _, page = await wanda.send("GET", f"{HOME}/edit?as=cards")
        assert page.count(">passes<") == 2
        assert shown(page, "A test case") == ""
