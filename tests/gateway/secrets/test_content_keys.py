"""Keys of kept content: a piece opens in its own place alone, and a key for what it was made."""

import pytest

from gateway.errors import NotReady
from gateway.secrets.content_keys import fresh_key, opened_key
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret


MASTER = MasterKey(Secret(bytes(range(32))))
OTHER = MasterKey(Secret(bytes(range(1, 33))))
CONTENT = b"the words of a line"


def test_a_piece_opens_with_the_key_as_it_was_kept_in_its_own_place() -> None:
    key = fresh_key(MASTER, "batch", "b1")
    sealed = key.seal(CONTENT, "line", 7)
    again = opened_key(MASTER, key.kept_as, "batch", "b1")
    assert again.kept_as == key.kept_as
    assert again.open(sealed, "line", 7) == CONTENT
    assert key.seal(CONTENT, "line", 7) != sealed
    assert CONTENT not in sealed
    assert (len(sealed), repr(key)) == (12 + len(CONTENT) + 16, "ContentKey(…)")


def test_what_an_earlier_version_sealed_still_opens() -> None:
    """Its label is authenticated as MessagePack: another form of it would open nothing any more."""
    kept = bytes.fromhex(
        "01" "030303030303030303030303"
        "ec493ed409905014dc5f047ccfa856051854f4f2d8fa3eb380bf441f0620ab50"
        "aa492e91e584772f1bc8cda22c4287c5"
    )  # fmt: skip
    sealed = bytes.fromhex(
        "040404040404040404040404"
        "7024b42e8924e23eee7eb886962239ca72dcbcbe47e5a48c68342a9eebfee6ad859917"
    )
    key = opened_key(MASTER, kept, "batch", "b1")
    assert key.open(sealed, "line", 7) == CONTENT
    # The list of what was erased has this name: by another one a backup would bring it back.
    assert key.name == "95753a518ce3aa2ffc74793115127b23"


def test_a_piece_that_was_moved_changed_or_cut_does_not_open() -> None:
    key = fresh_key(MASTER, "batch", "b1")
    sealed = key.seal(CONTENT, "line", 7)
    flipped = bytes([sealed[0] ^ 1]) + sealed[1:]
    for piece, place in (
        (sealed, ("line", 8)),
        (sealed, ("line", "7")),
        (sealed, ("answer", 7)),
        (sealed, ("line",)),
        (flipped, ("line", 7)),
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), ("line", 7)),
        (sealed[:20], ("line", 7)),
        (sealed[:5], ("line", 7)),
        (b"", ("line", 7)),
        (fresh_key(MASTER, "batch", "b1").seal(CONTENT, "line", 7), ("line", 7)),
    ):
        with pytest.raises(NotReady, match="changed or moved"):
            key.open(piece, *place)


def test_parts_of_a_label_do_not_run_into_each_other() -> None:
    key = fresh_key(MASTER, "file", "f")
    with pytest.raises(NotReady):
        key.open(key.seal(CONTENT, "ab", "c"), "a", "bc")


def test_a_key_opens_only_what_it_was_made_for_and_with_its_master_key() -> None:
    kept = fresh_key(MASTER, "batch", "b1").kept_as
    changed = kept[:-1] + bytes([kept[-1] ^ 1])
    for master, wrapped, about in (
        (MASTER, kept, ("batch", "b2")),
        (MASTER, kept, ("file", "b1")),
        (MASTER, kept, ("batch",)),
        (MASTER, changed, ("batch", "b1")),
        (MASTER, kept[:9], ("batch", "b1")),
        (OTHER, kept, ("batch", "b1")),
    ):
        with pytest.raises(NotReady, match="with this master key"):
            opened_key(master, wrapped, *about)
