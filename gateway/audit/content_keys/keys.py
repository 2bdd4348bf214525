"""Data keys for content: one per organisation, end user, day and start, wrapped in `keys.jsonl`.

Erasing content means destroying its key's line (see `erasure`): the chain covers only ciphertext,
so every proof stays valid. A start never reuses an older key.
"""

import math
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol, Self

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from gateway.audit.disk import Disk, FileState
from gateway.audit.lying_here import lies_here
from gateway.clock import DAY_US, Clock


KEYS_NAME = "keys.jsonl"
KEY_DESTROYED: Final = "the content's key was destroyed"
"""Why content is unreadable for good; any other reason may be temporary."""
KEY_ELSEWHERE: Final = "the content's key lies in another audit folder"
KEY_DAMAGED: Final = "the content's key may stand in a damaged line of its worker's key file"
LOCK_NAME = "keys.lock"
"""Held while the key file is extended or rewritten: erasure runs in another process."""
NONCE_BYTES = 12
_NONCES_DRAWN = 64
_KEY_BYTES = 32
_LOOK_EVERY_S = 0.5
_CIPHERS_MAX = 20_000
_ID = re.compile(rb'\{"key":"([0-9a-f]{16})",')


class KeyWrapper(Protocol):
    """Protects data keys; `gateway.secrets.envelope.MasterKey` is one."""

    @property
    def key_id(self) -> str: ...

    @property
    def key_ids(self) -> frozenset[str]:
        """The id of its own key, and of others that open what they wrapped."""
        ...

    def wrap(self, key: bytes, aad: bytes) -> bytes: ...

    def unwrap(self, wrapped: bytes, aad: bytes) -> bytes:
        """Raises ValueError if none of the keys wrapped the bytes with this `aad`."""
        ...

    def opened_by(self, wrapped: bytes, aad: bytes) -> str:
        """The id of the key that wrapped the bytes with this `aad`; empty if none of these did."""
        ...


class WrappedKey(Struct, frozen=True):
    """One line of `keys.jsonl`."""

    key: str
    organisation: str
    day: int
    """Days since 1970-01-01, UTC."""
    master: str
    """Id of the key that wrapped it."""
    wrapped: bytes
    created_us: int
    subject: str = ""
    """Whose words it encrypts: a keyed digest of the end user; empty if none was named."""

    def aad(self) -> bytes:
        """Binds the wrapped key to its line, so that lines cannot be swapped."""
        parts = ["audit-content", self.key, self.organisation, self.day]
        return msgspec.json.encode([*parts, self.subject] if self.subject else parts)


class DamagedLine(Struct, frozen=True):
    """A line of `keys.jsonl` that was changed after it was written."""

    worker: str
    number: int
    """From 1, counting empty ones too."""
    key: str
    """Empty if its id cannot be read, or may itself have been changed."""
    reason: str

    def __str__(self) -> str:
        named = f" (key {self.key})" if self.key else ""
        return f"worker {self.worker}, line {self.number} of {KEYS_NAME}{named}: {self.reason}"


class ContentUnreadable(Exception):
    """Content cannot be decrypted: its key is gone, or belongs to another master key."""


class DataKeys:
    """The data keys of a running writer; belongs to its thread."""

    def __init__(self, folder: Path, wrapper: KeyWrapper, clock: Clock, disk: Disk) -> None:
        self._path = folder / KEYS_NAME
        self._wrapper = wrapper
        self._clock = clock
        self._disk = disk
        self._day = -1
        self._ciphers: dict[tuple[str, str], tuple[str, AESGCM]] = {}
        self._looked_s = -math.inf
        self._file: FileState | None = None
        """The key file's state when this object last used it."""
        self._nonces: list[bytes] = []

    def seal(
        self, organisation: str, subject: str, aad: bytes, content: bytes
    ) -> tuple[str, bytes]:
        """The key's id, and the content's nonce, ciphertext and tag.

        Raises:
            OSError: a new key could not be made durable; nothing was encrypted with it.
        """
        known = self._ciphers.get((organisation, subject))
        if known is None:
            if len(self._ciphers) >= _CIPHERS_MAX:
                self._ciphers.clear()
            known = self._create(organisation, subject)
            self._ciphers[organisation, subject] = known
        if not self._nonces:
            self._nonces = _draw_nonces()
        nonce = self._nonces.pop()
        return known[0], nonce + known[1].encrypt(nonce, content, aad)

    def look_at_the_clock(self) -> None:
        """Before each group: new keys are used from a new day, or a rewritten key file, on.

        A cached key that an erasure removed would encrypt content that nobody can ever open.
        """
        now_s = self._clock.monotonic_s()
        if 0 <= now_s - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = now_s
        day = self._clock.utc_us() // DAY_US
        if day != self._day:
            self._ciphers.clear()
        self._day = day
        self._look_at_the_file()

    def _look_at_the_file(self) -> None:
        """Forget all keys if somebody else has changed the file: some may have been removed.

        Its length counts too: after two erasures a file may have the previous one's inode number.
        """
        if self._disk.state(self._path) != self._file:
            self._ciphers.clear()

    def _create(self, organisation: str, subject: str) -> tuple[str, AESGCM]:
        key = secrets.token_bytes(_KEY_BYTES)
        draft = WrappedKey(
            key=secrets.token_hex(8),
            organisation=organisation,
            day=self._day,
            master=self._wrapper.key_id,
            wrapped=b"",
            created_us=self._clock.utc_us(),
            subject=subject,
        )
        line = msgspec.structs.replace(draft, wrapped=self._wrapper.wrap(key, draft.aad()))
        # The first line break ends a line that a crash may have cut off; empty lines are ignored.
        lock = self._disk.lock(self._path.with_name(LOCK_NAME), wait=True)
        try:
            self._look_at_the_file()
            self._disk.append_durably(self._path, b"\n" + msgspec.json.encode(line) + b"\n")
            self._file = self._disk.state(self._path)
        finally:
            self._disk.close(lock)
        return line.key, AESGCM(key)


def _draw_nonces() -> list[bytes]:
    """Random nonces, drawn for many contents at once.

    Each draw is a system call that releases the interpreter; under load the thread then waits to
    get it back, for every record of a group, while all callers of the group wait for it.
    """
    drawn = os.urandom(NONCE_BYTES * _NONCES_DRAWN)
    return [drawn[at : at + NONCE_BYTES] for at in range(0, len(drawn), NONCE_BYTES)]


class ContentOpener:
    """Decrypts the content of one worker's records."""

    def __init__(self, folder: Path | None, wrapper: KeyWrapper) -> None:
        self._wrapper = wrapper
        self._lines = {line.key: line for line in read_keys(folder)} if folder else {}
        self._folder = folder
        self._damaged: set[str] | None = None
        self._ciphers: dict[str, AESGCM] = {}

    @classmethod
    def of_lines(cls, lines: Iterable[WrappedKey], wrapper: KeyWrapper) -> Self:
        """For content whose keys are not in a worker's folder."""
        opener = cls(None, wrapper)
        opener._lines = {line.key: line for line in lines}
        return opener

    def require(self, key: str) -> None:
        """Raises ContentUnreadable if there is no such key: then the content cannot be opened.

        Checked before the content is searched, for a missing content says nothing about its key. A
        damaged line may be repaired, so while it may be this key's, nobody calls that destroyed.
        """
        if key not in self._lines:
            if self._damaged is None:
                found = damaged_lines(self._folder, self._wrapper) if self._folder else []
                self._damaged = {line.key for line in found}
            is_damaged = not self._damaged.isdisjoint(("", key))
            raise ContentUnreadable(KEY_DAMAGED if is_damaged else KEY_DESTROYED)

    def open(self, key: str, sealed: bytes, aad: bytes) -> bytes:
        """Raises ContentUnreadable; the message gives the reason."""
        cipher = self._ciphers.get(key)
        if cipher is None:
            cipher = self._ciphers[key] = self._unwrap(key)
        try:
            return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], aad)
        except (InvalidTag, ValueError):
            raise ContentUnreadable("the content was changed or moved") from None

    def _unwrap(self, key: str) -> AESGCM:
        self.require(key)
        line = self._lines[key]
        try:
            return AESGCM(self._wrapper.unwrap(line.wrapped, line.aad()))
        except ValueError as error:
            raise ContentUnreadable(str(error)) from error


def is_key_destroyed(folder: Path, key: str, wrapper: KeyWrapper) -> bool:
    """Whether a worker's key file is here and undamaged, and no longer has this key."""
    if not lies_here(folder / KEYS_NAME):
        return False
    try:
        ContentOpener(folder, wrapper).require(key)
    except ContentUnreadable as error:
        return str(error) == KEY_DESTROYED
    return False


def read_keys(folder: Path) -> list[WrappedKey]:
    """All complete lines of a worker's `keys.jsonl`; a line cut off by a crash was never used."""
    found = (whole_line(line) for line in raw_lines(folder))
    return [key for key in found if key is not None]


def raw_lines(folder: Path) -> list[bytes]:
    """The lines of the key file; joined by line breaks these are its bytes again."""
    try:
        return (folder / KEYS_NAME).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []


def named_by(line: bytes) -> str:
    """The id of the key in a line, damaged or not; empty if it cannot be read."""
    whole = whole_line(line)
    if whole is not None:
        return whole.key
    found = _ID.match(line)
    return found[1].decode() if found else ""


def damaged_lines(folder: Path, wrapper: KeyWrapper | None) -> list[DamagedLine]:
    """Lines of a worker's file that were changed; a `wrapper` also finds those that still parse.

    A line that a crash cut off does not count.
    """
    lines = raw_lines(folder)
    found = []
    for number, line in enumerate(lines, start=1):
        reason = _reason(line, wrapper)
        if reason and not _is_torn(line, lines[number : number + 1]):
            name = "" if whole_line(line) else named_by(line)
            found.append(DamagedLine(folder.name, number, name, reason))
    return found


def _reason(line: bytes, wrapper: KeyWrapper | None) -> str:
    """What is wrong with a line; empty if nothing is."""
    key = whole_line(line)
    if key is None:
        return "it cannot be read" if line else ""
    if wrapper is None:
        return ""
    opened_by = wrapper.opened_by(key.wrapped, key.aad())
    if not opened_by:
        # It cannot open another master key's anyway; `masters` tells whose that is.
        is_ours = key.master in wrapper.key_ids
        return "it was changed: its key does not open" if is_ours else ""
    is_told = key.master == opened_by
    return "" if is_told else "it was changed: it names another master key than its own"


def _is_torn(line: bytes, after: list[bytes]) -> bool:
    """Whether a crash cut a line off: it never ended, so the next one follows it directly.

    Complete lines end with a line break, and each added line begins with one.
    """
    return after != [b""] and not line.endswith(b"}")


def whole_line(line: bytes) -> WrappedKey | None:
    """The key of a line; None if it cannot be read."""
    try:
        return msgspec.json.decode(line, type=WrappedKey)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
