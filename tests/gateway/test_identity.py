"""Keys and the way from a request's headers to a principal."""

import hmac
import secrets
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.errors import Unauthenticated
from gateway.identity import (
    KeyDigest,
    KeyRecord,
    KeyTable,
    KeyText,
    Peppers,
    accounts_of,
    authenticate,
    credential_of,
    issue_key,
    key_id_for,
    key_id_of,
    key_table,
    new_key_id,
)
from gateway.types import Principal


PEPPERS = Peppers({1: secrets.token_bytes(32), 2: secrets.token_bytes(32)})
LOST = (KeyDigest(7, b"made under a pepper that is here no more"),)
NOW_US = 1_800_000_000_000_000
Headers = list[tuple[bytes, bytes]]


def record_of(*keys: KeyText, pepper_version: int = 2, **changes: Any) -> KeyRecord:
    key_id = keys[0].key_id
    digests = tuple(
        KeyDigest(pepper_version, PEPPERS.digest(key.reveal(), pepper_version)) for key in keys
    )
    principal = Principal(
        key_id=key_id,
        key_name="robot",
        organisation="acme",
        workspace="research",
        project="bot",
        labels=(),
        models=None,
        accounts=accounts_of("acme", "research", "bot", key_id),
    )
    return KeyRecord(key_id, digests, principal, NOW_US, "test", **changes)


def table_of(*records: KeyRecord) -> KeyTable:
    return key_table(1, records)


def bearer(text: str) -> Headers:
    return [(b"host", b"gateway"), (b"authorization", b"Bearer " + text.encode())]


def refused(table: KeyTable, headers: Headers) -> str:
    with pytest.raises(Unauthenticated) as caught:
        authenticate(table, PEPPERS, headers, NOW_US)
    return caught.value.message


def test_every_header_form_names_the_same_principal() -> None:
    key = issue_key(secrets.token_bytes)
    table = table_of(record_of(key))
    text = key.reveal().encode()
    for headers in (
        [(b"authorization", b"Bearer " + text)],
        [(b"authorization", b"bearer  " + text + b" ")],
        [(b"x-api-key", text)],
        [(b"api-key", text)],
        [(b"x-api-key", text), (b"authorization", b"Bearer " + text)],
    ):
        principal = authenticate(table, PEPPERS, headers, NOW_US)
        assert principal.key_id == key.key_id
        assert principal.accounts == (
            "org:acme",
            "ws:acme/research",
            "proj:acme/research/bot",
            f"key:{key.key_id}",
        )


def test_two_different_keys_in_one_request_are_refused_even_when_both_are_good() -> None:
    first, second = issue_key(secrets.token_bytes), issue_key(secrets.token_bytes)
    table = table_of(record_of(first), record_of(second))
    for one, other in ((first, second), (second, first)):
        headers = [*bearer(one.reveal()), (b"x-api-key", other.reveal().encode())]
        refused(table, headers)
    refused(table, [*bearer(first.reveal()), (b"api-key", b"")])
    refused(table, [*bearer(first.reveal()), *bearer(second.reveal())])


def test_every_refusal_has_the_same_words() -> None:
    key, stranger = issue_key(secrets.token_bytes), issue_key(secrets.token_bytes)
    other_secret = issue_key(secrets.token_bytes, key.key_id)
    live = table_of(record_of(key))
    words = {
        refused(live, []),
        refused(live, [(b"authorization", b"Basic " + key.reveal().encode())]),
        refused(live, [(b"authorization", b"Digest " + key.reveal().encode())]),
        refused(live, bearer("")),
        refused(live, bearer("' OR '1'='1")),
        refused(live, bearer("gw_live_é")),
        refused(live, bearer(stranger.reveal())),
        refused(live, bearer(other_secret.reveal())),
        refused(table_of(record_of(key, revoked_us=NOW_US)), bearer(key.reveal())),
        refused(table_of(record_of(key, expires_us=NOW_US)), bearer(key.reveal())),
        refused(table_of(record_of(key, pepper_version=1)), bearer(stranger.reveal())),
        refused(table_of(), bearer(key.reveal())),
    }
    assert len(words) == 1
    assert words.pop().startswith("Incorrect API key provided, or none. A key begins with gw_live_")


def test_a_digest_under_a_pepper_that_is_gone_proves_nothing() -> None:
    key = issue_key(secrets.token_bytes)
    table = table_of(record_of(key, pepper_version=1))
    assert authenticate(table, PEPPERS, bearer(key.reveal()), NOW_US).key_id == key.key_id
    newer_only = Peppers({2: secrets.token_bytes(32)})
    with pytest.raises(Unauthenticated):
        authenticate(table, newer_only, bearer(key.reveal()), NOW_US)


@pytest.mark.parametrize("digest", [b"", bytes(32), b"\x00"])
@pytest.mark.parametrize("version", [0, 1, 2, 7])
def test_who_writes_to_the_database_and_has_no_pepper_makes_no_key(
    version: int, digest: bytes
) -> None:
    key = issue_key(secrets.token_bytes)
    forged = structs.replace(record_of(key), digests=(KeyDigest(version, digest),))
    refused(table_of(forged), bearer(key.reveal()))


def test_a_digest_under_the_newest_pepper_proves_nothing_as_that_of_one_that_is_gone() -> None:
    key = issue_key(secrets.token_bytes)
    moved = structs.replace(
        record_of(key), digests=(KeyDigest(7, PEPPERS.digest(key.reveal(), PEPPERS.newest)),)
    )
    refused(table_of(moved), bearer(key.reveal()))


def test_a_replaced_secret_is_good_until_its_end_and_the_new_one_beyond() -> None:
    old = issue_key(secrets.token_bytes)
    new = issue_key(secrets.token_bytes, old.key_id)
    digests = (
        KeyDigest(2, PEPPERS.digest(new.reveal(), 2)),
        KeyDigest(1, PEPPERS.digest(old.reveal(), 1), until_us=NOW_US + 1),
    )
    base = record_of(new)
    table = table_of(KeyRecord(base.key_id, digests, base.principal, NOW_US, "test"))
    assert authenticate(table, PEPPERS, bearer(old.reveal()), NOW_US) is base.principal
    assert authenticate(table, PEPPERS, bearer(new.reveal()), NOW_US + 1) is base.principal
    with pytest.raises(Unauthenticated):
        authenticate(table, PEPPERS, bearer(old.reveal()), NOW_US + 1)


def test_no_letter_of_a_key_is_likelier_than_another() -> None:
    """Four alphabets fill a byte but for the last eight: these would fall on the first letters."""
    key_id = new_key_id(lambda count: (b"\xf8\xff\xf9\xf7" * count)[:count])

    assert set(key_id) == {"z"}


def test_what_an_earlier_version_issued_and_kept_is_still_the_same() -> None:
    """Another digest or alphabet here would refuse every key that was ever issued."""
    letters = string.digits + string.ascii_uppercase + string.ascii_lowercase
    key = issue_key(lambda count: bytes(range(count)))
    assert key.reveal() == f"gw_live_{letters[:12]}_{letters[:43]}25o6FB"
    peppers = Peppers({1: bytes(range(32)), 2: bytes(range(1, 33))})
    digest = "544e45cdb721df91ed2477434213a7612f4f955ed46a6e228d9def133e6b2708"
    assert peppers.digest(key.reveal(), 1).hex() == digest
    # A mark that was ordered again by another version would make a second key.
    assert key_id_for("acme", "order-1") == "ZxfZ7Xe3pJGg"


def test_a_record_ends_exactly_at_its_expiry() -> None:
    key = issue_key(secrets.token_bytes)
    table = table_of(record_of(key, expires_us=NOW_US + 1))
    assert authenticate(table, PEPPERS, bearer(key.reveal()), NOW_US).key_id == key.key_id
    with pytest.raises(Unauthenticated):
        authenticate(table, PEPPERS, bearer(key.reveal()), NOW_US + 1)


def test_who_showed_a_secret_before_is_nobody_once_the_key_has_ended() -> None:
    key = issue_key(secrets.token_bytes)
    record = record_of(key, expires_us=NOW_US + 1)
    table = table_of(record)
    assert table.live(key.key_id, NOW_US) is record
    assert table.live(key.key_id, NOW_US + 1) is None
    assert table.live(new_key_id(), NOW_US) is None
    assert table_of(record_of(key, revoked_us=NOW_US)).live(key.key_id, NOW_US) is None
    # The clock was set back by a second since the key ended.
    set_back = key_table(1, [record], lambda: NOW_US + 1)
    assert set_back.live(key.key_id, NOW_US - 999_999) is None
    with pytest.raises(Unauthenticated):
        authenticate(set_back, PEPPERS, bearer(key.reveal()), NOW_US - 999_999)


def test_nothing_that_prints_holds_a_secret() -> None:
    key = issue_key(secrets.token_bytes)
    record = record_of(key)
    secret = key.reveal()[len("gw_live_") + 13 :]
    printed = f"{key!r} {key} {record!r} {record.digests!r} {table_of(record)!r} {PEPPERS!r}"
    assert secret not in printed
    assert repr(record.digests[0].digest) not in printed
    assert key.key_id in printed


def test_an_unknown_id_costs_what_a_wrong_secret_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that time tells nobody which ids exist, nor under which pepper a key was made."""
    key, stranger = issue_key(secrets.token_bytes), issue_key(secrets.token_bytes)
    wrong = issue_key(secrets.token_bytes, key.key_id)
    made: list[str] = []
    digest = Peppers._keyed_digest

    def counted(keyed: hmac.HMAC, key_text: str) -> bytes:
        made.append(key_text)
        return digest(keyed, key_text)

    tables = (table_of(record_of(key)), table_of(structs.replace(record_of(key), digests=LOST)))
    monkeypatch.setattr(Peppers, "_keyed_digest", staticmethod(counted))
    for table in tables:
        for asked in (wrong, stranger):
            made.clear()
            refused(table, bearer(asked.reveal()))
            assert made == [asked.reveal()]


def test_a_pepper_must_be_long_enough_to_be_one() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Peppers({1: b"short"})
    with pytest.raises(ValueError, match="32 bytes"):
        Peppers({1: secrets.token_bytes(32), 2: secrets.token_bytes(31)})
    with pytest.raises(ValueError, match="at least one"):
        Peppers({})


def test_new_digests_are_made_under_a_pepper_that_is_there() -> None:
    old, new = secrets.token_bytes(32), secrets.token_bytes(32)
    assert Peppers({1: old, 2: new}).newest == 2
    assert Peppers({1: old, 2: new}, 1).newest == 1
    with pytest.raises(ValueError, match="one of them"):
        Peppers({1: old}, 2)


@given(st.binary(min_size=4000, max_size=4000), st.data())
def test_any_single_typing_error_is_found_without_a_database(
    noise: bytes, data: st.DataObject
) -> None:
    source = iter(noise + secrets.token_bytes(4000))
    text = issue_key(lambda count: bytes(next(source) for _ in range(count))).reveal()
    assert key_id_of(text) == text[8:20]
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from(string.ascii_letters + string.digits + "_-. \n"))
    changed = text[:place] + letter + text[place + 1 :]
    assert (key_id_of(changed) is None) == (changed != text)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"authorization", b"x-api-key", b"api-key", b"host"]),
            st.binary(max_size=80),
        ),
        max_size=4,
    )
)
def test_no_header_value_is_anything_but_refused(headers: Headers) -> None:
    refused(table_of(record_of(issue_key(secrets.token_bytes))), headers)


@given(st.binary(max_size=100))
def test_a_credential_is_text_without_its_frame(value: bytes) -> None:
    stripped = value.strip()
    if stripped and stripped.isascii():
        assert credential_of([(b"x-api-key", value)]) == stripped.decode()
    else:
        with pytest.raises(Unauthenticated):
            credential_of([(b"x-api-key", value)])


def test_letters_of_a_key_are_drawn_evenly() -> None:
    letters = "".join(issue_key(secrets.token_bytes).reveal()[21:64] for _ in range(400))
    assert set(letters) == set(string.ascii_letters + string.digits)
