"""Keys of content: the form in which they are kept, who waits for whom, and how long one serves."""

import asyncio
from pathlib import Path

import pytest

from gateway.audit.content_keys import keys
from gateway.audit.content_keys.keys import (
    KEYS_NAME,
    LOCK_NAME,
    ContentOpener,
    ContentUnreadable,
    DataKeys,
    read_keys,
)
from gateway.audit.disk import Disk, FileState
from gateway.clock import StoppedClock
from tests.gateway.audit.samples import KEYS


AAD = b"what it is bound to"
DAY_S = 86_400.0


class Counting(Disk):
    """How often the key file is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def state(self, path: Path) -> FileState | None:
        self.looks += 1
        return super().state(path)


def test_what_an_earlier_version_kept_still_opens(tmp_path: Path) -> None:
    """Wrapped as text of base64, bound to its own line; nonce of 12 bytes, text, tag."""
    line = (
        b'\n{"key":"0202020202020202","organisation":"acme","day":20833,"master":"2f21647de3757e05"'
        b',"wrapped":"AQMDAwMDAwMDAwMDA+9KPdcKk1MX31wHf8yrVQYbV/fx2/k9sIO8RxwFI6hTYcVSSuCG2hKqZaogS'
        b'SHEaw==","created_us":1800000000000000,"subject":"ann"}\n'
    )
    sealed = bytes.fromhex(
        "04040404040404040404040498ce2924ea98d42f872df0d2a509d22ce158bf6f981c89aa6e6337d1"
    )
    (tmp_path / "keys.jsonl").write_bytes(line)
    opener = ContentOpener(tmp_path, KEYS)
    assert opener.open("0202020202020202", sealed, b"aad") == b"words of ann"
    (key,) = read_keys(tmp_path)
    assert (key.organisation, key.subject, key.day) == ("acme", "ann", 20833)


def test_what_is_kept_now_has_that_form_and_each_key_its_own(tmp_path: Path) -> None:
    data = DataKeys(tmp_path, KEYS, StoppedClock(), Disk())
    data.look_at_the_clock()
    named = {
        (organisation, subject): data.seal(organisation, subject, AAD, b"words")[0]
        for organisation in ("acme", "globex")
        for subject in ("", "ann", "bob")
    }
    raw = (tmp_path / KEYS_NAME).read_bytes()
    lines = raw.split(b"\n")
    assert lines[0::2] == [b""] * 7
    assert all(line.startswith(b'{"key":"') for line in lines[1::2])
    kept = {(each.organisation, each.subject): each for each in read_keys(tmp_path)}
    assert {name: each.key for name, each in kept.items()} == named
    assert {(each.day, each.master) for each in kept.values()} == {(20833, KEYS.key_id)}
    assert len({each.wrapped for each in kept.values()}) == len(set(named.values())) == 6


def test_no_nonce_serves_twice_and_everything_sealed_opens(tmp_path: Path) -> None:
    data = DataKeys(tmp_path, KEYS, StoppedClock(), Disk())
    data.look_at_the_clock()
    sealed = [data.seal("acme", "ann", AAD, b"the same") for _ in range(300)]
    assert len({bits[:12] for _, bits in sealed}) == 300
    assert {len(bits) for _, bits in sealed} == {12 + len(b"the same") + 16}
    opener = ContentOpener(tmp_path, KEYS)
    assert {opener.open(key, bits, AAD) for key, bits in sealed} == {b"the same"}
    for key, bits in sealed[:3]:
        for cut in range(len(bits)):
            with pytest.raises(ContentUnreadable, match="changed or moved"):
                opener.open(key, bits[:cut], AAD)


def test_a_key_serves_for_a_day_and_its_file_is_looked_at_twice_a_second(tmp_path: Path) -> None:
    clock, disk = StoppedClock(), Counting()
    data = DataKeys(tmp_path, KEYS, clock, disk)
    data.look_at_the_clock()
    first, _ = data.seal("acme", "", AAD, b"words")
    looks = disk.looks
    for seconds, more in ((0.0, 0), (0.49, 0), (0.01, 1), (0.25, 0), (0.25, 1)):
        clock.advance(seconds)
        looks += more
        data.look_at_the_clock()
        assert disk.looks == looks
    assert data.seal("acme", "", AAD, b"words")[0] == first
    clock.advance(DAY_S)
    data.look_at_the_clock()
    second, _ = data.seal("acme", "", AAD, b"words")
    assert [each.key for each in read_keys(tmp_path)] == [first, second]
    assert [each.day for each in read_keys(tmp_path)] == [20833, 20834]


def test_only_so_many_keys_are_held_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_CIPHERS_MAX", 3)
    data = DataKeys(tmp_path, KEYS, StoppedClock(), Disk())
    data.look_at_the_clock()
    sealed = []
    for number in range(8):
        sealed.append(data.seal("acme", f"u{number}", AAD, b"words"))
        assert len(data._ciphers) == number % 3 + 1
    opener = ContentOpener(tmp_path, KEYS)
    assert {opener.open(key, bits, AAD) for key, bits in sealed} == {b"words"}


@pytest.mark.anyio
async def test_whoever_adds_a_key_waits_for_an_erasure(tmp_path: Path) -> None:
    data = DataKeys(tmp_path, KEYS, StoppedClock(), Disk())
    data.look_at_the_clock()
    held = Disk().lock(tmp_path / LOCK_NAME)
    sealing = asyncio.create_task(asyncio.to_thread(data.seal, "acme", "", AAD, b"words"))
    await asyncio.sleep(0.05)
    assert not (tmp_path / KEYS_NAME).exists()
    Disk().close(held)
    key, _ = await sealing
    assert [each.key for each in read_keys(tmp_path)] == [key]
    Disk().close(Disk().lock(tmp_path / LOCK_NAME))
