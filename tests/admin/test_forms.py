"""What people type into fields is taken as it was meant, or refused with its field's name."""

import pytest

from admin.forms import MICROUSD_MAX, Form
from gateway.errors import RequestInvalid


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
