"""Which requests named one person: asked by name, found by digest, and the name is kept nowhere."""

import pytest

from tests.admin.compliance.archive import converse, deeds, person, subject
from tests.admin.listener import Listener


pytestmark = pytest.mark.anyio
ASK = "/o/acme/compliance/end-user"


async def test_a_name_leads_to_the_records_of_that_person_in_both_lists(
    listener: Listener,
) -> None:
    ann, bob = await converse(listener, ["ann-li", "bob"])
    digest = subject(listener, "ann-li")
    async with person(listener, "cora") as cora:
        for each, filtered in (("traffic", "since:7d"), ("audit", "kind:outcome")):
            form = {"user": " ann-li ", "q": f"user:abcdef {filtered}", "list": each}
            answer, _ = await cora.send("POST", ASK, form)
            assert answer.status == 303
            there = answer.headers["location"]
            assert "ann" not in there
            _, page = await cora.send("GET", there)
            assert f'value="{filtered} user:{digest}"' in page
            if each == "traffic":
                assert (ann in page, bob in page) == (True, False)
        _, story = await cora.send("GET", f"/o/acme/traffic/{ann}")
        assert f"q=user%3A{digest}" in story
    assert (await deeds(listener)).count(("cora", "subject.searched")) == 2


async def test_a_name_in_the_filter_is_refused_instead_of_finding_nothing(
    listener: Listener,
) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        answer, page = await cora.send("GET", "/o/acme/traffic?q=user:ann")
        assert answer.status == 400
        assert "never a name" in page
        assert (await cora.send("POST", ASK, {"user": "  "}))[0].status == 400
        assert (await cora.send("POST", ASK, {"user": "ann", "list": "x"}))[0].status == 400


async def test_who_may_not_erase_is_not_offered_the_search(listener: Listener) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "vic", "viewer") as vic:
        _, page = await vic.send("GET", "/o/acme/traffic")
        assert ASK not in page
        assert (await vic.send("POST", ASK, {"user": "ann"}))[0].status == 403
