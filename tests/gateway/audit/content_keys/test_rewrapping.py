"""Keys of an audit folder under another master key: the same keys, and no line is lost."""

import secrets
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.content_keys.erasure import apply_list
from gateway.audit.content_keys.keys import (
    KEYS_NAME,
    LOCK_NAME,
    DataKeys,
    WrappedKey,
    damaged_lines,
    read_keys,
)
from gateway.audit.content_keys.masters import KEYS_OF_CONTENTS, KEYS_THAT_SIGN, hanging_in
from gateway.audit.content_keys.rewrapping import rewrap_contents, rewrap_signers
from gateway.audit.disk import Disk
from gateway.audit.proving.checkpoints import SIGNERS_NAME, open_signer, read_signers, sign_anew
from gateway.clock import StoppedClock
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from tests.gateway.audit.content_keys.test_erasure import FailingDisk


CLOCK = StoppedClock()
OLD, PRESENT, LOST = (Secret(secrets.token_bytes(32)) for _ in range(3))
FORMER, ALONE, BOTH = MasterKey(OLD), MasterKey(PRESENT), MasterKey(PRESENT, [MasterKey(OLD)])


def _line(master: MasterKey, number: int) -> bytes:
    draft = WrappedKey(f"{number:016x}", "acme", number, master.key_id, b"", 1, "ann")
    key = number.to_bytes(32, "big")
    wrapped = master.wrap(key, draft.aad())
    return msgspec.json.encode(msgspec.structs.replace(draft, wrapped=wrapped))


def _filled(folder: Path) -> None:
    """Two keys of contents and a key that signs, of the key before."""
    folder.mkdir(parents=True)
    keys = DataKeys(folder, FORMER, CLOCK, Disk())
    for organisation in ("acme", "globex"):
        keys.seal(organisation, "", b"", b"words")
    open_signer(folder, "log/w0", FORMER, CLOCK, Disk())


def _keys(folder: Path, master: MasterKey) -> dict[str, bytes]:
    return {line.key: master.unwrap(line.wrapped, line.aad()) for line in read_keys(folder)}


@pytest.mark.parametrize("is_wrapped_anew", [False, True])
def test_a_key_that_signs_is_not_taken_beside_another_public_key(
    tmp_path: Path, *, is_wrapped_anew: bool
) -> None:
    """Also where whoever changed the line has the master key."""
    open_signer(tmp_path, "log/w0", FORMER, CLOCK, Disk())
    (line,) = read_signers(tmp_path)
    changed = msgspec.structs.replace(line, public=secrets.token_bytes(32))
    if is_wrapped_anew:
        seed = FORMER.unwrap(line.wrapped, line.aad())
        changed = msgspec.structs.replace(changed, wrapped=FORMER.wrap(seed, changed.aad()))
    (tmp_path / SIGNERS_NAME).write_bytes(msgspec.json.encode(changed) + b"\n")
    with pytest.raises(ValueError, match="does not fit" if is_wrapped_anew else "key"):
        open_signer(tmp_path, "log/w0", FORMER, CLOCK, Disk())


def test_the_same_keys_open_the_same_contents_under_the_present_master_key(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "w0"
    _filled(folder)
    before, signer = _keys(folder, FORMER), open_signer(folder, "log/w0", FORMER, CLOCK, Disk())
    counts = hanging_in(tmp_path, [FORMER.key_id])[FORMER.key_id]
    assert counts == {KEYS_OF_CONTENTS: 2, KEYS_THAT_SIGN: 1}
    assert _keys(folder, BOTH) == before
    with (folder / KEYS_NAME).open("rb") as old, (folder / SIGNERS_NAME).open("rb") as signed:
        lengths = [len(each.read()) for each in (old, signed)]
        assert rewrap_contents(folder, BOTH, Disk()) == 2
        assert rewrap_signers(folder, BOTH, Disk()) == 1
        for each, length in zip((old, signed), lengths, strict=True):
            each.seek(0)
            assert each.read() == bytes(length), "what the key before wrapped is overwritten"
    assert _keys(folder, ALONE) == before
    assert open_signer(folder, "log/w0", ALONE, CLOCK, Disk()).verifier_key == signer.verifier_key
    assert len(read_signers(folder)) == 1
    assert not hanging_in(tmp_path, [FORMER.key_id])[FORMER.key_id]
    assert not damaged_lines(folder, ALONE)
    assert rewrap_contents(folder, BOTH, Disk()) == rewrap_signers(folder, BOTH, Disk()) == 0


@pytest.mark.parametrize("steps", range(7))
@pytest.mark.parametrize("name", [KEYS_NAME, SIGNERS_NAME])
def test_wherever_it_is_cut_off_every_key_opens_and_the_next_run_ends_it(
    tmp_path: Path, name: str, steps: int
) -> None:
    folder = tmp_path / "w0"
    _filled(folder)
    before = _keys(folder, FORMER)
    rewrap = rewrap_contents if name == KEYS_NAME else rewrap_signers
    with (folder / name).open("rb") as old:
        length = len(old.read())
        with pytest.raises(OSError, match="crash"):
            rewrap(folder, BOTH, FailingDisk(steps))
        assert _keys(folder, BOTH) == before
        open_signer(folder, "log/w0", BOTH, CLOCK, Disk())
        rewrap(folder, BOTH, Disk())
        old.seek(0)
        assert old.read() == bytes(length)
    assert len(read_signers(folder)) == 1
    assert not list(folder.glob("*.draft"))
    assert not list(folder.glob("*.spent"))
    rewrap_contents(folder, BOTH, Disk())
    assert _keys(folder, ALONE) == before


def test_a_start_overwrites_what_a_run_left_that_was_cut_off(tmp_path: Path) -> None:
    """The worker's own start, before anybody runs the command again."""
    folder = tmp_path / "w0"
    _filled(folder)
    with pytest.raises(OSError, match="crash"):
        rewrap_contents(folder, BOTH, FailingDisk(4))
    assert list(folder.glob("keys.spent"))
    apply_list(tmp_path, tmp_path / "elsewhere", Disk())
    assert not list(folder.glob("keys.spent"))


def test_it_waits_for_who_adds_a_key_and_takes_that_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "w0"
    _filled(folder)
    before, added = _keys(folder, FORMER), _line(FORMER, 7)
    held, lock = Disk().lock(folder / LOCK_NAME), Disk.lock

    def adding(disk: Disk, path: Path, *, wait: bool = False) -> int:
        """Whoever holds it adds a line and lets go while it is waited for."""
        assert wait
        with (folder / KEYS_NAME).open("ab") as keys:
            keys.write(b"\n" + added + b"\n")
        Disk().close(held)
        return lock(disk, path, wait=wait)

    monkeypatch.setattr(Disk, "lock", adding)
    assert rewrap_contents(folder, BOTH, Disk()) == 3
    assert _keys(folder, ALONE) == before | {f"{7:016x}": (7).to_bytes(32, "big")}


def test_a_running_worker_goes_on_with_keys_of_its_own(tmp_path: Path) -> None:
    """One that still seals by the key before adds lines that the next run takes."""
    folder, clock = tmp_path / "w0", StoppedClock()
    folder.mkdir()
    keys = DataKeys(folder, FORMER, clock, Disk())
    first, _ = keys.seal("acme", "", b"", b"words")
    assert rewrap_contents(folder, BOTH, Disk()) == 1
    clock.advance(1.0)
    keys.look_at_the_clock()
    second, _ = keys.seal("acme", "", b"", b"words")
    assert second != first
    assert rewrap_contents(folder, BOTH, Disk()) == 1
    assert set(_keys(folder, ALONE)) == {first, second}


_LINES = st.one_of(
    st.tuples(st.sampled_from([FORMER, ALONE, MasterKey(LOST)]), st.integers(1, 99)).map(
        lambda each: _line(*each)
    ),
    st.integers(1, 99).map(lambda number: _line(FORMER, number)[:-7]),
    st.integers(1, 99).map(
        lambda number: _line(FORMER, number).replace(b'"organisation":"a', b'"organisation":"b')
    ),
    st.binary(max_size=20).filter(lambda line: b"\n" not in line),
    st.just(b""),
)


@given(st.lists(_LINES, max_size=12))
def test_of_any_file_only_what_the_key_before_wrapped_is_changed(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("w0")
    path = folder / KEYS_NAME
    path.write_bytes(b"\n".join(lines))
    changed = rewrap_contents(folder, BOTH, Disk())
    after = path.read_bytes().split(b"\n")
    assert len(after) == len(lines or [b""])
    assert changed == sum(old != new for old, new in zip(lines, after, strict=False))
    for old, new in zip(lines, after, strict=False):
        if old != new:
            was, now = (msgspec.json.decode(each, type=WrappedKey) for each in (old, new))
            assert (was.master, now.master) == (FORMER.key_id, ALONE.key_id)
            assert FORMER.unwrap(was.wrapped, was.aad()) == ALONE.unwrap(now.wrapped, now.aad())
    opening = [each for each in read_keys(folder) if FORMER.opened_by(each.wrapped, each.aad())]
    assert not opening, "whatever the key before had wrapped is wrapped anew"


def test_after_a_leak_each_worker_signs_with_another_key_from_its_next_start_on(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "w0"
    _filled(folder)
    rewrap_signers(folder, BOTH, Disk())
    before = open_signer(folder, "log/w0", BOTH, CLOCK, Disk())
    assert sign_anew(tmp_path, BOTH, CLOCK, Disk()) == 1
    after = open_signer(folder, "log/w0", BOTH, CLOCK, Disk())
    assert after.verifier_key != before.verifier_key
    told = [line.verifier_key for line in read_signers(folder)]
    assert told == [before.verifier_key, after.verifier_key]
