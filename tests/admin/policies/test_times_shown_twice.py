"""Where clocks are put back an hour comes twice: a time in it says which one is meant."""

from datetime import datetime

import pytest

from admin.preferences import Preferences
from admin.wall_clocks import moment_of
from gateway.errors import RequestInvalid
from tests.admin.listener import Listener
from tests.admin.policies.people import APPROVER, WRITER, signed_in, staff
from tests.admin.policies.test_rolling_out import STRICT, stepped, submitted
from tests.admin.policies.test_writing import HOME, plain


pytestmark = pytest.mark.anyio
BERLIN = "Europe/Berlin"
SCHEDULES = "/api/organisations/acme/policies/organisation/schedules"


def _us(utc: str) -> int:
    return int(datetime.fromisoformat(utc).timestamp() * 1_000_000)


def test_a_moment_in_an_hour_that_comes_twice_is_shown_with_its_offset() -> None:
    way = Preferences(locale="en_GB", zone=BERLIN)
    now_us = _us("2027-11-02T12:00+00:00")
    for utc, shown in {
        "2027-10-31T00:30+00:00": "31 Oct 2027, 02:30:00 (UTC+02:00)",
        "2027-10-31T01:30+00:00": "31 Oct 2027, 02:30:00 (UTC+01:00)",
        "2027-10-30T23:59+00:00": "31 Oct 2027, 01:59:00",
        "2027-10-31T02:00+00:00": "31 Oct 2027, 03:00:00",
        "2027-03-28T01:30+00:00": "28 Mar 2027, 03:30:00",
    }.items():
        assert f">{shown}</time>" in way.moment(_us(utc))
        offset = shown.partition(" (")[2]
        assert way.moment_short(_us(utc), now_us).partition(" (")[2] == (
            f"{offset}</time>" if offset else ""
        )
    assert "(UTC" not in Preferences().moment(_us("2027-10-31T00:30+00:00"))


def test_times_that_a_program_wrote_down_are_shown_as_all_others_and_nothing_else_is() -> None:
    way = Preferences(locale="en_GB", zone=BERLIN)
    told = way.told("publish at 2027-10-31T01:30:00Z; <b>T-1</b> of 2027-13-31T01:30:00Z")
    assert ">31 Oct 2027, 02:30:00 (UTC+01:00)</time>; &lt;b&gt;T-1&lt;/b&gt; of 2027-13-31" in told
    assert way.told("as T-1 says") == "as T-1 says"


def test_a_time_that_no_clock_shows_is_refused_and_of_one_shown_twice_it_is_said_which() -> None:
    """Half past two of a Sunday in March: it was scheduled for half past three."""
    with pytest.raises(RequestInvalid, match="no clock in Europe/Berlin shows this time"):
        moment_of("2027-03-28T02:30", "Europe/Berlin", "first")
    with pytest.raises(RequestInvalid, match="clocks in Europe/Berlin show this time twice"):
        moment_of("2027-10-31T02:30", "Europe/Berlin")
    twice = {"first": "2027-10-31T00:30+00:00", "second": "2027-10-31T01:30+00:00"}
    for turn, utc in twice.items():
        expected_us = int(datetime.fromisoformat(utc).timestamp() * 1_000_000)
        assert moment_of("2027-10-31T02:30", "Europe/Berlin", turn) == expected_us
    moments = {
        "2027-03-28T01:59": "2027-03-28T00:59+00:00",
        "2027-03-28T03:00": "2027-03-28T01:00+00:00",
        "2027-10-31T01:59": "2027-10-30T23:59+00:00",
        "2027-10-31T03:00": "2027-10-31T02:00+00:00",
        "2027-10-31T02:30+01:00": "2027-10-31T01:30+00:00",
    }
    for said, utc in moments.items():
        expected_us = int(datetime.fromisoformat(utc).timestamp() * 1_000_000)
        assert moment_of(said, "Europe/Berlin") == expected_us, said


@pytest.mark.parametrize(
    ("turn", "utc", "offset"),
    [("first", "2027-10-31T00:30:00", "+02:00"), ("second", "2027-10-31T01:30:00", "+01:00")],
)
async def test_who_schedules_in_an_hour_that_comes_twice_chooses_which_one(
    listener: Listener, turn: str, utc: str, offset: str
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        path = await submitted(wanda, STRICT)
        assert (await stepped(anton, path, "approve"))[0] == 303
        view = {"zone": BERLIN, "locale": "en_GB", "currency": "USD", "theme": "system"}
        assert (await anton.send("POST", "/viewing", view))[0].status == 303
        _, page = await anton.send("GET", path)
        assert 'name="turn"' not in page

        at = {"at": "2027-10-31T02:30", "zone": BERLIN}
        form = {"action": "publish", "reason": "winter"} | at
        asked, page = await anton.send("POST", f"{path}/rollout", form)
        assert asked.status == 400
        assert "clocks in Europe/Berlin show this time twice" in plain(page)
        assert 'value="first">the first one, 00:30 UTC<' in page
        assert 'value="second">the second one, 01:30 UTC<' in page
        status, said = await stepped(anton, path, "publish", turn=turn, **at)
        assert status == 303, said

        _, page = await anton.send("GET", path)
        assert f"31 Oct 2027, 02:30:00 (UTC{offset})" in plain(page)
        _, history = await anton.send("GET", f"{HOME}/history")
        shown = plain(history).replace(" ;", ";")
        assert f"publish at 31 Oct 2027, 02:30:00 (UTC{offset}); to publish" in shown
        assert f"{utc}Z" not in shown
        _, times = await anton.send("GET", SCHEDULES)
        assert str(_us(f"{utc}+00:00")) in times
