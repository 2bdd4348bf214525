"""Who waits for whom, and until when."""

import asyncio

import pytest

from gateway.caching.joining import HELD_UP_S, Leads, Name


NAME = Name(b"key", "decision", "standard")
pytestmark = pytest.mark.anyio


async def test_whoever_waits_goes_on_at_the_end_and_nobody_joins_then() -> None:
    leads = Leads(30.0)
    lead = leads.begin(NAME, 10.0)
    assert leads.found(NAME, 11.0) is lead
    waits = [asyncio.ensure_future(lead.over(30.0)) for _ in range(3)]
    await asyncio.sleep(0)
    assert leads.waiting == 3

    waits[0].cancel()
    await asyncio.wait(waits[:1])
    assert (leads.waiting, leads.found(NAME, 11.0)) == (2, lead)
    lead.end()
    lead.end()
    await asyncio.gather(*waits[1:])

    assert (leads.waiting, len(leads), leads.found(NAME, 11.0)) == (0, 0, None)


async def test_what_differs_in_who_may_answer_or_how_soon_is_not_waited_for() -> None:
    leads = Leads(30.0)
    leads.begin(NAME, 0.0)

    others = (
        Name(b"other", "decision", "standard"),
        Name(b"key", "other", "standard"),
        Name(b"key", "decision", "priority"),
    )
    assert [leads.found(other, 1.0) for other in others] == [None] * 3


async def test_one_that_takes_too_long_is_followed_by_another_whose_end_is_its_own() -> None:
    leads = Leads(30.0)
    slow = leads.begin(NAME, 0.0)
    assert leads.found(NAME, 29.9) is slow
    assert leads.found(NAME, 30.0) is None

    quick = leads.begin(NAME, 30.0)
    slow.end()

    assert leads.found(NAME, 31.0) is quick


async def test_nobody_waits_longer_than_allowed_or_than_half_of_its_own_deadline() -> None:
    leads = Leads(30.0)

    assert [leads.within_s(deadline_s) for deadline_s in (300.0, 10.0, 0.0)] == [30.0, 5.0, 0.0]
    await leads.begin(NAME, 0.0).over(0.0)
    assert leads.waiting == 0
    assert Leads(0.0).found(NAME, 0.0) is None


async def test_one_that_its_reader_holds_up_is_not_waited_for_any_further() -> None:
    leads, held_up_s = Leads(30.0), [0.0]
    slow = leads.begin(NAME, 0.0)
    slow.held_up_s = lambda: held_up_s[0]
    assert leads.found(NAME, 1.0) is slow
    waits = asyncio.ensure_future(slow.over(30.0))
    await asyncio.sleep(0)
    held_up_s[0] = HELD_UP_S

    await waits

    assert leads.found(NAME, 1.0) is None


async def test_the_first_end_says_whether_it_was_answered() -> None:
    leads = Leads(30.0)
    for is_answered in (True, False):
        lead = leads.begin(NAME, 0.0)
        lead.end(is_answered=is_answered)
        lead.end(is_answered=not is_answered)
        assert lead.is_answered is is_answered
