"""Tables: a value is what the heading of its column says, however far above it stands."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.inspection import inspect
from classifiers.pii.columns import columns, open_heading
from classifiers.pii.detect import find
from classifiers.pii.html_tables import in_html, open_row
from classifiers.pii.labels import data_class_of
from classifiers.verdicts import CHUNK_LENGTH
from tests.classifiers import samples


RANDOM = random.Random(11)
PASSWORD = "Tr0ub4dor" + samples.token(RANDOM, 3) + "!7"
VALUES = {
    "PASSPORT": ("Passport No.", "C01X00T47"),
    "PASSWORD": ("password", PASSWORD),
    "DOB": ("date_of_birth", "1984-03-07"),
    "US_SSN": ("ssn", samples.ssn(RANDOM).replace("-", "")),
    "UK_NHS": ("NHS number", samples.nhs(RANDOM)),
    "BANK_ACCOUNT": ("account_number", "1234509876"),
    "DRIVER_LICENSE": ("driver's license", "D1234567"),
    "MRN": ("patient_id", "00482917"),
}
Write = Callable[[list[list[str]]], str]


def delimited(mark: str) -> Write:
    return lambda rows: "\n".join(mark.join(row) for row in rows)


def markdown(rows: list[list[str]]) -> str:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join((head, "|---" * len(rows[0]) + "|", *rest))


def quoted(rows: list[list[str]]) -> str:
    return "\r\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)


def sql(rows: list[list[str]]) -> str:
    told = ", ".join("(" + ", ".join(f"'{cell}'" for cell in row) + ")" for row in rows[1:])
    names = ", ".join(cell.lower().replace(" ", "_").replace("'", "") for cell in rows[0])
    return f"INSERT INTO people ({names}) VALUES {told};"  # noqa: S608 - nobody runs it.


def html(rows: list[list[str]]) -> str:
    """As programs write it, with classes, and marks within the cells."""
    tags = ["th", *["td"] * (len(rows) - 1)]
    told = "\n".join(
        "<tr>"
        + "".join(f'<{tag} class="c">\n<span><b>{cell}</b></span></{tag}>' for cell in row)
        + "</tr>"
        for tag, row in zip(tags, rows, strict=True)
    )
    return f"<table>\n<tbody>{told}</tbody></table>"


def open_html(rows: list[list[str]]) -> str:
    """As people write it who close nothing, and with cells for headings."""
    return "<TABLE>" + "".join("<TR><TD>" + "<TD>".join(row) + "\n" for row in rows) + "</TABLE>"


def aligned(rows: list[list[str]]) -> str:
    head, *rest = (" | ".join(row) for row in rows)
    return "\n".join((head, ":-- | " * (len(rows[0]) - 1) + "--:", *rest))


def over_lines(rows: list[list[str]]) -> str:
    """A last column whose cells have lines of their own."""
    head, *rest = rows
    told = (",".join([*row, '"12 Hill\n5th floor, left\nPune"']) for row in rest)
    return "\n".join((",".join([*head, "address"]), *told))


TABLES: dict[str, Write] = {
    "HTML": html,
    "HTML that is left open": open_html,
    "aligned Markdown": aligned,
    "lines between quotes": over_lines,
    "commas": delimited(","),
    "tabs": delimited("\t"),
    "semicolons": delimited("; "),
    "bars": delimited(" | "),
    "Markdown": markdown,
    "quoted": quoted,
    "SQL": sql,
}


def rows_with(heading: str, value: str, at: int) -> list[list[str]]:
    """A table with a value in the last of many rows, more words away from its heading than any
    rule reads."""
    rows = [["Name", "Department", "Town"], *(["Bob", "Sales, East", "Pune"] for _ in range(9))]
    cells = [heading, *(["n/a"] * 8), value]
    told = [[*row[:at], cell, *row[at:]] for row, cell in zip(rows, cells, strict=True)]
    return [[cell.replace(", ", " ") for cell in row] for row in told]


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("label", VALUES)
@pytest.mark.parametrize("name", TABLES)
def test_a_value_is_what_the_heading_of_its_column_says(name: str, label: str, at: int) -> None:
    heading, value = VALUES[label]
    text = f"Please sort these people:\n{TABLES[name](rows_with(heading, value, at))}\n\nThanks"
    found = {text[f.start : f.end]: data_class_of(f.label) for f in find(text)}
    assert found.get(value) == data_class_of(label)


def test_a_comma_between_quotes_is_none_between_columns() -> None:
    text = f'name,town,password\nBob,"Pune, India",{PASSWORD}\n"Ann ""A"" Lee",x,{PASSWORD}\n'
    found = [text[f.start : f.end] for f in find(text)]
    assert found == [PASSWORD, PASSWORD]


def test_every_row_of_a_long_table_is_found_behind_another_message() -> None:
    numbers = [samples.ssn(RANDOM).replace("-", "") for _ in range(900)]
    table = "name,street,city,ssn\n" + "".join(f"Bob,12 Hill,Pune,{each}\n" for each in numbers)
    assert len(table) > CHUNK_LENGTH
    said = ("Here it comes, my list of people", table)
    request = {"messages": [{"role": "user", "content": each} for each in said]}
    assert inspect(request).counts["US_SSN"] == len(numbers)


def test_every_row_of_a_long_table_in_html_is_found() -> None:
    numbers = [samples.ssn(RANDOM).replace("-", "") for _ in range(900)]
    table = "<table><tr><th>name</th><th>street</th><th><b>SSN</b></th></tr>" + "".join(
        f"<tr><td>Bob</td><td>12 Hill</td><td>{each}</td></tr>\n" for each in numbers
    )
    assert len(table) > 2 * CHUNK_LENGTH
    request = {"messages": [{"role": "user", "content": f"{table}</table>"}]}
    assert inspect(request).counts["US_SSN"] == len(numbers)


def test_the_first_cell_of_a_row_says_what_the_second_is() -> None:
    rows = f"<tr><th>User</th><td>bob</td></tr><tr><th>Password</th><td><i>{PASSWORD}</i></td></tr>"
    text = f"<table>{rows}</table>"
    assert [text[f.start : f.end] for f in find(text)] == [PASSWORD]


@pytest.mark.parametrize(
    "text",
    [
        "<table><tr><th>town<th>passport</table><table><tr><td>Pune<td>K1234567</table>",
        "<table><tr><td>a password is secret</td></tr><tr><td>Trial2025</td></tr></table>",
        "<p>passport</p><td>K1234567</td>",
        "town,passport\n\nPune,K1234567\n",
        "town;passport\nPune;K1234567;x\nPune\n",
        "id,passport,n\n1,2\n3,C01X00T47,4,5\n",
        "town 1234, passport\nPune, K1234567\n",
        "passport C01 of the very many that we have, price\nK12345678, 12\n",
        "INSERT INTO t (a, b) VALUES ('K1234567', 'x')",
        "| Password | the user's secret | no |\n|---|---|---|\n| string | required | yes |",
        "secret,timeout\nkubernetes-tls,30\nregistry,60\n",
    ],
)
def test_what_is_no_such_table_is_left_alone(text: str) -> None:
    assert find(text) == ()


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        ("x\nname,ssn\nBob,1\nAnn,2", "name,ssn\n"),
        ("x\nname,ssn\nBob,1\n\nmore, words", ""),
        ("name,ssn\nBob,1\x1fmore, words", ""),
        ("name,ssn\nBob,1\n\nmy passport,name\nK1,", "my passport,name\n"),
        ("name,town\nBob,1\n", ""),
    ],
)
def test_a_table_is_open_until_an_empty_line(text: str, heading: str) -> None:
    assert open_heading(text) == heading


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        ("<table><tr><td><b>ssn</b><td>x<tr><td>1", "<table><tr><th>ssn</th><th>x</th></tr>\n"),
        ("<table><tr><td>ssn<td>x<tr><td>1</table> and", ""),
        ("<table><tr><td>town<td>x<tr><td>1", ""),
    ],
)
def test_a_table_in_html_is_open_until_it_is_closed(text: str, heading: str) -> None:
    assert open_row(text) == heading


@given(st.lists(st.sampled_from(["<table>", "<tr>", "<td>", "</td>", "ssn", "1234", "<b>", "<"])))
def test_in_html_headings_are_put_in_front_and_nothing_is_taken_away(pieces: list[str]) -> None:
    changes = list(in_html("".join(pieces)))
    assert changes == sorted(changes)
    assert all(start == end and said.endswith(": ") for start, end, said in changes)
    assert len({start for start, _, _ in changes}) == len(changes)


@given(st.text("ssn,|;\t\n\"' a1()password", max_size=200))
def test_headings_are_put_in_front_and_nothing_is_taken_away(text: str) -> None:
    changes = list(columns(text))
    assert changes == sorted(changes)
    assert all(start == end and said.endswith(": ") for start, end, said in changes)
    assert len({start for start, _, _ in changes}) == len(changes)
