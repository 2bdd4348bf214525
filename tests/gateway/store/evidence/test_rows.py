"""Rows as SQLite gets them, in statements that leave out what is seldom there: the same rows."""

import re
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.store.evidence.rows import COLUMNS, NOTHING_KNOWN, insertions_of, rows_of
from gateway.types import Attempt, AuditRecord, Stage, Usage


_TEXTS = st.sampled_from(["", "", "ada", "a\x00b", "é" * 300])
_NUMBERS = st.sampled_from([0, 7, -1, 2**40, 2**70])
_PLAIN = AuditRecord("intent", "req_3", "acme", 1)
_RECORDS = st.just(_PLAIN) | st.builds(
    AuditRecord,
    stage=st.sampled_from(["intent", "outcome", "admin"]),
    request_id=st.sampled_from(["req_1", "req_2"]),
    organisation=st.sampled_from(["acme", "globex", "n\x00l"]),
    utc_us=_NUMBERS,
    actor=_TEXTS,
    action=_TEXTS,
    error=_TEXTS,
    model_requested=_TEXTS,
    policy_digest=_TEXTS,
    http_status=_NUMBERS,
    findings=st.sampled_from([{}, {"card": 2, "email": 1}, {"x" * 900: 1}]),
    detail=st.sampled_from(
        [
            *({}, {"batch": "b\x00"}, {"organisation": "acme"}, {"line": "1"}, {"cache": "hit"}),
            {"sent": "surrogates"},
        ]
    ),
    usage=st.none()
    | st.builds(
        Usage,
        input_tokens=_NUMBERS,
        output_tokens=_NUMBERS,
        service_tier=st.sampled_from(["", "default", "flex", "a\x00b"]),
    ),
    subject=st.sampled_from(["", "5e" * 16, "a\x00b"]),
    attempts=st.sampled_from([(), (Attempt("small", 200, "", 9, 5),)]),
)
_PROJECTED = st.lists(
    st.tuples(_RECORDS, st.sampled_from([1, 1, 1, 2])).map(
        lambda pair: ProjectedRecord("w0", pair[1], 100, b"{}", pair[0], "00" * 32)
    ),
    min_size=1,
    max_size=30,
)


def _following() -> dict[str, int]:
    return {"acme": 1, "globex": 1, "n\ufffdl": 1}


def _table() -> sqlite3.Connection:
    """Of our columns, in no order of theirs; none may be left out."""
    connection = sqlite3.connect(":memory:")
    empty = ("raw", "rules")
    columns = ", ".join(f"{name} {'' if name in empty else 'NOT NULL'}" for name in sorted(COLUMNS))
    connection.execute(f"CREATE TABLE audit_records ({columns})")
    return connection


@given(_PROJECTED, st.data())
def test_what_sqlite_is_given_is_what_the_rows_say(
    batch: list[ProjectedRecord], data: st.DataObject
) -> None:
    with_bytes = data.draw(st.booleans())
    again = data.draw(st.sets(st.integers(0, len(batch) - 1)))
    numbers = {place: 1000 + place for place in data.draw(st.sets(st.integers(0, len(batch) - 1)))}
    connection = _table()
    insertions = insertions_of(
        batch, _following(), NOTHING_KNOWN, again, numbers, with_bytes=with_bytes
    )
    for statement, values in insertions:
        connection.executemany(statement, values)
    wanted = f"SELECT {', '.join(COLUMNS)} FROM audit_records"  # noqa: S608 - our own names
    found = connection.execute(wanted).fetchall()
    expected = list(rows_of(batch, _following(), NOTHING_KNOWN, again, numbers))
    if not with_bytes:
        expected = [(*row[:-1], None) for row in expected]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    connection.close()


@pytest.mark.parametrize("stage", ["intent", "outcome"])
def test_most_rows_do_not_name_what_is_seldom_there(stage: Stage) -> None:
    """Each of them, and no more of those that have it."""
    plain = AuditRecord(stage, "req_1", "acme", 1, usage=Usage(input_tokens=3))
    spoken = AuditRecord(stage, "req_2", "acme", 1, findings={"card": 1})
    batch = [ProjectedRecord("w0", 1, n, b"{}", plain, "00" * 32) for n in range(300)]
    batch.insert(7, ProjectedRecord("w0", 1, 999, b"{}", spoken, "00" * 32))
    insertions = insertions_of(batch, _following(), NOTHING_KNOWN, with_bytes=False)
    assert [len(each.values) for each in insertions] == [1, 2, 3, 1]
    assert [len(each.values[0]) for each in insertions[:3]] == [25 * n for n in (256, 16, 4)]
    assert len(insertions[3].values[0]) == len(COLUMNS) - 1
    marks = [re.findall(r"\?\d|:\w+", each.statement) for each in insertions]
    assert marks == [[]] * 4, "Python's driver from 3.14 on takes no sequence for these"


@pytest.mark.parametrize("name", ["actor", "action", "error", "model_requested"])
def test_one_text_that_is_too_long_for_an_index_is_cut_alone(name: str) -> None:
    long = AuditRecord("outcome", "req_1", "acme", 1, **{name: "é" * 600})  # type: ignore[arg-type]
    (row,) = rows_of(
        [ProjectedRecord("w0", 1, 9, b"{}", long, "00" * 32)], _following(), NOTHING_KNOWN
    )
    assert row[COLUMNS.index(name)] == "é" * 50
    assert row[COLUMNS.index("request_id")] == "req_1"
