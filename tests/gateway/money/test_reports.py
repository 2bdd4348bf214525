"""What finance takes along: a chargeback that adds up and runs nothing, and savings by hand."""

import csv
import io
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.configuration.sections import CurrencySettings
from gateway.errors import RequestInvalid
from gateway.money.costs import (
    NO_FRONTIER,
    CostRow,
    Days,
    chargeback,
    dearest,
    list_price,
    savings,
    shown,
    shown_together,
)
from gateway.price import Price
from gateway.types import Target


MAY = Days(date(2027, 5, 1), date(2027, 5, 31), "Asia/Kolkata")
RATES = {"INR": CurrencySettings("84.1", "2026-11-20"), "JPY": CurrencySettings("151.37", "2020")}
HOSTILE = (
    *(
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        '=cmd|"/c calc"!A1',
        "  =1",
        "\u00a0=1",
    ),
    *("\uff1d1+1", "\uff20SUM(A1)", "\uff0b1", "\uff0d1"),
)


def price(output: int) -> Price:
    return Price(3_000_000, output, 300_000, 3_750_000, 6_000_000, 50, "a list", "2027-01-01")


def target(name: str, tier: str, output: int, *capabilities: str) -> Target:
    return Target(
        *(name, "p", name, "us", False, tier, price(output), 1000, 1000, frozenset(capabilities))  # type: ignore[arg-type]
    )


def lines_of(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_cell_that_a_spreadsheet_would_run_is_text(hostile: str) -> None:
    (line,) = lines_of(
        chargeback([CostRow((hostile,), 1, 2, 3, 4_000_000)], ["project"], "USD", {}, MAY)
    )

    assert line["project"] == f"'{hostile}"
    assert (line["requests"], line["cost_microusd"], line["cost"]) == ("1", "4000000", "4.00 USD")


@pytest.mark.parametrize("name", ["bot;=1+1", "bot\t=1+1", 'bot";"=1+1', "bot\n=1+1"])
def test_no_name_begins_another_cell_whatever_separates_them_there(name: str) -> None:
    """In half of Europe cells are separated by semicolons."""
    text = chargeback([CostRow((name,), 1, 2, 3, 4)], ["project"], "USD", {}, MAY)
    for delimiter in ",;\t":
        cells = [cell for row in csv.reader(io.StringIO(text), delimiter=delimiter) for cell in row]
        assert not [cell for cell in cells if cell.startswith("=")]


def test_a_chargeback_says_of_which_days_it_is_and_at_which_rate() -> None:
    (line,) = lines_of(
        chargeback([CostRow(("bot",), 1, 2, 3, 1_500_000)], ["project"], "INR", RATES, MAY)
    )

    assert line == {
        "project": "bot",
        "requests": "1",
        "input_tokens": "2",
        "output_tokens": "3",
        "cost_microusd": "1500000",
        "cost": "126.15 INR (rate of 2026-11-20)",
        "amount": "126.15",
        "currency": "INR",
        "rate_per_usd": "84.1",
        "rate_as_of": "2026-11-20",
        "since": "2027-05-01",
        "until": "2027-05-31",
        "time_zone": "Asia/Kolkata",
    }
    with pytest.raises(RequestInvalid):
        chargeback([], ["project"], "EUR", RATES, MAY)


@given(st.lists(st.integers(0, 10**9)), st.sampled_from(["USD", "INR", "JPY"]))
def test_what_is_shown_of_the_parts_adds_up_to_what_is_shown_of_the_sum(
    costs: list[int], currency: str
) -> None:
    """Each rounded by itself, a thousand keys of half a cent were 0 dollars, or 10."""
    text = chargeback(
        [CostRow((str(n),), 1, 1, 1, cost) for n, cost in enumerate(costs)],
        ["key"],
        currency,
        RATES,
        MAY,
    )
    amounts = [Decimal(line["amount"]) for line in lines_of(text)]
    rate = Decimal(RATES[currency].per_usd) if currency in RATES else Decimal(1)

    assert f"{sum(amounts, Decimal()):.2f}" == shown(sum(costs), currency, RATES).split()[0]
    for amount, cost in zip(amounts, costs, strict=True):
        assert abs(amount - Decimal(cost) * rate / 1_000_000) < Decimal("0.01")
    said = shown_together(costs, currency, RATES)
    assert [Decimal(each.split()[0]) for each in said] == amounts


def test_savings_are_the_same_tokens_at_the_dearest_frontier_targets_list_price() -> None:
    targets = [target("house", "cheap", 0), target("mid", "mid", 90_000_000)]
    targets += [target("front", "frontier", 15_000_000), target("top", "frontier", 75_000_000)]
    rows = [CostRow(("house",), 3, 1_000_000, 200_000, 2_000_000), CostRow(("x",), 1, 10, 1, 0)]
    found = savings(rows, targets, dearest(targets))

    assert found.baseline_microusd == 3 * 1_000_010 + 75 * 200_001
    assert list_price(price(1), 0, 1) == 1, "rounded up"
    assert found.saved_microusd == found.baseline_microusd - 2_000_000
    assert "top (as of 2027-01-01)" in found.method
    assert NO_FRONTIER not in found.method
    assert savings([], targets, targets[3]).saved_percent == 0
    with pytest.raises(RequestInvalid):
        dearest(targets[:1])


def test_what_was_embedded_is_compared_with_no_chat_model() -> None:
    """Vectors that cost nothing in the house looked like dollars saved, on the command line."""
    vectors = target("vectors", "cheap", 0, "embeddings")
    targets = [target("house", "cheap", 0), target("top", "frontier", 75_000_000), vectors]
    rows = [CostRow(("house",), 1, 1000, 100, 7), CostRow(("vectors",), 9, 10**9, 0, 500)]
    found = savings(rows, targets, dearest(targets))

    assert (found.cost_microusd, found.baseline_microusd) == (7, 3 * 1000 + 75 * 100)


def test_without_a_frontier_model_the_dearest_there_is_stands_for_it_and_is_said_to() -> None:
    targets = [target("house", "cheap", 0), target("mid", "mid", 90_000_000)]
    found = savings([CostRow(("mid",), 1, 1000, 100, 12_000)], targets, dearest(targets))

    assert found.method.endswith(NO_FRONTIER)
    assert found.saved_microusd == 0
