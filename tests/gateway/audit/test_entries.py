"""Records as bytes: canonical, bounded, and hashed in their own domains."""

import hashlib
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.audit.entries import (
    CUT_MARK,
    RECORD_MAX_BYTES,
    ContentReference,
    chain_hash,
    content_aad,
    content_digest,
    decode_entry,
    encode_record,
    encode_reference,
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


def test_what_is_hashed_and_bound_has_the_form_that_earlier_versions_wrote() -> None:
    """Segments are read for years: by another form no chain would hold and no content open."""
    made = record(1)
    entry = (
        b'{"record":{"stage":"intent","request_id":"req_1","organisation":"acme",'
        b'"utc_us":1800000000000001,"target":"managed/small","findings":{"card":2,"email":1}}}'
    )
    assert entry_bytes(encode_record(made)[1]) == entry
    leaf = "13a71b13889585a296ede2882010ac7933a9b177e8030700c40c163fa1d3a83b"
    chain = "3704a20da830b19274040d9276ceb3f08d77c19e45b436981d81a2a8a4e8e437"
    header = "976cded8ce6c1097f43d9fe5bb8de9a4646f22253a04af98578efcc2f9fe3fa9"
    content = "d161d71145abeec5ef15abcf0459cec60a27321e2f0ac0ef7ace5254f5944476"
    assert leaf_hash(entry).hex() == leaf
    assert chain_hash(b"a" * 32, b"b" * 32).hex() == chain
    assert header_chain_hash(b"a" * 32, b"h").hex() == header
    assert content_digest(b"x") == content
    assert content_aad(made) == b"5:req_14:acme6:intent"


def test_an_attempt_reads_what_earlier_and_later_versions_wrote() -> None:
    """Workers of two versions write side by side, and each reads what the other wrote."""
    told = b'"target":"a","status":529,"error":"upstream_refused","duration_us":5,"first_byte_us":3'
    wrote = (
        b'{"record":{"stage":"outcome","request_id":"r","organisation":"o","utc_us":1,"attempts":'
    )
    plain = Attempt("a", 529, "upstream_refused", 5, 3)
    named = structs.replace(plain, upstream_ids=("req_a", "b"))
    for attempt, more in ((plain, b""), (named, b',"upstream_ids":["req_a","b"]')):
        entry = wrote + b"[{" + told + more + b"}]}}"
        assert decode_entry(entry).record.attempts == (attempt,)
        made = AuditRecord("outcome", "r", "o", 1, attempts=(attempt,))
        assert entry_bytes(encode_record(made)[1]) == entry
        later = wrote + b"[{" + told + more + b',"not_yet":{"known":[1]}}]}}'
        assert decode_entry(later).record.attempts == (attempt,)


def test_a_reference_matches_what_was_stored_and_nothing_else() -> None:
    """Also one of the first version, which had SHA-256."""
    sealed = b"sealed bytes"
    old = ContentReference("k", len(sealed), sha256=hashlib.sha256(sealed).hexdigest())
    new = ContentReference("k", len(sealed), blake2b=content_digest(sealed))
    for reference in (old, new):
        assert reference.matches(sealed)
        wrong = (sealed + b"x", sealed[:-1], b"sealed bytez", b"")
        assert not any(reference.matches(each) for each in wrong)
        assert not structs.replace(reference, length_bytes=11).matches(sealed)
    assert not ContentReference("k", len(sealed)).matches(sealed)
    assert not structs.replace(new, sha256=old.sha256, blake2b="00" * 32).matches(sealed)


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


@pytest.mark.parametrize(
    ("length", "count", "kept_length", "kept_count"),
    [
        (1024, 1, 1024, 1),
        (17_000, 1, 1024, 1),
        (1000, 64, 256, 32),
        (300, 500, 256, 32),
        (10**5, 100, 256, 32),
    ],
)
def test_no_more_is_cut_than_has_to_be(
    length: int, count: int, kept_length: int, kept_count: int
) -> None:
    attempts = tuple(Attempt("x" * length, 200, "", 1, 1) for _ in range(count))
    kept, raw = encode_record(AuditRecord("outcome", "r", "o", 1, attempts=attempts))
    assert len(raw) <= RECORD_MAX_BYTES
    assert decode_entry(entry_bytes(raw)).record == kept
    assert len(kept.attempts) == kept_count
    assert len(kept.attempts[0].target.removesuffix(CUT_MARK)) == kept_length
    assert ("cut" in kept.detail) == ((length, count) != (kept_length, kept_count))


def test_the_largest_record_of_all_fits() -> None:
    long = "\U0001f511" * 2000
    many = tuple(Attempt(long, 200, long, 1, 1) for _ in range(200))
    detail = {f"{number}{long}": long for number in range(200)}
    made = AuditRecord(
        "outcome", long, long, 1, detail=detail, attempts=many, dropped=(long,) * 200
    )
    _, raw = encode_record(made)
    assert len(raw) <= RECORD_MAX_BYTES


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63) + 1, 0])
@pytest.mark.parametrize("beyond", [0, 1, 10**30])
def test_a_number_that_no_database_holds_becomes_the_largest_that_one_does(
    number: int, beyond: int
) -> None:
    made = number + beyond if number > 0 else number - beyond if number < 0 else 0
    bound = 2**63 - 1
    kept, _ = encode_record(AuditRecord("admin", "r\ud800", "o", made))
    assert kept.utc_us == max(-bound, min(bound, made))


def test_what_is_no_record_is_refused_in_one_way() -> None:
    for raw in (b"", b"{}", b"[]", b'{"record":7}', b'{"record":"\xff"}', b"\xff"):
        with pytest.raises(msgspec.MsgspecError):
            decode_entry(raw)
    with pytest.raises(TypeError, match="cannot hold a object"):
        encode_record(AuditRecord("admin", "r", "o", 1, detail={"a": object()}))  # type: ignore[dict-item]
    reference = b'{"key":"k","length_bytes":3,"blake2b":"ab"}'
    assert encode_reference(ContentReference("k", 3, blake2b="ab")) == reference
    assert entry_bytes(b"{}", reference) == b'{"record":{},"content":' + reference + b"}"


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
