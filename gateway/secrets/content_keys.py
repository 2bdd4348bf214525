"""Keys that encrypt stored content: one for each thing stored, wrapped by the master key.

Each piece is bound to the thing it belongs to and to its place in it, so that a row that was moved,
swapped or put back from elsewhere does not decrypt. Deleting the wrapped key deletes all of the
content.
"""

import hashlib
import os

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.errors import NotReady
from gateway.secrets.envelope import KEY_BYTES, MasterKey, UnwrapFailed


_NONCE_BYTES = 12
_NAME_CHARS = 32
_NAMING = b"gatewright name of a content key\x00"

Label = tuple[str | int, ...]
"""Identifies a piece: authenticated, not hidden."""


class KeyClosed(NotReady):
    """A wrapped key was damaged, or this master key is not the one that wrapped it."""


class ContentDamaged(NotReady):
    """A piece does not open with its own key: reading it again does not help."""


class ContentKey:
    """An AES-256-GCM key of one file or batch; it never leaves this object."""

    __slots__ = ("_about", "_cipher", "_kept_as", "name", "sealed_by")

    def __init__(self, key: bytes, about: Label, kept_as: bytes, sealed_by: str = "") -> None:
        self._cipher = AESGCM(key)
        self._about = about
        self._kept_as = kept_as
        self.sealed_by = sealed_by
        """The id of the master key that wrapped it; not known for a key that was opened."""
        self.name = hashlib.sha256(_NAMING + key).hexdigest()[:_NAME_CHARS]
        """Tells it from others, whichever master key wraps it; it opens nothing."""

    def __repr__(self) -> str:
        return "ContentKey(…)"

    @property
    def kept_as(self) -> bytes:
        """The key in the form that is stored: only the master key opens it."""
        return self._kept_as

    def seal(self, content: bytes, *place: str | int) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, _bytes_of((*self._about, *place)))

    def open(self, sealed: bytes, *place: str | int) -> bytes:
        """Raises ContentDamaged if this is not the piece that was sealed for this place."""
        content = self.opened(sealed, *place)
        if content is None:
            raise ContentDamaged("kept content was changed or moved and cannot be opened")
        return content

    def opened(self, sealed: bytes, *place: str | int) -> bytes | None:
        """The same for one piece of many: None if it is damaged, so that the others can go on."""
        nonce, text = bytes(sealed[:_NONCE_BYTES]), bytes(sealed[_NONCE_BYTES:])
        try:
            return self._cipher.decrypt(nonce, text, _bytes_of((*self._about, *place)))
        except (InvalidTag, ValueError):
            return None


def fresh_key(master: MasterKey, *about: str | int) -> ContentKey:
    """A key for something new; `about` identifies it for ever."""
    key = os.urandom(KEY_BYTES)
    return ContentKey(key, about, master.wrap(key, _bytes_of(about)), master.key_id)


def opened_key(master: MasterKey, kept_as: bytes, *about: str | int) -> ContentKey:
    """The key of something stored; raises KeyClosed if this master key does not open it."""
    try:
        key = master.unwrap(bytes(kept_as), _bytes_of(about))
    except UnwrapFailed:
        raise KeyClosed("kept content cannot be opened with this master key") from None
    return ContentKey(key, about, bytes(kept_as))


def wrapped_anew(master: MasterKey, kept_as: bytes, *about: str | int) -> bytes:
    """The same key in stored form, under the current master key; raises KeyClosed."""
    label = _bytes_of(about)
    try:
        return master.wrap(master.unwrap(bytes(kept_as), label), label)
    except UnwrapFailed:
        raise KeyClosed("kept content cannot be opened with this master key") from None


def lost_key(kept_as: bytes, *about: str | int) -> ContentKey:
    """Stands in for a key that was given up: it opens nothing, so each piece is damaged."""
    return ContentKey(os.urandom(KEY_BYTES), about, bytes(kept_as))


def _bytes_of(label: Label) -> bytes:
    return msgspec.msgpack.encode(label)
