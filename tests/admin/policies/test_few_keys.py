"""A canary for a share of few keys may be one for nobody: the page says so, before and after."""

import re
from typing import Any

import msgspec
import pytest

from admin.policy_room.places import place_of
from gateway.identity import Peppers
from gateway.rollout.trials import Arm
from gateway.secrets.credentials import pepper
from gateway.store.identity.key_names import KeyNames
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.policies.documents import PolicyStore
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.policies.people import APPROVER, WRITER, add_person, signed_in
from tests.admin.policies.test_rolling_out import stepped, submitted
from tests.admin.policies.test_writing import TEXT, plain


pytestmark = pytest.mark.anyio


async def issued(listener: Listener, *key_ids: str, organisation: str = "acme") -> None:
    """Keys of ids that are chosen: whether a share takes them hangs on those alone."""
    async with listener.database() as database:
        store = KeyStore(database, Peppers({1: pepper(listener.settings)}), listener.clock)
        for key_id in key_ids:
            place = Place(organisation, "research", "assistant")
            await store.issue(NewKey(place, "a key", "a test", key_id=key_id))


async def test_a_canary_says_how_many_keys_it_decides_for(listener: Listener) -> None:
    await issued(listener, "firstkey0000", "secondkey000")
    await issued(listener, "theirkey0000", organisation="globex")
    await add_person(listener, WRITER, "policy_editor")
    await add_person(listener, APPROVER, "approver")
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        path = await submitted(wanda, TEXT)
        await stepped(anton, path, "approve")
        page = plain((await anton.send("GET", path))[1])
        told = re.search(
            r"Of the 2 keys here, the first is included from (\S+)%, "
            r"all from (\S+)%\.", page,
        )  # fmt: skip
        assert told
        first, last = map(float, told.groups())
        for percent, said in (
            (first - 0.1, f"now none of 2: it decides nothing until its share is {told[1]}%"),
            (first, "now 1 of 2"),
            (last, "now 2 of 2"),
        ):
            await stepped(anton, path, "canary", percent=f"{percent:.1f}")
            page = plain((await anton.send("GET", path))[1])
            assert said in page, said
            _, text = await anton.send("GET", path.replace("/o/", "/api/organisations/"))
            keys = msgspec.json.decode(text)["keys"]
            assert (keys["keys"], f"{keys['first_percent']:g}") == (2, told[1])
            assert str(keys["taken"] or "none") == said.split()[1], said


async def test_a_canary_of_the_installation_tells_one_organisation_nothing_of_the_others(
    listener: Listener,
) -> None:
    """How much all of them asked, what it cost and how many keys they have, less one's own."""
    await issued(listener, "firstkey0000")
    await issued(listener, "theirkey0000", "theirkey0001", organisation="globex")
    await add_person(listener, WRITER, "policy_editor", where="*")
    await add_person(listener, APPROVER, "approver", where="*")
    await add_person(listener, "vera", "viewer")
    at = "/o/acme/policies/installation"
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        await wanda.send("POST", f"{at}/edit", {"text": TEXT, "revision": "0"})
        answer, _ = await wanda.send("POST", f"{at}/submit", {"revision": "1", "reason": "T-1"})
        path = answer.headers["location"]
        await stepped(anton, path, "approve")
        assert (await stepped(anton, path, "canary", percent="50"))[0] == 303
        async with listener.database() as database:
            figures = PolicyStore(database, listener.clock).figures
            await figures.report("", 1, "w", Arm(requests=4_711), Arm(requests=8_642))
        async with signed_in(listener, "vera") as vera:
            told = [await _seen_of(each, path) for each in (anton, vera)]

    (page, version), (hers, her_version) = told
    assert ("4,711" in page, "8,642" in page, "of 3" in page) == (True, True, True)
    assert (version["keys"]["keys"], version["measured"]["canary"]["requests"]) == (3, 4_711)
    assert ("4,711" in hers, "8,642" in hers, "of 3" in hers) == (False, False, False)
    assert "counted for all organisations together" in hers
    assert "No request has ended under it" not in hers
    assert (her_version["keys"], her_version["measured"]) == (None, None)


async def _seen_of(browser: Browser, path: str) -> tuple[str, dict[str, Any]]:
    """A version's page, and the same over JSON."""
    _, page = await browser.send("GET", path)
    _, text = await browser.send("GET", path.replace("/o/", "/api/organisations/"))
    return plain(page), msgspec.json.decode(text)


@pytest.mark.parametrize(
    ("slug", "below"),
    [
        ("installation", ("", "")),
        ("organisation", ("", "")),
        ("ws:research", ("research", "")),
        ("proj:research:assistant", ("research", "assistant")),
    ],
)
def test_a_level_names_the_keys_below_it(slug: str, below: tuple[str, str]) -> None:
    assert place_of("acme", slug).below == below


@ON_BOTH
async def test_keys_that_may_ask_are_counted_below_their_level(listener: Listener) -> None:
    mine = {await listener.issue_key(f"key {number}") for number in range(3)}
    await listener.revoke_key(mine.pop())
    others = {await listener.issue_key("of others", organisation="globex")}
    now_us = listener.clock.utc_us()
    async with listener.database() as database:
        names = KeyNames(database)
        for place, expected in (
            (("", "", ""), mine | others),
            (("acme", "", ""), mine),
            (("acme", "research", ""), mine),
            (("acme", "research", "assistant"), mine),
            (("acme", "research", "nothing"), set()),
        ):
            assert set(await names.live_ids(*place, now_us, 9)) == expected, place
        assert len(await names.live_ids("", "", "", now_us, 2)) == 2
