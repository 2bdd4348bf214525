"""A request that was tried becomes a test case, and passes as one."""

import html
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.policy_room.proposing import SHOWN, case_of, case_with, offer_of, offered
from policies.checking.check import check
from policies.examples import facts_from_example
from policies.text.loading import load_document
from tests.admin.listener import Listener
from tests.admin.policies.people import WRITER, signed_in, staff
from tests.admin.policies.test_writing import HOME, TEXT, saved, typed


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
    case = offer_of(case_of(document, facts_from_example(example)), DOCUMENT)
    assert case is not None
    report = check(DOCUMENT + case.text, "a document")
    assert [result.failures for result in report.tests] == [()]
    # What the document does not read says nothing about it.
    assert "stream" not in case.text
    assert report.document is not None
    (same,) = report.document.body.tests
    assert offered(case.encoded, document.body) == same


def test_a_case_says_what_came_out() -> None:
    document = load_document(DOCUMENT)

    def text_of(facts: Mapping[str, object]) -> str:
        offer = offer_of(case_with(document, facts), DOCUMENT)
        return offer.text if offer else ""

    assert text_of(SHOWN) == (
        "[[tests]]\n"
        'name = "data_class S3"\n'
        'facts = { data_class = "S3" }\n'
        'expect = { effect = "allow", first = "in-house", matched = ["stay-home"] }\n'
    )
    refused = text_of({"hour_utc": 23})
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


YAML = """# ours, in YAML
name: acme
version: 1

constraints:
  # with legal
  - name: stay-home
    when: data_class >= "S3"
    allow_only: {in_house: true}  # by law
"""
JSON = """{
  "name": "acme",
  "version": 1,
  "constraints": [{"name": "stay-home", "when": "stream", "no_cache": true}]
}"""


def pressed(page: str, button: str) -> dict[str, str]:
    """What a button sends with its form."""
    at = page.index(f">{button}</button>")
    begins = "<form" if "draft" in button else "<button"
    form = page[page.rindex(begins, 0, at) : at]
    found = re.findall(r'name="(\w+)" value="(.*?)"', form)
    return {name: html.unescape(value) for name, value in found}


@pytest.mark.anyio
@pytest.mark.parametrize("text", [TEXT, YAML, JSON])
async def test_a_case_is_put_into_the_draft_by_a_button_in_the_form_that_the_draft_has(
    listener: Listener, text: str
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, text)
        _, page = await wanda.send("GET", f"{HOME}/edit?as=cards")
        case, sent = shown(page, "A test case"), pressed(page, "Put it into the draft")
        answer, _ = await wanda.send("POST", f"{HOME}/edit/case", sent)
        assert answer.status == 303
        again, page = await wanda.send("POST", f"{HOME}/edit/case", sent)
        assert again.status == 409, "of what stood there before"
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")
        draft = typed(page)
        assert load_document(draft).body.tests[0].name == "data_class S3"
        if text == JSON:
            assert draft.startswith('{\n  "name": "acme",')
        else:
            assert draft == f"{text}\n{case}"
        # Beside the code nothing is saved: the case stands in what is typed, and is told apart.
        form = {"text": draft, "revision": "2", "fact.data_class": "S3"}
        _, page = await wanda.send("POST", f"{HOME}/edit/try", form)
        form |= pressed(page, "Put it into the text")
        answer, page = await wanda.send("POST", f"{HOME}/edit/case", form)
        assert answer.status == 200
        names = [each.name for each in load_document(typed(page)).body.tests]
        assert len(set(names)) == 2
        assert "Not saved yet." in page
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")
        assert typed(page) == draft


@pytest.mark.anyio
async def test_what_is_no_case_changes_nothing(listener: Listener) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT)
        for case in ("", "{", "[]", '{"name": "x"}', '{"name": "x", "facts": {"nothing": 1}}'):
            for form in ({"revision": "1"}, {"revision": "1", "text": TEXT + "# mine\n"}):
                answer, page = await wanda.send("POST", f"{HOME}/edit/case", form | {"case": case})
                assert (answer.status, "no test case" in page) == (400, True), case
                assert typed(page) == form.get("text", TEXT)
        form = {"revision": "1", "text": "name = ", "case": "{}"}
        answer, page = await wanda.send("POST", f"{HOME}/edit/case", form)
        assert (answer.status, typed(page)) == (400, "name = ")
