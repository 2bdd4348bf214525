"""Writing a policy: cards and code are one document, mistakes are said in place, nothing lost."""

import html
import re

import pytest

from admin.policy_room.fact_words import FACT_WORDS
from classifiers.pii.labels import LABELS
from gateway.store.policies.drafts import DraftTable
from policies.language.vocabulary import FACTS
from tests.admin.listener import Browser, Listener
from tests.admin.policies.people import APPROVER, WRITER, add_person, signed_in, staff


pytestmark = pytest.mark.anyio
HOME = "/o/acme/policies/organisation"
TEXT = """# why this exists: the contract of 2026
name = "acme"
version = 1

[[constraints]]
name = "stay-home"  # with legal
when = 'data_class >= "S3"'
allow_only = { in_house = true }

# asked for by the support team
[[preferences]]
name = "cheap"
order = ["cheapest"]
"""


def plain(page: str) -> str:
    """What a reader sees of a page."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page)))


def typed(page: str, name: str = "text") -> str:
    """What stands in a text area."""
    found = re.search(rf'<textarea[^>]*name="{name}"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


async def saved(browser: Browser, text: str, revision: int = 0) -> None:
    form = {"text": text, "revision": str(revision)}
    answer, page = await browser.send("POST", f"{HOME}/edit", form)
    assert answer.status == 303, plain(page)


async def test_a_text_is_kept_as_it_was_typed_and_a_card_changes_one_rule_of_it(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT.replace("\n", "\r\n"))
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")
        assert typed(page) == TEXT
        _, page = await wanda.send("GET", f"{HOME}/edit/rule?section=constraints&place=0")
        assert 'value="stay-home"' in page
        form = {
            "section": "constraints",
            "place": "0",
            "revision": "1",
            "name": "stay-home",
            "written": "rows",
            "row0.fact": "data_class",
            "row0.operator": ">=",
            "row0.value": "S2",
            "row1.fact": "findings",
            "row1.key": "PAN",
            "row1.operator": ">",
            "row1.value": "0",
            "allow_only.in_house": "true",
        }
        answer, page = await wanda.send("POST", f"{HOME}/edit/rule", form)
        assert answer.status == 303, plain(page)
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")

    assert typed(page) == TEXT.replace(
        "when = 'data_class >= \"S3\"'", 'when = \'data_class >= "S2" and findings["PAN"] > 0\''
    )


async def test_a_card_explains_its_facts_and_a_label_that_is_none_is_warned_of(
    listener: Listener,
) -> None:
    """As a rule that waits for what is never found would let through what it was to stop."""
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT.replace('data_class >= "S3"', "findings.CREDITCARD > 0"))
        _, card = await wanda.send("GET", f"{HOME}/edit/rule?section=constraints&place=0")
        _, edit = await wanda.send("GET", f"{HOME}/edit")

    assert set(FACT_WORDS) == set(FACTS)
    said = plain(card)
    assert all(f" {name} {words}" in said for name, words in FACT_WORDS.items())
    assert "From the least: S0, S1, S2, S3, S4." in said
    examples = re.findall(r"findings\.([A-Z_]+)|placeholder=\"([A-Z_]+)\"", card)
    assert {a or b for a, b in examples} <= set(LABELS) | {"CREDITCARD"}
    assert "nothing is ever found as 'CREDITCARD'; did you mean 'CREDIT_CARD'?" in plain(edit)


async def test_a_rule_that_no_label_can_approve_is_warned_of(listener: Listener) -> None:
    await staff(listener)
    asks = '\n[[constraints]]\nname = "second look"\nrequire_approval = "Ask legal."\n'
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT + asks)
        _, edit = await wanda.send("GET", f"{HOME}/edit")

    assert "never approved: no key can carry 'approved:second look'" in plain(edit)


async def test_rules_are_moved_and_taken_out_with_what_belongs_to_them(listener: Listener) -> None:
    await staff(listener)
    second = (
        '\n# the second\n[[preferences]]\nname = "strong"\nroute = "strong"\ntargets = ["claude"]\n'
    )
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT + second)
        form = {"section": "preferences", "place": "1", "revision": "1", "action": "up"}
        answer, _ = await wanda.send("POST", f"{HOME}/edit/rules", form)
        assert answer.status == 303
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")
        text = typed(page)
        assert text.index("strong") < text.index('"cheap"')
        assert "# the second" in text
        form = {"section": "preferences", "place": "0", "revision": "2", "action": "remove"}
        await wanda.send("POST", f"{HOME}/edit/rules", form)
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")
        stale, page_of_stale = await wanda.send("POST", f"{HOME}/edit/rules", form)

    assert "strong" not in typed(page)
    assert "# why this exists" in typed(page)
    assert (stale.status, "Nothing was changed" in page_of_stale) == (409, True)


async def test_a_mistake_is_said_at_its_line_and_column_and_the_text_stays(
    listener: Listener,
) -> None:
    await staff(listener)
    wrong = TEXT.replace("data_class >=", "data_clas >=")
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, wrong)
        _, page = await wanda.send("GET", f"{HOME}/edit")
        assert typed(page) == wrong
        said = plain(page)
        assert "line 7, column 9" in said
        assert "did you mean 'data_class'" in said
        answer, page = await wanda.send("POST", f"{HOME}/submit", {"revision": "1", "reason": "x"})

    assert answer.status == 400
    assert "pass its checks" in plain(page)


async def test_who_saves_second_sees_both_texts_and_nothing_is_overwritten(
    listener: Listener,
) -> None:
    await staff(listener)
    await add_person(listener, "walter", "policy_editor")
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, "walter") as walter:
        await saved(wanda, TEXT)
        await saved(walter, TEXT + "# walter was here\n", 1)
        mine = TEXT.replace("cheap", "thrifty")
        answer, page = await wanda.send("POST", f"{HOME}/edit", {"text": mine, "revision": "1"})
        assert answer.status == 409
        assert "walter saved revision 2 meanwhile" in plain(page)
        assert typed(page) == mine
        assert "# walter was here" in html.unescape(page)
        async with listener.database() as database:
            draft = await DraftTable(database, listener.clock).draft("org:acme")
        assert draft is not None
        assert draft.text.endswith("# walter was here\n")
        await saved(wanda, mine, 2)


async def test_the_installation_is_written_only_by_who_may_everywhere(listener: Listener) -> None:
    await staff(listener)
    path = "/o/acme/policies/installation/edit"
    async with signed_in(listener, WRITER) as wanda:
        answer, _ = await wanda.send("POST", path, {"text": TEXT, "revision": "0"})
    async with signed_in(listener, APPROVER) as anton:
        other, _ = await anton.send("POST", f"{HOME}/edit", {"text": TEXT, "revision": "0"})

    assert (answer.status, other.status) == (403, 403)


@pytest.mark.parametrize("level", ["ws:../x", "proj:a", "org:umbrella", "ws:A", "nothing"])
async def test_an_address_names_no_level_of_somebody_else(listener: Listener, level: str) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        answer, _ = await wanda.send("GET", f"/o/acme/policies/{level}")

    assert answer.status == 404


async def test_a_decision_names_the_rule_that_sent_and_the_one_that_ordered_without_marks(
    listener: Listener,
) -> None:
    # A value with stars of its own, between both names.
    ordered = """name = "acme"
version = 1
[[constraints]]
name = "goes-out"
when = 'project != "main"'
allow_only = { in_house = false }
[[preferences]]
name = "in turn"
order = ["cheapest"]
"""
    form = {"text": ordered, "revision": "0", "fact.project": "*odd*"}
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        _, page = await wanda.send("POST", f"{HOME}/edit/try", form)

    assert "because <strong>goes-out</strong> matched (project = *odd*)" in page
    assert "(project = *odd*), in the order of <strong>in turn</strong>." in page


@pytest.mark.parametrize(
    "text",
    [
        "x" * 600_000,
        "a = " + "[" * 100_000,
        "name = '<script>alert(1)</script>'\nversion = 1\n",
        "\N{RIGHT-TO-LEFT OVERRIDE}name = 1",
        "name: &a [*a, *a]\nversion: 1",
        '{"name": "x", "name": "y"}',
        "",
    ],
)
async def test_a_hostile_text_is_answered_in_place(listener: Listener, text: str) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        answer, page = await wanda.send("POST", f"{HOME}/edit/try", {"text": text, "revision": "0"})

    assert answer.status == 200
    assert ("not ready" in plain(page)) is ("alert" not in text)
    assert "<script>alert" not in page


async def test_a_draft_with_mistakes_says_why_it_has_no_cards_and_claims_nothing_of_its_rules(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT + "colour = 1\n")
        _, page = await wanda.send("GET", f"{HOME}/edit?as=cards")
        assert "The text has mistakes, so it cannot be shown as cards yet" in plain(page)
        assert "line 14, column 1" in plain(page)
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")
        assert "it cannot be shown as cards yet" not in plain(page)
        _, page = await wanda.send("GET", f"{HOME}/edit/rule?section=constraints&place=0")
        assert "<h1>A constraint</h1>" in page
        assert "None" not in plain(page)
        assert "Save to the draft" not in page
        _, page = await wanda.send("GET", f"{HOME}/submit")
        assert "its changes cannot be shown" in plain(page)
        assert "No rule changes" not in plain(page)


@pytest.mark.parametrize(("section", "field"), [("constraints", None), ("preferences", "order")])
async def test_what_a_rule_lacks_is_not_said_of_its_name(
    listener: Listener, section: str, field: str | None
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        form = {"section": section, "revision": "0", "name": "mine"}
        answer, page = await wanda.send("POST", f"{HOME}/edit/rule", form)
        assert answer.status == 400
        assert re.findall(r'name="([^"]*)"[^>]*aria-invalid="true"', page) == [field] * bool(field)
        told = "has no effect" if field is None else "needs an order, targets, weights or a canary"
        assert told in plain(page)


async def test_two_texts_are_told_of_in_a_whole_sentence(listener: Listener) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT)
        _, page = await wanda.send("POST", f"{HOME}/edit", {"text": TEXT, "revision": "0"})
        assert re.search(r'role="alert">The draft is not what it was', page)
