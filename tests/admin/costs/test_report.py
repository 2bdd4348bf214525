"""Reports of costs over the JSON API: grouped, in the organisation's days, and only one's own."""

import msgspec
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from gateway.oversight.access import Grant
from gateway.types import AuditRecord, Usage
from tests.admin.listener import Browser, Listener
from tests.admin.test_access import FOREIGN, OWN, PASSWORD, person, world


pytestmark = pytest.mark.anyio


def outcome(listener: Listener, number: int, organisation: str, project: str) -> AuditRecord:
    return AuditRecord(
        stage="outcome",
        request_id=f"req_{number}",
        organisation=organisation,
        utc_us=listener.clock.utc_us() - number,
        project=project,
        target="house",
        status="ok",
        cost_microusd=1_000_000 * number,
        usage=Usage(input_tokens=number, output_tokens=2),
    )


@pytest.fixture
async def accountant(listener: Listener, browser: Browser) -> Browser:
    """Somebody who may see the costs of one organisation, of which there are some."""
    await world(listener)
    await listener.record(
        outcome(listener, 1, OWN, "bot"),
        outcome(listener, 2, OWN, "mail"),
        outcome(listener, 4, OWN, "bot"),
        outcome(listener, 8, FOREIGN, "bot"),
    )
    await person(listener, "ann", Grant("viewer", OWN))
    await browser.sign_in_as("ann", PASSWORD)
    return browser


async def ask(browser: Browser, path: str) -> tuple[int, object]:
    answer, text = await browser.send("GET", path)
    return answer.status, msgspec.json.decode(text)


async def test_costs_are_grouped_and_only_ones_own(accountant: Browser) -> None:
    status, report = await ask(accountant, f"/api/organisations/{OWN}/costs?by=project&by=status")
    assert status == 200
    assert isinstance(report, dict)
    assert report["rows"] == [
        {
            "project": project,
            "status": "ok",
            "requests": requests,
            "input_tokens": tokens,
            "output_tokens": 2 * requests,
            "cost_microusd": cost,
            "cost": f"{cost // 1_000_000}.00 USD",
        }
        for project, requests, tokens, cost in (("bot", 2, 5, 5_000_000), ("mail", 1, 2, 2_000_000))
    ]
    assert (await ask(accountant, f"/api/organisations/{FOREIGN}/costs"))[0] == 404


async def test_a_forecast_says_what_is_spent_and_how_it_was_made(accountant: Browser) -> None:
    status, forecast = await ask(accountant, f"/api/organisations/{OWN}/costs/forecast")
    assert status == 200
    assert isinstance(forecast, dict)
    assert forecast["spent_microusd"] == 7_000_000
    assert forecast["expected_microusd"] >= 7_000_000
    assert forecast["method"]

    asked: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    again = await ask(accountant, f"/api/organisations/{OWN}/costs/forecast")
    event.remove(Engine, "before_cursor_execute", note)
    assert again == (200, forecast)
    assert any("traffic_day" in each for each in asked)
    assert not any("sum(audit_records" in each for each in asked), "of millions of records"


@pytest.mark.parametrize("query", ["by=password", "by=day&by=day", "since=yesterday", "currency=X"])
async def test_a_question_that_makes_no_sense_is_refused(accountant: Browser, query: str) -> None:
    status, _ = await ask(accountant, f"/api/organisations/{OWN}/costs?{query}")
    assert status == 400


@pytest.mark.parametrize("by", ["project", "finding"])
async def test_a_report_is_of_what_a_filter_leaves(accountant: Browser, by: str) -> None:
    """Of sums by day as of the records themselves."""
    path = f"/api/organisations/{OWN}/costs?by={by}"
    for only, cost in (
        ("only=project%3Dbot", 5_000_000),
        ("only=project%3Dbot&only=project%3Dmail", 7_000_000),
        ("only=project%3Dbot&only=status%3Dfailed", 0),
        ("only=end_user%3D", 7_000_000),
    ):
        status, report = await ask(accountant, f"{path}&{only}")
        assert status == 200
        assert isinstance(report, dict)
        assert sum(row["cost_microusd"] for row in report["rows"]) == cost, only
    for wrong in ("only=project", "only=shoe_size%3D1"):
        assert (await ask(accountant, f"{path}&{wrong}"))[0] == 400
