"""Authentication: virtual keys, their format, and the one place that turns one into a principal.

A key is `gw_live_<id>_<secret><checksum>`, all of it letters and digits: 12 of id, 43 of secret
(256 bits), 6 of CRC-32 over the rest, so that a typing error is found without a database. What is
stored is HMAC-SHA256 of the whole text under a versioned pepper; a slow hash would buy nothing
against 256 random bits. Nothing is cached by any part of a key.
"""

import hashlib
import hmac
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

from gateway.errors import Unauthenticated
from gateway.types import Principal


_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY = re.compile(r"gw_live_([0-9A-Za-z]{12})_[0-9A-Za-z]{43}([0-9A-Za-z]{6})", re.ASCII)
_ID_LENGTH, _SECRET_LENGTH, _CHECKSUM_LENGTH = 12, 43, 6
_CREDENTIAL_HEADERS = frozenset({b"authorization", b"x-api-key", b"api-key"})
Headers = Iterable[tuple[bytes, bytes]]
"""A request's headers, with names in lower case, as in ASGI."""
REFUSAL = (
    "Incorrect API key provided, or none. A key begins with gw_live_ and is sent as "
    "`authorization: Bearer KEY`, `x-api-key: KEY` or `api-key: KEY`."
)
"""Begins like OpenAI's: some frameworks tell a bad key from a bad request by these words."""
_NOBODY = b"\x00" * 32


class Peppers:
    """The secrets under which key digests are made, by version; new digests use `newest`."""

    __slots__ = ("_by_version", "newest")

    # Keyed objects to copy: `hmac.digest` lets the interpreter go for every call, and the thread
    # that writes the audit log takes it.

    def __init__(self, by_version: Mapping[int, bytes], newest: int | None = None) -> None:
        """If `newest` is not given, it is the highest number.

        The next pepper may be there ahead of time, with a number above the newest's.
        """
        if not by_version or any(len(pepper) < 32 for pepper in by_version.values()):  # noqa: PLR2004
            raise ValueError("at least one pepper is needed, each of at least 32 bytes")
        self._by_version = {
            version: hmac.new(pepper, digestmod="sha256") for version, pepper in by_version.items()
        }
        self.newest = max(by_version) if newest is None else newest
        if self.newest not in by_version:
            raise ValueError("the newest pepper is one of them")

    def __repr__(self) -> str:
        return f"Peppers(versions={sorted(self._by_version)})"

    def digest(self, key_text: str, version: int) -> bytes:
        """HMAC-SHA256 of a complete key, under an existing pepper."""
        return self._keyed_digest(self._by_version[version], key_text)

    def proves(self, key_text: str, version: int, digest: bytes) -> bool:
        """Whether a digest is this key's; with an unknown pepper never, in the same time.

        No fixed value stands for an unknown pepper's digest: somebody could write it into a row.
        """
        keyed = self._by_version.get(version)
        made = self._keyed_digest(keyed or self._by_version[self.newest], key_text)
        return hmac.compare_digest(made, digest) and keyed is not None

    def keyed(self, text: str) -> bytes:
        """HMAC-SHA256 under the oldest pepper, of what must be recognised again but not read."""
        return self._keyed_digest(self._by_version[min(self._by_version)], text)

    @staticmethod
    def _keyed_digest(keyed: hmac.HMAC, key_text: str) -> bytes:
        copy = keyed.copy()
        copy.update(key_text.encode())
        return copy.digest()


class KeyDigest(Struct, frozen=True):
    """The stored digest of a secret."""

    pepper_version: int
    digest: bytes
    until_us: int | None = None
    """When it expires: set on the secret that a rotation replaced."""

    def __repr__(self) -> str:
        return f"KeyDigest(pepper_version={self.pepper_version}, until_us={self.until_us})"


class Workload(Struct, frozen=True):
    """The tokens that prove a key without a secret: what an issuer must say of their bearer."""

    issuer: str
    """Its name in the settings."""
    subject: str
    claims: tuple[tuple[str, str], ...] = ()
    """Further claims by name; each must be a text that is exactly this value."""

    def fits(self, claims: Mapping[str, str]) -> bool:
        return all(claims.get(name) == value for name, value in self.claims)


class KeyRecord(Struct, frozen=True):
    """A virtual key as it is stored."""

    key_id: str
    digests: tuple[KeyDigest, ...]
    principal: Principal
    created_us: int
    created_by: str
    expires_us: int | None = None
    revoked_us: int | None = None
    revoked_revision: int | None = None
    """From this revision on no worker accepts it; unknown for keys revoked before it was stored."""
    workload: Workload | None = None
    """Set for a key without a secret; it then has no digests, and no text proves it."""

    @property
    def former_until_us(self) -> int | None:
        """When the secret before the last rotation ends or ended; None if it was never rotated."""
        return next((each.until_us for each in self.digests if each.until_us is not None), None)

    def is_live(self, now_us: int) -> bool:
        return self.revoked_us is None and (self.expires_us is None or now_us < self.expires_us)


def _no_time() -> int:
    return 0


class KeyTable(Struct, frozen=True):
    """All keys at one revision of the database; replaced as a whole, never changed."""

    revision: int
    records: Mapping[str, KeyRecord]
    steadily_us: Callable[[], int] = _no_time
    """A time that does not go back when somebody sets the clock."""
    bound: Mapping[tuple[str, str], tuple[KeyRecord, ...]] = MappingProxyType({})
    """Keys without a secret, by issuer and subject."""

    def by(self, now_us: int) -> int:
        """The time by which keys expire: none is valid again because the clock was set back."""
        return max(now_us, self.steadily_us())

    def live(self, key_id: str, now_us: int) -> KeyRecord | None:
        """The key with this id, for a bearer who proved it before; None once it has ended."""
        record = self.records.get(key_id)
        return record if record is not None and record.is_live(self.by(now_us)) else None

    def __repr__(self) -> str:
        return f"KeyTable(revision={self.revision}, keys={len(self.records)})"


class KeyText:
    """A key as its owner sees it, once; prints as its id."""

    __slots__ = ("_text", "key_id")

    def __init__(self, key_id: str, text: str) -> None:
        self.key_id = key_id
        self._text = text

    def __repr__(self) -> str:
        return f"KeyText({self.key_id})"

    def reveal(self) -> str:
        return self._text


def key_table(
    revision: int,
    records: Iterable[KeyRecord],
    steadily_us: Callable[[], int] = _no_time,
) -> KeyTable:
    by_id = {record.key_id: record for record in records}
    bound: dict[tuple[str, str], tuple[KeyRecord, ...]] = {}
    for record in by_id.values():
        if (workload := record.workload) is not None:
            named = workload.issuer, workload.subject
            bound[named] = (*bound.get(named, ()), record)
    return KeyTable(revision, MappingProxyType(by_id), steadily_us, MappingProxyType(bound))


def issue_key(random_bytes: Callable[[int], bytes], key_id: str = "") -> KeyText:
    """A new key, or a new secret for the key with `key_id`.

    Args:
        random_bytes: returns that many unpredictable bytes, such as `secrets.token_bytes`.
        key_id: of an existing key, or empty for a new one.
    """
    key_id = key_id or new_key_id(random_bytes)
    text = f"gw_live_{key_id}_{_random_text(random_bytes, _SECRET_LENGTH)}"
    return KeyText(key_id, text + _checksum(text))


def new_key_id(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """The part of a key that need not be secret."""
    return _random_text(random_bytes, _ID_LENGTH)


def key_id_for(organisation: str, mark: str) -> str:
    """The id of the key that an order with this mark makes: the same mark makes the same key.

    It depends on the organisation, so that a mark does not reveal whether another one has that key.
    """
    digest = hashlib.shake_256(f"{organisation}\n{mark}".encode())
    return _random_text(digest.digest, _ID_LENGTH)


def accounts_of(organisation: str, workspace: str, project: str, key_id: str) -> tuple[str, ...]:
    """The budget accounts that a key's requests are charged to, from the top down."""
    return (
        f"org:{organisation}",
        f"ws:{organisation}/{workspace}",
        f"proj:{organisation}/{workspace}/{project}",
        f"key:{key_id}",
    )


def key_id_of(key_text: str) -> str | None:
    """The id in a well-formed key, else None."""
    match = _KEY.fullmatch(key_text)
    if match is None or _checksum(key_text[:-_CHECKSUM_LENGTH]) != match[2]:
        return None
    return match[1]


def credential_of(headers: Headers) -> str:
    """The credential in a request's headers: `Authorization: Bearer`, `x-api-key` or `api-key`.

    Raises:
        Unauthenticated: there is none, one in another form, or several that differ.
    """
    found: bytes | None = None
    for name, value in headers:
        if name not in _CREDENTIAL_HEADERS:
            continue
        if name == b"authorization":
            if value[:7].lower() != b"bearer ":
                raise Unauthenticated(REFUSAL)
            presented = value[7:].strip()
        else:
            presented = value.strip()
        if found is not None and presented != found:
            raise Unauthenticated(REFUSAL)
        found = presented
    if not found or not found.isascii():
        raise Unauthenticated(REFUSAL)
    return found.decode("ascii")


def authenticate(table: KeyTable, peppers: Peppers, headers: Headers, now_us: int) -> Principal:
    """The principal that a request's headers prove.

    Raises:
        Unauthenticated: with the same message for every reason.
    """
    key_text = credential_of(headers)
    # The checksum is for people and tools without a table; here the digest decides.
    match = _KEY.fullmatch(key_text)
    if match is None:
        raise Unauthenticated(REFUSAL)
    record = table.records.get(match[1])
    if record is None:
        # An unknown id costs what a wrong secret costs, so that time tells nobody which ids exist.
        peppers.proves(key_text, peppers.newest, _NOBODY)
        raise Unauthenticated(REFUSAL)
    now_us = table.by(now_us)
    if not _proves(record.digests, peppers, key_text, now_us) or not record.is_live(now_us):
        raise Unauthenticated(REFUSAL)
    return record.principal


def _proves(digests: tuple[KeyDigest, ...], peppers: Peppers, key_text: str, now_us: int) -> bool:
    proved = False
    for kept in digests:
        is_same = peppers.proves(key_text, kept.pepper_version, kept.digest)
        proved |= is_same and (kept.until_us is None or now_us < kept.until_us)
    return proved


def _random_text(random_bytes: Callable[[int], bytes], length: int) -> str:
    # Bytes of 248 and above would make the first eight letters likelier than the others.
    letters: list[str] = []
    while len(letters) < length:
        letters += [_ALPHABET[byte % 62] for byte in random_bytes(2 * length) if byte < 248]  # noqa: PLR2004
    return "".join(letters[:length])


def _checksum(text: str) -> str:
    number = zlib.crc32(text.encode())
    letters = ""
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, 62)
        letters = _ALPHABET[digit] + letters
    return letters
