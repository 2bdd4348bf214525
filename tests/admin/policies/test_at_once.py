"""Two who schedule, or call off, at once: nobody replaces or ends what they have not seen."""

import re
from typing import Any

import msgspec
import pytest

from tests.admin.listener import Browser, Listener
from tests.admin.policies.people import APPROVER, WRITER, add_person, signed_in, staff
from tests.admin.policies.test_rolling_out import STRICT, stepped, submitted
from tests.admin.policies.test_writing import HOME, plain


pytestmark = pytest.mark.anyio
API = HOME.replace("/o/", "/api/organisations/").replace("/edit", "")
AT: dict[str, Any] = {"at": "2027-01-16T00:00", "zone": "UTC"}
LATER: dict[str, Any] = {"at": "2027-01-17T00:00", "zone": "UTC"}


async def waiting_on(browser: Browser, path: str) -> str:
    """The appointment that the page shows, as its form says."""
    _, page = await browser.send("GET", path)
    (found,) = set(re.findall(r'name="waiting" value="([^"]*)"', page))
    return str(found)


async def states(browser: Browser) -> list[tuple[str, str]]:
    _, text = await browser.send("GET", f"{API}/schedules")
    return [(each["action"], each["state"]) for each in msgspec.json.decode(text)]


async def test_no_appointment_is_replaced_or_called_off_that_was_not_seen(
    listener: Listener,
) -> None:
    await staff(listener)
    await add_person(listener, "ada", "approver")
    async with (
        signed_in(listener, WRITER) as wanda,
        signed_in(listener, APPROVER) as anton,
        signed_in(listener, "ada") as ada,
    ):
        path = await submitted(wanda, STRICT)
        await stepped(anton, path, "approve")
        seen = await waiting_on(ada, path)
        assert seen == "none"
        assert (await stepped(anton, path, "canary", percent="5", waiting=seen, **AT))[0] == 303
        status, said = await stepped(ada, path, "publish", waiting=seen, **LATER)
        assert (status, "scheduled meanwhile" in said) == (409, True)
        first = await waiting_on(ada, path)
        assert (await stepped(anton, path, "publish", waiting=first, **LATER))[0] == 303
        form = {"reason": "no canary on a Saturday", "waiting": first}
        answer, page = await ada.send("POST", f"{path}/unschedule", form)
        assert (answer.status, "scheduled meanwhile" in plain(page)) == (409, True)
        body = msgspec.json.encode({"reason": "no", "waiting": first}).decode()
        api = path.replace("/o/", "/api/organisations/")
        answer, _ = await ada.send("POST", f"{api}/unschedule", body=body)
        assert answer.status == 409
        assert await states(ada) == [("canary", "cancelled"), ("publish", "waiting")]
        form["waiting"] = await waiting_on(ada, path)
        answer, _ = await ada.send("POST", f"{path}/unschedule", form)
        assert answer.status == 303


async def test_an_appointment_is_made_beside_what_was_seen_to_act(listener: Listener) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        for text in (STRICT, STRICT.replace("S2", "S1")):
            await stepped(anton, await submitted(wanda, text), "approve")
        api = f"{API}/versions/2/schedule"
        order = {"action": "publish", "at": "2027-01-16T00:00Z", "reason": "planned"}
        await stepped(anton, f"{HOME}/versions/1", "canary", percent="5")
        for seen, status in (
            ({"live": 7}, 409),
            ({"canary": 0}, 409),
            ({"waiting": "000000000000"}, 409),
            ({"live": 0, "canary": 1, "waiting": "none"}, 201),
        ):
            body = msgspec.json.encode(order | seen).decode()
            assert (await anton.send("POST", api, body=body))[0].status == status, seen
