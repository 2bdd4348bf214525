"""Rows of the audit log's projection: a record's columns, and the statements that insert many.

They bypass SQLAlchemy, whose inserts take twice (SQLite) or four times (COPY) as long.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.types import AuditRecord


RulesOf = Mapping[tuple[str, str], int | None]
"""The number of a rule set, by organisation and decision digest; None if not known here."""


class _Unknown(dict[tuple[str, str], int | None]):
    def __missing__(self, _: tuple[str, str]) -> None:
        return None


NOTHING_KNOWN: RulesOf = _Unknown()
"""For rows whose rules are looked up by another process later."""
AGAIN = "again"
"""The stage of a row whose request already had an outcome: it is not counted anywhere."""
_NO_NUMBERS: Mapping[int, int] = {}
_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1
_Row = tuple[Any, ...]
_TEXTS = (
    "organisation",
    "stage",
    "request_id",
    "workspace",
    "project",
    "key_id",
    "target",
    "provider",
    "jurisdiction",
    "data_class",
    "status",
    "model_requested",
)
_NUMBERS = ("http_status", "utc_us", "cost_microusd", "duration_us")
_USUAL = (
    *_TEXTS,
    *_NUMBERS,
    "input_tokens",
    "output_tokens",
    "first_byte_us",
    "policy_digest",
    "offset_bytes",
    "sequence",
    "rules",
)
_SELDOM = (
    *("actor", "action", "error", "findings", "about", "batch"),
    *("subject", "tier", "cache", "sent"),
)
_NAMED_AT = _SELDOM.index("batch")
"""From here on columns are short, or share no index with others."""
_NOTHING = ("",) * len(_SELDOM)
COLUMNS = (*_USUAL, *_SELDOM, "worker", "segment", "raw")
# PostgreSQL's index entries hold some 2,700 bytes. Texts of this many characters together fit,
# however long each is in bytes; longer ones are searched by their beginning.
_INDEXED_CHARS = 500
_INDEXED_BYTES = 100
_FINDINGS_BYTES = 800
_DIGEST_CHARS = 64
_NAMED_CHARS = 64
_texts_of: Callable[[AuditRecord], tuple[str, ...]] = attrgetter(*_TEXTS)
_seldom_said: Callable[[AuditRecord], tuple[object, ...]] = attrgetter(
    *("detail", "findings", "error", "actor", "action", "subject")
)
_numbers_of: Callable[[AuditRecord], tuple[int, ...]] = attrgetter(*_NUMBERS)
# SQLite's driver releases the interpreter for each execution and must wait to get it back, under a
# busy event loop up to its switch interval (5 ms): row by row, the projection would fall behind.
_CHUNK_SIZES = (256, 64, 16, 4, 1)


class Insertion(NamedTuple):
    """A statement of SQLite, and the values of each of its executions."""

    statement: str
    values: list[_Row]


def rows_of(
    batch: list[ProjectedRecord],
    following: dict[str, int],
    rules: RulesOf,
    again: Collection[int] = (),
    numbers: Mapping[int, int] = _NO_NUMBERS,
) -> Iterator[_Row]:
    """Complete rows in the order of COLUMNS, each with its organisation's next number.

    `again` are the places in the batch of outcomes that are not their requests' first, `numbers`
    those of records that had a number before.
    """
    for usual, seldom, projected in _columns_of(batch, following, rules, again, numbers):
        yield (*usual, *seldom, projected.worker, projected.segment, projected.raw_json)


def insertions_of(
    batch: list[ProjectedRecord],
    following: dict[str, int],
    rules: RulesOf,
    again: Collection[int] = (),
    numbers: Mapping[int, int] = _NO_NUMBERS,
    *,
    with_bytes: bool,
) -> list[Insertion]:
    """The same rows for SQLite, in few statements of many rows.

    Each bound value costs as much as an indexed column, so rows that have nothing in the seldom
    columns, and are of the first row's segment, do not name these; the others follow. A value that
    all rows share is bound again for each: Python's driver treats a numbered mark, which could be
    bound once, as a name, and from 3.14 on takes no sequence for names.
    """
    usual_rows: list[_Row] = []
    others: list[_Row] = []
    worker, segment = (batch[0].worker, batch[0].segment) if batch else ("", 0)
    for usual, seldom, projected in _columns_of(batch, following, rules, again, numbers):
        if with_bytes:
            place = (projected.worker, projected.segment, projected.raw_json)
            others.append((*usual, *seldom, *place))
        elif seldom is _NOTHING and projected.segment == segment:
            usual_rows.append((worker, segment, *usual))
        else:
            others.append((*usual, *seldom, projected.worker, projected.segment))
    statements = _INSERTS if with_bytes else _INSERTS_OF_PLACES
    return [
        *_insertions(_INSERTS_OF_USUAL, usual_rows),
        *_insertions(statements, others),
    ]


def _insertions(statements: Mapping[int, str], rows: list[_Row]) -> list[Insertion]:
    """Statements that insert these rows, the largest ones first."""
    insertions: list[Insertion] = []
    begin = 0
    for size, statement in statements.items():
        end = len(rows) - (len(rows) - begin) % size
        values = [
            tuple(chain.from_iterable(rows[at : at + size])) for at in range(begin, end, size)
        ]
        if values:
            insertions.append(Insertion(statement, values))
        begin = end
    return insertions


def _statements(columns: tuple[str, ...], row: str) -> dict[int, str]:
    """Statements, by how many rows they insert."""
    first = f"INSERT INTO audit_records ({', '.join(columns)}) VALUES ({row})"  # noqa: S608 - our own names
    return {size: first + f", ({row})" * (size - 1) for size in _CHUNK_SIZES}


def _marks(count: int) -> str:
    return ", ".join("?" * count)


_INSERTS = _statements(COLUMNS, _marks(len(COLUMNS)))
_INSERTS_OF_PLACES = _statements(COLUMNS[:-1], _marks(len(COLUMNS) - 1))
_INSERTS_OF_USUAL = _statements(
    ("worker", "segment", *_USUAL, *_SELDOM),
    f"{_marks(2 + len(_USUAL))}, {', '.join(repr(value) for value in _NOTHING)}",
)


def _columns_of(
    batch: list[ProjectedRecord],
    following: dict[str, int],
    rules: RulesOf,
    again: Collection[int],
    numbers: Mapping[int, int],
) -> Iterator[tuple[_Row, _Row, ProjectedRecord]]:
    """Each record with the values of its usual and of its seldom columns.

    The latter are the object `_NOTHING` if the record has none of them, as nearly all records do.
    """
    for place, projected in enumerate(batch):
        record = projected.known_record or projected.record
        texts, counts = _texts_of(record), _counts_of(record)
        seldom = _NOTHING
        usage = record.usage
        if any(_seldom_said(record)) or (usage is not None and usage.service_tier):
            seldom = _seldom_of(record)
        digest = record.policy_digest[:_DIGEST_CHARS]
        joined = "".join(texts)
        if "\x00" in joined or "\x00" in digest:
            texts, digest = tuple(map(clean, texts)), clean(digest)
        length = len(joined)
        if seldom is not _NOTHING:
            length += len("".join(seldom[:_NAMED_AT]))
        if length > _INDEXED_CHARS:
            texts, seldom = _shortened(texts, seldom)
        if again and place in again:
            texts = (texts[0], AGAIN, *texts[2:])
        if numbers and place in numbers:
            number = numbers[place]
        else:
            number = following[texts[0]]
            following[texts[0]] = number + 1
        # Nobody asks for the rules of an intent: lists are of what ended.
        ruled = rules[texts[0], record.decision] if texts[1] == "outcome" else None
        yield (*texts, *counts, digest, projected.offset_bytes, number, ruled), seldom, projected


def organisations_of(batch: list[ProjectedRecord]) -> list[str]:
    """The organisation of each record, as in its row."""
    names = [(each.known_record or each.record).organisation for each in batch]
    return list(map(clean, names)) if "\x00" in "".join(names) else names


def _counts_of(record: AuditRecord) -> tuple[int, ...]:
    """Runs twice per request, so one test covers what nearly every record passes."""
    usage = record.usage
    input_tokens = output_tokens = first_byte = 0
    if usage is not None:
        input_tokens, output_tokens = usage.input_tokens, usage.output_tokens
    if record.attempts:
        first_byte = record.attempts[-1].first_byte_us
    status, utc_us, cost, duration = numbers = _numbers_of(record)
    # The bitwise OR of numbers is negative if one of them is, and at least as large as each.
    widest = utc_us | cost | duration | input_tokens | output_tokens | first_byte
    if 0 <= status <= _INT32_MAX and 0 <= widest <= _INT64_MAX:
        return (*numbers, input_tokens, output_tokens, first_byte)
    others = (*numbers[1:], input_tokens, output_tokens, first_byte)
    return (_within(status, _INT32_MAX), *(_within(number, _INT64_MAX) for number in others))


def _seldom_of(record: AuditRecord) -> tuple[str, ...]:
    """The values of the columns that are empty in nearly every row; `_NOTHING` if all are."""
    about = batch = cache = sent = ""
    if record.stage == "admin":
        about = record.detail.get("organisation", "")
    else:
        batch = record.detail.get("batch", "")[:_NAMED_CHARS]
        cache = record.detail.get("cache", "")[:_NAMED_CHARS]
        sent = record.detail.get("sent", "")[:_NAMED_CHARS]
    tier = record.usage.service_tier if record.usage is not None else ""
    findings = _findings_of(record)
    found = (
        *(record.actor, record.action, record.error, findings, about, batch),
        *(record.subject[:_NAMED_CHARS], "" if tier == "default" else tier[:_NAMED_CHARS]),
        *(cache, sent),
    )
    return tuple(map(clean, found)) if any(found) else _NOTHING


def _shortened(
    texts: tuple[str, ...], seldom: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The same texts if they fit into an index entry, otherwise the beginning of each.

    What names a request or an organisation stays complete: it is looked up by the full text.
    """
    shorter = tuple(
        text if name in ("organisation", "request_id") else _beginning(text, _INDEXED_BYTES)
        for name, text in zip(_TEXTS, texts, strict=True)
    )
    if seldom is _NOTHING:
        return shorter, seldom
    *others, findings, about = seldom[:_NAMED_AT]
    whole = _beginning(findings, _FINDINGS_BYTES)
    if whole != findings:
        whole = whole.rpartition(" ")[0]  # A count that was cut would be another count.
    begun = (_beginning(text, _INDEXED_BYTES) for text in others)
    return shorter, (*begun, whole, _beginning(about, _INDEXED_BYTES), *seldom[_NAMED_AT:])


def _beginning(text: str, limit_bytes: int) -> str:
    """At most this many bytes of UTF-8, without half characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= limit_bytes else encoded[:limit_bytes].decode("utf-8", "ignore")


def _findings_of(record: AuditRecord) -> str:
    """Each label with a space before it and its count after, so that it is found by name."""
    return "".join(f" {label}:{count}" for label, count in sorted(record.findings.items()))


def clean(text: str) -> str:
    # PostgreSQL's text cannot hold NUL; a record with one must not stop the projection.
    return text.replace("\x00", "\ufffd")


def _within(number: int, limit: int) -> int:
    return max(-limit, min(limit, number))
