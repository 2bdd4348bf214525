"""Records as bytes: canonical, bounded, and hashed in their own domains."""

import hashlib
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.entries import (
    CUT_MARK,
    RECORD_MAX_BYTES,
    chain_hash,
    content_aad,
    decode_entry,
    encode_record,
    entry_bytes,
    header_chain_hash,
    leaf_hash,
)
from gateway.types import Attempt, AuditRecord
from tests.gateway.audit.samples import record


def test_a_record_survives_its_encoding() -> None:
    kept, raw = encode_record(record(7, "outcome"))
    assert kept == record(7, "outcome")
    assert decode_entry(entry_bytes(raw)).record == kept


def test_mappings_are_sorted_so_that_equal_records_have_equal_bytes() -> None:
    proxy = MappingProxyType({"b": 1, "a": 2})
    raw = encode_record(AuditRecord("intent", "r", "o", 1, findings=proxy))[1]
    assert b'"findings":{"a":2,"b":1}' in raw


@given(
    st.text(max_size=40_000),
    st.integers(),
    st.dictionaries(st.text(max_size=3000), st.text(max_size=3000), max_size=40),
    st.integers(0, 300),
)
def test_whatever_it_holds_a_record_fits_and_can_be_read_back(
    text: str, number: int, detail: dict[str, str], count: int
) -> None:
    attempts = tuple(Attempt(text, 200, "", 1, number) for _ in range(count))
    made = AuditRecord("admin", text, text, number, detail=detail, attempts=attempts)
    kept, raw = encode_record(made)
    assert len(raw) <= RECORD_MAX_BYTES
    assert decode_entry(entry_bytes(raw)).record == kept


def test_what_was_cut_is_marked_and_named() -> None:
    kept, _ = encode_record(AuditRecord("admin", "r", "o", 1, action="x" * 100_000))
    assert kept.action.endswith(CUT_MARK)
    assert kept.detail["cut"] == "action"
    assert kept.request_id == "r"


def test_a_text_that_is_no_unicode_is_kept_in_escaped_form() -> None:
    kept, raw = encode_record(AuditRecord("admin", "r\ud800", "o", 1))
    assert kept.request_id == "r\\ud800"
    assert decode_entry(entry_bytes(raw)).record == kept


def test_leaf_chain_and_header_hashes_live_in_different_domains() -> None:
    zeros = bytes(32)
    assert leaf_hash(b"x") == hashlib.sha256(b"\x00x").digest()
    assert chain_hash(zeros, zeros) == hashlib.sha256(b"\x02" + zeros + zeros).digest()
    assert header_chain_hash(zeros, zeros) != chain_hash(zeros, zeros)


def test_content_is_bound_to_request_organisation_and_stage_without_ambiguity() -> None:
    bound = {
        content_aad(AuditRecord("intent", "ab", "c", 1)),
        content_aad(AuditRecord("intent", "a", "bc", 1)),
        content_aad(AuditRecord("outcome", "ab", "c", 1)),
        content_aad(AuditRecord("intent", "ab1", "c", 1)),
    }
    assert len(bound) == 4
