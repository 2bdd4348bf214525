"""Tables as lists of rows, in arguments of calls and in what tools give back."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.extraction import extract
from classifiers.inspection import inspect
from classifiers.tables import table_said, tables_in_text
from tests.classifiers import samples


RANDOM = random.Random(12)
VALUES = {
    "PASSPORT": ("Passport No.", "C01X00T47"),
    "PASSWORD": ("password", f"Tr0ub{samples.digits(RANDOM, 3)}or"),
    "DOB": ("date_of_birth", "1984-03-07"),
    "MRN": ("patient_id", "00482917"),
}
HEADS = ["city", *(heading for heading, _ in VALUES.values())]
ROW = ["Oslo", *(value for _, value in VALUES.values())]
TABLES: dict[str, Any] = {
    "rows": {"range": "A1:E3", "values": [HEADS, ["", "", "", "", ""], ROW]},
    "a row that ends early": [HEADS, ["Bonn"], ROW],
    "split": {"columns": HEADS, "index": [0], "data": [ROW]},
    "deep": {"sheets": [{"title": "a", "tables": [{"headers": HEADS, "rows": [ROW]}]}]},
}


def in_messages(table: Any) -> Any:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"sheet": table}}
    return {"messages": [{"role": "assistant", "content": [call]}]}


def in_chat(table: Any) -> Any:
    function = {"name": "f", "arguments": json.dumps({"sheet": table})}
    call = {"id": "c", "type": "function", "function": function}
    return {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}


def in_result(table: Any) -> Any:
    said = json.dumps(table, indent=2)
    return {"input": [{"type": "function_call_output", "call_id": "c", "output": said}]}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("place", [in_messages, in_chat, in_result])
def test_a_value_below_a_heading_in_lists_of_rows_is_found(
    place: Callable[[Any], Any], table: Any
) -> None:
    counts = inspect(place(table)).counts
    assert {label for label in VALUES if counts.get(label)} == set(VALUES)


@pytest.mark.parametrize(
    "rows",
    [
        [["city", "street"], ["Oslo", "C01X00T47"]],
        [["passport"], ["C01X00T47"]],
        [["passport", "city"]],
        [["passport", "city"], ["C01X00T47", "Oslo", "and more"]],
        [["passport", {"city": 1}], ["C01X00T47", "Oslo"]],
        [["passport", "city"], ["C01X00T47", ["Oslo"]]],
        [["passport", 7], ["C01X00T47", "Oslo"]],
        [["passport " + "x" * 40, "city"], ["C01X00T47", "Oslo"]],
        [[1.5, 2.5], [3.5, 4.5]],
        ["passport", "city"],
        [],
    ],
)
def test_what_is_no_table_with_a_telling_heading_is_none(rows: list[Any]) -> None:
    assert table_said(rows) == ""
    assert [*tables_in_text(json.dumps(rows))] == []


def test_a_cell_stays_one_cell_on_one_line() -> None:
    rows = [["dob", "x"], ["a\tb\r\nc\x1fd", None], [1, True], [10**5000, 2]]
    assert table_said(rows) == "dob\tx\na b  c d\t\n1\tTrue\n\t2"


def test_coordinates_in_a_text_are_not_taken_apart() -> None:
    """A map of a hundred thousand points would be more than is looked at, and counted as secret."""
    said = json.dumps({"coordinates": [[n / 7, n / 9] for n in range(60_000)]})
    found = extract({"messages": [{"role": "tool", "content": said}]})
    assert (len(found.segments), found.reasons) == (1, ())


@given(
    st.recursive(
        st.none() | st.text(max_size=4),
        lambda s: st.lists(s) | st.dictionaries(st.text(max_size=4), s),
    )
)
def test_any_json_in_a_text_is_looked_through(document: Any) -> None:
    text = json.dumps({"passport": [[document]], "columns": document, "rows": document})
    assert all(isinstance(table, str) for table in tables_in_text(text))
