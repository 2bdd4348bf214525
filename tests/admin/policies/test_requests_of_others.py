"""A recorded request of another organisation, named where its facts would be looked up: as none.

The walk over all routes (`tests.admin.test_foreign_ids`) names requests that were recorded without
facts, of which nothing could be told here.
"""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from gateway.oversight.access import Grant
from tests.admin.listener import Browser, Listener
from tests.admin.policies.traffic import record_traffic
from tests.admin.test_access import PASSWORD, person, world


pytestmark = pytest.mark.anyio

OWN, FOREIGN, NEVER = "req_acme_000000", "req_umbrella_000000", "req_nowhere_000000"
POLICY = 'name = "asked"\nversion = 1\n'
FACTS: dict[str, object] = {"complexity_tier": "cheap", "input_tokens_estimate": 400}


async def over_json(browser: Browser, request_id: str) -> tuple[int, str, str]:
    path = "/api/organisations/acme/policies/organisation/explain"
    body = msgspec.json.encode({"text": POLICY, "request": request_id}).decode()
    answer, text = await browser.send("POST", path, body=body, content_type="application/json")
    return answer.status, "", text


async def by_a_new_rule(browser: Browser, request_id: str) -> tuple[int, str, str]:
    answer, text = await browser.send("GET", f"/o/acme/policies/new?from={request_id}")
    return answer.status, answer.headers.get("location", ""), text


@pytest.mark.parametrize("way", [over_json, by_a_new_rule])
async def test_a_request_of_another_organisation_is_answered_as_none(
    listener: Listener,
    browser: Browser,
    way: Callable[[Browser, str], Awaitable[tuple[int, str, str]]],
) -> None:
    await world(listener)
    for organisation in ("acme", "umbrella"):
        await record_traffic(listener, [FACTS], organisation=organisation)
    await person(listener, "ann", Grant("policy_editor", "acme"))
    await browser.sign_in_as("ann", PASSWORD)

    own, foreign, never = [await way(browser, each) for each in (OWN, FOREIGN, NEVER)]

    first, second = (
        [str(part).replace(name, "ID") for part in told]
        for told, name in ((foreign, FOREIGN), (never, NEVER))
    )
    assert first == second
    assert own != foreign, "of one's own something is told"
    assert "umbrella" not in "".join(first)
