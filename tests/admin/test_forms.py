"""What people type into fields is taken as it was meant, or refused with its field's name."""

import re

import pytest

from admin.forms import MICROUSD_MAX, TEXT_LENGTH_MAX, Form
from gateway.errors import RequestInvalid
from tests.admin import seeding
from tests.admin.compliance.test_erasures import HOLDS
from tests.admin.listener import Browser, Listener


API = "/api/organisations/acme/compliance/holds"


def typed(text: str) -> Form:
    return Form({"amount": [text]})


@pytest.mark.parametrize(
    ("text", "microusd"),
    [
        *(("", None), ("0", 0), ("12.50", 12_500_000), ("$ 0.99", 990_000), (" 7 ", 7_000_000)),
        *(("1,500", 1_500_000_000), ("1,234,567.25", 1_234_567_250_000), ("0.000001", 1)),
        # Lakhs, as the pages show amounts to readers in India.
        *(("1,50,000", 150_000_000_000), ("12,34,567.5", 1_234_567_500_000)),
        (f"{MICROUSD_MAX // 10**6}", MICROUSD_MAX),
    ],
)
def test_an_amount_of_dollars_is_read_as_it_is_written(text: str, microusd: int | None) -> None:
    assert typed(text).microusd("amount") == microusd


@pytest.mark.parametrize(
    "text",
    [
        # What most of Europe writes for a part of a dollar is not a hundred times as much.
        *("12,50", "0,99", "1.234,56", ",5", "1,5", "1,,000", "1,2345", "12,345,67", "1,00,00"),
        *("-1", "0.0000001", "ten", "nan", "sNaN", "Infinity", "1e400", "1" * 31),
        f"{MICROUSD_MAX // 10**6}.000001",
    ],
)
def test_what_could_mean_another_amount_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        typed(text).microusd("amount")
    assert refused.value.parameter == "amount"


def test_a_whole_number_has_commas_between_thousands_only_and_an_end() -> None:
    read = [typed(text).whole("amount", 1_000) for text in ("", "0", "1000", "1,000", "1_000")]
    assert read == [None, 0, 1_000, 1_000, 1_000]
    for text in ("1,5", "1.5", "-1", "1001", "9" * 5_000, "²", "１", "+1", "1 0"):
        with pytest.raises(RequestInvalid) as refused:
            typed(text).whole("amount", 1_000)
        assert refused.value.parameter == "amount", text


@pytest.mark.anyio
async def test_a_field_that_is_too_long_is_named_and_nothing_of_the_form_is_lost(
    listener: Listener, browser: Browser
) -> None:
    """It was cut off at the limit, and the form was taken as if that had been typed."""
    await listener.issue_key("assistant")
    await seeding.person(listener, "cora", "compliance", "acme")
    await browser.sign_in_as("cora", seeding.PASSWORD)
    long = "court file " * 1_000 + "and the end"
    form = {"scope": "organisation", "user": "", "reason": long}
    answer, page = await browser.send("POST", HOLDS, form)
    assert answer.status == 400
    said = f"has {len(long):,} characters: {TEXT_LENGTH_MAX:,} are taken at most"
    assert f"&#39;reason&#39; {said}. Nothing was done." in page
    assert long in page


@pytest.mark.anyio
async def test_a_character_that_no_database_keeps_is_said_with_its_field(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("assistant")
    await seeding.person(listener, "cora", "compliance", "acme")
    await browser.sign_in_as("cora", seeding.PASSWORD)
    form = {"scope": "organisation", "user": "", "reason": "a\0b and more"}
    answer, page = await browser.send("POST", HOLDS, form)
    assert answer.status == 400
    assert "&#39;reason&#39; holds a character that no database keeps (NUL)" in page
    assert "and more" in page, "what was typed stays"
    answer, said = await browser.send("POST", API, body='{"reason": "\\u0000"}')
    assert answer.status == 400
    assert "a character that no database keeps (NUL)" in said


@pytest.mark.anyio
async def test_an_address_that_cannot_be_read_leads_to_its_page_without_what_was_asked(
    listener: Listener, browser: Browser
) -> None:
    """Only the overview was named, and whoever came by a long filter began at the front again."""
    await listener.issue_key("assistant")
    await seeding.person(listener, "cora", "compliance", "acme")
    await browser.sign_in_as("cora", seeding.PASSWORD)
    answer, page = await browser.send("GET", f"{HOLDS}?from=1&after=a%00%22%3E")
    assert (answer.status, "cannot be read" in page) == (400, True)
    (bare,) = re.findall(r'<a class="button" href="([^"]*)">Open the page without it</a>', page)
    assert bare == HOLDS
    answer, page = await browser.send("GET", bare)
    assert (answer.status, "<h1>Holds</h1>" in page) == (200, True)
    answer, page = await browser.send("GET", "/o/acme/nowhere?after=a%00")
    assert (answer.status, "without it" in page) == (404, False)
