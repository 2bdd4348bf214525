"""One line of evidence as it is stored: the record's canonical JSON and its content's digest.

The bytes are canonical because they are written once and never re-encoded: struct fields come in
their declared order, mapping keys are sorted, and every later reader hashes what is stored.
"""

import hashlib
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from gateway.types import AuditRecord


RECORD_MAX_BYTES = 16 * 1024
CUT_MARK = "…[cut]"
_STRING_LIMITS_CHARS = (1024, 256, 64, 24)
_COUNT_LIMITS = (64, 32, 8, 2)
_INT64_MAX = 2**63 - 1

_T = TypeVar("_T")


class ContentReference(Struct, frozen=True, omit_defaults=True):
    """The encrypted content of a record; its frame lies directly before the record's."""

    key: str
    """Id of the data key in the worker's `keys.jsonl`; destroying it erases the content."""
    length_bytes: int
    """Length of what is stored: nonce, ciphertext and tag."""
    cut_bytes: int = 0
    """Bytes of plaintext beyond the limit, which were not kept."""
    sha256: str = ""
    """Hex SHA-256 of the stored bytes, instead of `blake2b`: see `content_digests`."""
    blake2b: str = ""
    """Hex BLAKE2b-256 (RFC 7693) of the stored bytes, so that proofs outlive the key."""

    def matches(self, sealed: bytes) -> bool:
        """Whether `sealed` are the stored bytes."""
        digest = self.blake2b or self.sha256
        expected = content_digest(sealed) if self.blake2b else hashlib.sha256(sealed).hexdigest()
        return len(sealed) == self.length_bytes and digest == expected


class Entry(Struct, frozen=True, omit_defaults=True):
    """The JSON object of one record frame."""

    record: AuditRecord
    content: ContentReference | None = None


def _as_builtin(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a record cannot hold a {type(value).__name__}")


_ENCODER = msgspec.json.Encoder(order="deterministic", enc_hook=_as_builtin)
_DECODER = msgspec.json.Decoder(Entry)


def encode_record(record: AuditRecord) -> tuple[AuditRecord, bytes]:
    """The record as it will be stored, and its JSON of at most RECORD_MAX_BYTES.

    What is too long is cut and marked, never refused: a request that is hard to describe is exactly
    the one that must leave evidence.
    """
    try:
        raw = _ENCODER.encode(record)
    except (UnicodeEncodeError, OverflowError):
        raw = b""
    if 0 < len(raw) <= RECORD_MAX_BYTES:
        return record, raw
    kept = record
    for string_limit, count_limit in zip(_STRING_LIMITS_CHARS, _COUNT_LIMITS, strict=True):
        kept = _cut_record(record, string_limit, count_limit)
        raw = _ENCODER.encode(kept)
        if len(raw) <= RECORD_MAX_BYTES:
            break
    return kept, raw


def content_digest(sealed: bytes) -> str:
    """The fields of a content reference that describe the stored bytes."""
    return hashlib.blake2b(sealed, digest_size=32).hexdigest()


def encode_reference(reference: ContentReference) -> bytes:
    return _ENCODER.encode(reference)


def entry_bytes(record_json: bytes, reference_json: bytes = b"") -> bytes:
    """The payload of a record frame: what the leaf hash covers."""
    if reference_json:
        return b'{"record":%b,"content":%b}' % (record_json, reference_json)
    return b'{"record":%b}' % record_json


def decode_entry(raw: bytes) -> Entry:
    """Raises msgspec.DecodeError (or its ValidationError) if `raw` is no entry."""
    try:
        return _DECODER.decode(raw)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"no UTF-8 ({error.reason})") from error


def leaf_hash(raw: bytes) -> bytes:
    """RFC 6962 §2.1: the hash of a leaf, as a Merkle log uses it."""
    return hashlib.sha256(b"\x00" + raw).digest()


def chain_hash(previous: bytes, leaf: bytes) -> bytes:
    """The hash that binds a record to everything before it; 0x02 keeps it apart from tree nodes."""
    return hashlib.sha256(b"\x02" + previous + leaf).digest()


def header_chain_hash(previous: bytes, header: bytes) -> bytes:
    """The start of a segment's chain, bound to the previous segment and to its own header."""
    return hashlib.sha256(b"\x03" + previous + header).digest()


def content_aad(record: AuditRecord) -> bytes:
    """The data that content is bound to: it cannot be moved to another request, tenant or stage."""
    request, organisation, stage = (
        record.request_id.encode(),
        record.organisation.encode(),
        record.stage.encode(),
    )
    return b"%d:%b%d:%b%d:%b" % (
        len(request),
        request,
        len(organisation),
        organisation,
        len(stage),
        stage,
    )


def _cut_record(record: AuditRecord, string_limit: int, count_limit: int) -> AuditRecord:
    changes: dict[str, object] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        kept = _cut(value, string_limit, count_limit)
        if kept != value:
            changes[name] = kept
    detail = dict(_cut(record.detail, string_limit, count_limit))
    detail["cut"] = ",".join(sorted(changes))
    return msgspec.structs.replace(record, **{**changes, "detail": detail})


def _cut(value: _T, string_limit: int, count_limit: int) -> _T:
    """The value with long strings and collections, and numbers beyond 64 bits, shortened."""
    return _cut_any(value, string_limit, count_limit)  # type: ignore[return-value]


def _cut_any(value: object, string_limit: int, count_limit: int) -> object:
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode()
        return text if len(text) <= string_limit else text[:string_limit] + CUT_MARK
    if isinstance(value, int):
        return max(-_INT64_MAX, min(_INT64_MAX, value)) if not isinstance(value, bool) else value
    if isinstance(value, Mapping):
        return {
            str(_cut_any(key, string_limit, count_limit)): _cut_any(
                value[key], string_limit, count_limit
            )
            for key in sorted(value)[:count_limit]
        }
    if isinstance(value, (tuple, list)):
        return tuple(_cut_any(item, string_limit, count_limit) for item in value[:count_limit])
    if isinstance(value, Struct):
        return type(value)(
            **{
                name: _cut_any(getattr(value, name), string_limit, count_limit)
                for name in value.__struct_fields__
            }
        )
    return value
