"""TLS of the engine's listener: a certificate from files, renewed without a restart.

How a connection lives below TLS is in `connections.tls`.
"""

import asyncio
import os
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from cryptography import x509

from local_engine.serve.clock import unix_time_s
from local_engine.serve.connections.crowd import Crowd
from local_engine.serve.connections.tls import BelowTls
from local_engine.serve.log import log_event
from local_engine.serve.metrics import CertificateMetrics
from local_engine.serve.options import CertificateFiles


_LOOK_S: Final = 5.0
_DAY_S: Final = 86_400
_WEEK_S: Final = 7 * _DAY_S
_WARNED_SHARE: Final = 5
"""Of a certificate's life its last so many-th part is told of, and never more than a week."""
_KEPT_FROM: Final = 0o037
"""What nobody else may do with a key; its group may read it, as secret volumes have it."""

_Seen = tuple[tuple[int, ...], ...]


class CertificateRefused(Exception):
    """A file of a certificate cannot be used; the text names the file and the reason."""


@dataclass(frozen=True, slots=True)
class _Certificate:
    context: ssl.SSLContext
    begins_s: float
    ends_s: float

    @property
    def told_from_s(self) -> float:
        return self.ends_s - min((self.ends_s - self.begins_s) / _WARNED_SHARE, _WEEK_S)


class Encryption:
    """The certificate that new connections are shown; those that are open keep theirs."""

    def __init__(self, files: CertificateFiles) -> None:
        """Read the files.

        Raises:
            CertificateRefused: one of them cannot be used.
        """
        self._files = files
        self._used = self._looked = self._refused = _look(files)
        self._newest = _read(files)
        self._told_s = 0
        self._figures = CertificateMetrics(self.left_s)

    def over(
        self, http: Callable[..., asyncio.Protocol], crowd: Crowd, handshake_s: float
    ) -> Callable[..., BelowTls]:
        """What uvicorn makes for each connection: HTTP over the newest certificate.

        A context of its own knows no session of the one before it. Where one context is handed on
        to the next, a session that was begun with a certificate of an authority that is gone goes
        on without anybody looking at it (decision 0062).
        """

        def made(**parts: Any) -> BelowTls:
            return BelowTls(lambda: http(**parts), self._newest.context, crowd, handshake_s)

        return made

    def left_s(self) -> float:
        """Seconds until the certificate in use ends; below 0 where it has ended."""
        return self._newest.ends_s - unix_time_s()

    def metrics(self) -> bytes:
        """In Prometheus text form."""
        return self._figures.render()

    async def look_after(self) -> NoReturn:
        """Until cancelled: take new files into use, and say in time that the ones in use end."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        """Once."""
        self._follow()
        now_s = unix_time_s()
        if now_s >= self._newest.told_from_s and now_s - self._told_s >= _DAY_S:
            self._told_s = now_s
            log_event("engine.certificate_ends", left_s=self.left_s())

    def _follow(self) -> None:
        seen = _look(self._files)
        is_settled, self._looked = seen == self._looked, seen
        # Certificate and key are replaced one after the other: what changed just now is left to
        # the next look, or a pair that does not match yet would be told of.
        if not is_settled or seen in (self._used, self._refused):
            return
        try:
            found = _read(self._files)
        except CertificateRefused as error:
            # Callers are better served by a certificate that ends soon than by none.
            self._refused = seen
            log_event("engine.certificate_refused", reason=str(error))
            return
        self._newest, self._used, self._refused, self._told_s = found, seen, seen, 0
        log_event("engine.certificate_renewed", left_s=self.left_s())


def _look(files: CertificateFiles) -> _Seen:
    """What the file system says of them, so that one that was replaced can be told."""
    return tuple(map(_state_of, files.all))


def _state_of(file: Path) -> tuple[int, ...]:
    try:
        # Links are followed: what Kubernetes and certbot replace is often a link.
        status = file.stat()
    except OSError:
        return ()
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def _read(files: CertificateFiles) -> _Certificate:
    begins_s, ends_s = _dates_of(files.certificate)
    _check_mode(files.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # Distributions build Python with whatever their OpenSSL allows.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # As every context of the gateway's, with the reasons (`gateway/secrets/tls.py`).
    context.verify_flags &= ~(ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN)
    context.set_alpn_protocols(["http/1.1"])

    def refuse_locked() -> NoReturn:
        raise _refused(files.key, "is locked with a passphrase")

    try:
        context.load_cert_chain(files.certificate, files.key, refuse_locked)
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or "no PEM"
        said = f"is no certificate for {files.key} ({reason.replace('_', ' ').lower()})"
        raise _refused(files.certificate, said) from error
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except OSError as error:
            raise _refused(files.client_ca, "holds no certificate in PEM") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return _Certificate(context, begins_s, ends_s)


def _dates_of(file: Path) -> tuple[float, float]:
    """From when to when the first certificate of a file is good, as Unix time in seconds."""
    try:
        leaf = x509.load_pem_x509_certificates(file.read_bytes())[0]
    except OSError as error:
        raise _refused(file, f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise _refused(file, "holds no certificate in PEM") from error
    begins_s = leaf.not_valid_before_utc.timestamp()
    ends_s = leaf.not_valid_after_utc.timestamp()
    if not begins_s <= unix_time_s() < ends_s:
        raise _refused(file, "holds a certificate that has ended or has not begun")
    return begins_s, ends_s


def _check_mode(file: Path) -> None:
    try:
        status = file.stat()
    except OSError as error:
        raise _refused(file, f"cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(status.st_mode):
        raise _refused(file, "is not a regular file")
    if status.st_mode & _KEPT_FROM:
        raise _refused(file, f"can be read by others (mode {stat.S_IMODE(status.st_mode):04o})")
    if status.st_uid not in (os.geteuid(), 0):
        raise _refused(file, "belongs to another user")


def _refused(file: Path, reason: str) -> CertificateRefused:
    return CertificateRefused(f"{file}: {reason}")
