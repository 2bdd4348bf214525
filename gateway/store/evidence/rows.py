"""Rows of the audit log's projection: a record's columns, and the statements that insert many.

Past SQLAlchemy, whose inserts cost twice (SQLite) and four times (COPY) the time.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from gateway.audit.projection import ProjectedRecord
from gateway.types import AuditRecord


AGAIN = "again"
"""The stage of a row whose record is an outcome of a request that had one: it counts nowhere."""
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
    "actor",
    "action",
    "target",
    "provider",
    "jurisdiction",
    "data_class",
    "status",
    "error",
    "model_requested",
)
_NUMBERS = ("http_status", "utc_us", "cost_microusd", "duration_us")
COLUMNS = (
    *_TEXTS,
    *_NUMBERS,
    "input_tokens",
    "output_tokens",
    "findings",
    "about",
    "first_byte_us",
    "policy_digest",
    "batch",
    "worker",
    "segment",
    "offset_bytes",
    "sequence",
    "raw",
)
# PostgreSQL's indexes take entries of some 2,700 bytes. Texts of so many characters together fit,
# however long each is in bytes; where they are longer, each is searched by its beginning.
_INDEXED_CHARS = 500
_INDEXED_BYTES = 100
_FINDINGS_BYTES = 800
_DIGEST_CHARS = 64
_BATCH_CHARS = 64
_texts_of: Callable[[AuditRecord], tuple[str, ...]] = attrgetter(*_TEXTS)
_numbers_of: Callable[[AuditRecord], tuple[int, ...]] = attrgetter(*_NUMBERS)
# SQLite's driver gives the interpreter away for each execution and must wait for it again, under a
# busy event loop up to its switch interval (5 ms): row by row, the projection would fall behind.
_CHUNK_SIZES = (256, 64, 16, 4, 1)


def _inserts(columns: tuple[str, ...]) -> dict[int, str]:
    row = f"({', '.join('?' * len(columns))})"
    first = f"INSERT INTO audit_records ({', '.join(columns)}) VALUES {row}"  # noqa: S608 - our own names
    return {size: first + f", {row}" * (size - 1) for size in _CHUNK_SIZES}


INSERTS = _inserts(COLUMNS)
INSERTS_OF_PLACES = _inserts(COLUMNS[:-1])


def rows_of(
    batch: list[ProjectedRecord],
    following: dict[str, int],
    again: Collection[int] = (),
    numbers: Mapping[int, int] = _NO_NUMBERS,
    *,
    with_bytes: bool,
) -> Iterator[_Row]:
    """Whole rows in the order of COLUMNS, each with its organisation's next number.

    `again` are the places in the batch of outcomes that are not their requests' first, `numbers`
    those of records that had a number before.
    """
    for place, projected in enumerate(batch):
        row = _row(projected)
        if again and place in again:
            row = (row[0], AGAIN, *row[2:])
        if numbers and place in numbers:
            number = numbers[place]
        else:
            organisation = row[0]
            number = following[organisation]
            following[organisation] = number + 1
        yield (*row, number, projected.raw_json) if with_bytes else (*row, number)


def organisations_of(batch: list[ProjectedRecord]) -> list[str]:
    """Whose each record is, as its row has it."""
    names = [(each.known_record or each.record).organisation for each in batch]
    return list(map(clean, names)) if "\x00" in "".join(names) else names


def _row(projected: ProjectedRecord) -> _Row:
    """One value per column of the table but the last two.

    It is done twice for each request: what nearly every record passes is one test for all of it.
    """
    record = projected.known_record or projected.record
    usage = record.usage
    input_tokens = output_tokens = first_byte = 0
    if usage is not None:
        input_tokens, output_tokens = usage.input_tokens, usage.output_tokens
    texts, numbers = _texts_of(record), _numbers_of(record)
    status, utc_us, cost, duration = numbers
    findings = about = batch = ""
    if record.findings:
        findings = _findings_of(record)
    if record.stage == "admin":
        about = record.detail.get("organisation", "")
    elif record.detail:
        batch = record.detail.get("batch", "")[:_BATCH_CHARS]
    if record.attempts:
        first_byte = record.attempts[-1].first_byte_us
    digest = record.policy_digest[:_DIGEST_CHARS]
    joined = "".join(texts)
    if "\x00" in joined or "\x00" in digest or "\x00" in findings or "\x00" in about + batch:
        texts = tuple(map(clean, texts))
        findings, about, digest = clean(findings), clean(about), clean(digest)
        batch = clean(batch)
    if len(joined) + len(findings) + len(about) > _INDEXED_CHARS:
        texts, findings, about = _shortened(texts, findings, about)
    # A union of bits is negative when one of its numbers is, and not below the largest of them.
    widest = utc_us | cost | duration | input_tokens | output_tokens | first_byte
    if not (0 <= status <= _INT32_MAX and 0 <= widest <= _INT64_MAX):
        first_byte = _within(first_byte, _INT64_MAX)
        numbers = (_within(status, _INT32_MAX), *(_within(n, _INT64_MAX) for n in numbers[1:]))
        input_tokens = _within(input_tokens, _INT64_MAX)
        output_tokens = _within(output_tokens, _INT64_MAX)
    return (
        *texts,
        *numbers,
        input_tokens,
        output_tokens,
        findings,
        about,
        first_byte,
        digest,
        batch,
        projected.worker,
        projected.segment,
        projected.offset_bytes,
    )


def _shortened(
    texts: tuple[str, ...], findings: str, about: str
) -> tuple[tuple[str, ...], str, str]:
    """The same texts where they fit into an index entry, otherwise the beginning of each.

    What names a request or an organisation stays whole: it is found by all of it.
    """
    searched = zip(_TEXTS, texts, strict=True)
    shorter = tuple(
        text if name in ("organisation", "request_id") else _beginning(text, _INDEXED_BYTES)
        for name, text in searched
    )
    whole = _beginning(findings, _FINDINGS_BYTES)
    if whole != findings:
        whole = whole.rpartition(" ")[0]  # A count that was cut would be another count.
    return shorter, whole, _beginning(about, _INDEXED_BYTES)


def _beginning(text: str, limit_bytes: int) -> str:
    """At most so many bytes of UTF-8, and no half characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= limit_bytes else encoded[:limit_bytes].decode("utf-8", "ignore")


def _findings_of(record: AuditRecord) -> str:
    """Each label with a space before and its count behind, so that one is found by its name."""
    return "".join(f" {label}:{count}" for label, count in sorted(record.findings.items()))


def chunks(rows: Iterator[_Row], count: int, size: int) -> Iterator[_Row]:
    """The values of the next `size` rows together, `count` times."""
    for _ in range(count):
        yield tuple(chain.from_iterable(islice(rows, size)))


def clean(text: str) -> str:
    # PostgreSQL keeps no NUL in text; a record that holds one must not stop the projection.
    return text.replace("\x00", "\ufffd")


def _within(number: int, limit: int) -> int:
    return max(-limit, min(limit, number))
