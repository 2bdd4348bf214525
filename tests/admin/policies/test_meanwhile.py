"""Two who change rules at once: neither card takes another rule's place, nor what was not seen."""

import html
import re

import pytest

from tests.admin.listener import Browser, Listener
from tests.admin.policies.people import WRITER, add_person, signed_in, staff
from tests.admin.policies.test_writing import HOME, plain, saved, typed


pytestmark = pytest.mark.anyio
TEXT = """name = "acme"
version = 1

[[constraints]]
name = "first"
when = 'data_class >= "S4"'
deny = "never"

[[constraints]]
name = "second"
when = 'data_class >= "S3"'
allow_only = { in_house = true }

[[constraints]]
name = "third"
cap_output_tokens = 900
"""
CARD = f"{HOME}/edit/rule?section=constraints&place=1"
_FIELD = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')


def hidden(page: str) -> dict[str, str]:
    """What the form of a card sends along of itself."""
    form = page[page.index('class="stack"') :]
    return {name: html.unescape(value) for name, value in _FIELD.findall(form)}


async def kept(browser: Browser, page: str, **fields: str) -> tuple[int, str]:
    """What keeping a card is answered with; it caps the output of the second rule's requests."""
    form = {"name": "second", "written": "text", "when": 'data_class >= "S2"'}
    form |= {"allow_only.in_house": "true"} | fields | hidden(page)
    answer, page = await browser.send("POST", f"{HOME}/edit/rule", form)
    return answer.status, page


async def names(browser: Browser) -> list[str]:
    _, page = await browser.send("GET", f"{HOME}/edit?as=code")
    return re.findall(r'^name = "(\w+)"', typed(page), re.MULTILINE)[1:]


async def test_a_card_follows_its_rule_where_others_took_one_out(listener: Listener) -> None:
    await staff(listener)
    await add_person(listener, "walter", "policy_editor")
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, "walter") as walter:
        await saved(wanda, TEXT)
        _, card = await wanda.send("GET", CARD)
        order = {"section": "constraints", "place": "0", "revision": "1", "action": "remove"}
        answer, _ = await walter.send("POST", f"{HOME}/edit/rules", order)
        assert answer.status == 303
        status, page = await kept(wanda, card)
        assert (status, await names(wanda)) == (409, ["second", "third"])
        assert "walter saved revision 2 meanwhile" in plain(page)
        assert "- when = 'data_class >= \"S3\"'" in plain(page)
        assert "+ when = 'data_class >= \"S2\"'" in plain(page)
        assert hidden(page)["place"] == "0"
        assert (await kept(wanda, page))[0] == 303
        assert await names(wanda) == ["second", "third"], "the third is not what was replaced"
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")
        assert "cap_output_tokens = 900" in typed(page)
        assert 'data_class >= "S2"' in typed(page)


async def test_a_card_whose_rule_is_gone_is_added_and_says_so(listener: Listener) -> None:
    await staff(listener)
    await add_person(listener, "walter", "policy_editor")
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, "walter") as walter:
        await saved(wanda, TEXT)
        _, card = await wanda.send("GET", CARD)
        await saved(walter, TEXT.replace('"second"', '"other"'), 1)
        status, page = await kept(wanda, card)
        assert (status, "was removed or renamed meanwhile" in plain(page)) == (409, True)
        await saved(walter, TEXT.replace('"second"', '"another"'), 2)
        status, page = await kept(wanda, page)
        assert (status, "added to revision 3" in plain(page)) == (409, True)
        assert (await kept(wanda, page))[0] == 303
        assert await names(wanda) == ["first", "another", "third", "second"]


async def test_a_card_that_others_changed_as_well_says_what_they_changed(
    listener: Listener,
) -> None:
    await staff(listener)
    await add_person(listener, "walter", "policy_editor")
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, "walter") as walter:
        await saved(wanda, TEXT)
        _, card = await wanda.send("GET", CARD)
        theirs = TEXT.replace("allow_only = { in_house = true }", 'deny = "by walter"')
        await saved(walter, theirs, 1)
        status, page = await kept(wanda, card)
        assert (status, '- deny = "by walter"' in plain(page)) == (409, True)
        assert await names(wanda) == ["first", "second", "third"]
        assert hidden(page)["was"] == "second"
