"""Names of parcels' lines: ours alone are numbers, whatever a vendor sends back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.parcels import custom_id_of, number_of


NAME = "gwp-0123456789abcdef01234567"


@given(st.integers(1, 10**9 - 1))
def test_a_lines_number_comes_back(number: int) -> None:
    assert number_of(custom_id_of(NAME, number), NAME) == number
    assert number_of(custom_id_of(NAME, number), "gwp-another") == 0


@pytest.mark.parametrize(
    "custom_id",
    [
        *("", "-", "7", NAME, f"{NAME}-", f"{NAME}-x", f"{NAME}--7", f"-{NAME}-7", f"{NAME}-7 "),
        *(f"{NAME}-+7", f"{NAME}-7.0", f"{NAME}-\u0667", f"{NAME}-\u00b2", f"{NAME}-7-"),
        *(f"{NAME}-{'9' * 10}", f"{NAME}-{'9' * 5000}"),
    ],
)
def test_what_is_no_name_of_ours_is_no_line(custom_id: str) -> None:
    """With thousands of digits it was an error at each reading, and its parcel never ended."""
    assert number_of(custom_id, NAME) == 0
