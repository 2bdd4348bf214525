"""Addresses that hold a file: what is read of them, and how far."""

import pytest

from gateway.dialects.bodies.inline_data import inline_data


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("data:image/png;base64,AAAA", ("image/png", "AAAA")),
        ("DATA:Image/JPG;name=a.jpg;Base64,AAAA", ("image/jpeg", "AAAA")),
        ("data:text/plain;charset=latin-1;base64,AAAA", ("text/plain;charset=latin-1", "AAAA")),
        (f"data:a/pdf;name={'n' * 500};base64,AAAA", ("a/pdf", "AAAA")),
        ("data:image/png,AAAA", ("", "")),
        ("data:;base64,AAAA", ("", "")),
        ("data:image/png;base64,", ("", "")),
        ("https://example.com/a.png", ("", "")),
        # No type or parameter is as long, and looking through one holds everybody up.
        (f"data:{'a' * 129};base64,AAAA", ("", "")),
        (f"data:image/png;{'a' * 513};base64,AAAA", ("", "")),
        (f"data:image/png{';a' * 9};base64,AAAA", ("", "")),
    ],
)
def test_a_file_in_an_address_is_read_within_bounds(address: str, read: tuple[str, str]) -> None:
    assert inline_data(address) == read
