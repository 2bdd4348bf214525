"""Kept answers in a place that workers share: sealed, under names that say nothing.

Each organisation has a secret of its own, derived from the master key. An answer's name and its
AES-256-GCM key are derived from that secret and from all that the answer depends on: whoever runs
the place sees lengths and times, and what was changed, moved or swapped there does not open.
"""

import hashlib
import hmac
import os
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct, structs

from gateway.caching.response_cache import KeptReply
from gateway.clock import SECOND_US, Clock
from gateway.secrets.envelope import MasterKey


VERSION: Final = b"gatewright shared answers 2 "
"""Of the form below: workers of another version find nothing of ours, and we nothing of theirs."""
_NONCE_BYTES: Final = 12


class _Sealed(Struct, frozen=True, array_like=True):
    kept_us: int
    """Wall time: the clocks that replies carry mean something on one worker only."""
    reply: KeptReply


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Sealed)


class ReplySeal:
    """Seals and opens answers; it holds the master key."""

    def __init__(self, master: MasterKey, clock: Clock) -> None:
        self._master = master
        self._clock = clock

    def name(self, organisation: str, key: bytes) -> bytes:
        """Where an answer lies; without the master key nobody can tell of what it is the name."""
        return self._made(organisation, b"name", key)

    def seal(self, organisation: str, key: bytes, reply: KeptReply) -> bytes:
        """Nonce, ciphertext, tag."""
        age_us = int((self._clock.monotonic_s() - reply.kept_s) * SECOND_US)
        content = _ENCODER.encode(_Sealed(self._clock.utc_us() - age_us, reply))
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher(organisation, key).encrypt(nonce, content, VERSION + key)

    def open(self, organisation: str, key: bytes, sealed: bytes) -> KeptReply | None:
        """The answer, as old as it is; None for what was not sealed for this organisation and key.

        An answer from a clock ahead of ours counts as made now.
        """
        nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            content = self._cipher(organisation, key).decrypt(nonce, text, VERSION + key)
            found = _DECODER.decode(content)
        except (InvalidTag, ValueError, msgspec.MsgspecError):
            return None
        age_s = max(self._clock.utc_us() - found.kept_us, 0) / SECOND_US
        return structs.replace(found.reply, kept_s=self._clock.monotonic_s() - age_s)

    def _cipher(self, organisation: str, key: bytes) -> AESGCM:
        return AESGCM(self._made(organisation, b"seal", key))

    def _made(self, organisation: str, use: bytes, key: bytes) -> bytes:
        secret = self._master.derived(VERSION + organisation.encode())
        return hmac.digest(secret, use + key, hashlib.sha256)
