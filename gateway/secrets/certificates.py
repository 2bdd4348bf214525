"""Our own certificates and their keys: checked in full, and kept up to date for a listener.

If a listener's new certificate is faulty, the previous one stays in use: a certificate that ends
soon serves callers better than none.
"""

import asyncio
import ssl
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from msgspec import Struct

from gateway.clock import SECOND_US, Clock
from gateway.configuration.settings import Listener, Settings
from gateway.errors import ConfigurationInvalid
from gateway.metrics import CertificateSeries
from gateway.secrets.bundles import (
    BUNDLE_BYTES_MAX,
    certificates_in,
    parsed,
    read_text,
    term_of,
)
from gateway.secrets.revocations import read_revocations
from gateway.secrets.sources import FileSecret, FileState, state_of
from gateway.secrets.tls import context_for
from gateway.secrets.validity import EndTeller, Term, day, next_end
from gateway.telemetry import Event, logger


if TYPE_CHECKING:
    from cryptography import x509

CHAIN_BYTES_MAX: Final = 1024 * 1024

Section = Literal["data_plane", "admin"]
"""The table of a listener in the settings."""
SECTIONS: Final[tuple[Section, ...]] = ("data_plane", "admin")


class Pair(Struct, frozen=True):
    """The files of a certificate chain and its key, and the settings that name them."""

    chain_file: Path
    chain_key: str
    key_file: Path
    key_key: str
    is_shared: bool = False
    """Whether a group may read the key: secret volumes give it to processes that are not root."""

    def show_by(self, context: ssl.SSLContext, now_us: int) -> "x509.Certificate":
        """Load it into a context; returns the certificate itself, without its chain.

        Raises:
            ConfigurationInvalid: a file cannot be used; it names the file, the key and the reason.
        """
        leaf = _leaf(self.chain_file, self.chain_key)
        _check_dates(leaf, now_us, self.chain_file, self.chain_key)
        _check_key(leaf, self)
        try:
            # The key was opened above, so there is no prompt for a passphrase here.
            context.load_cert_chain(self.chain_file, self.key_file)
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationInvalid(
                str(self.chain_file), self.chain_key, _reason(error)
            ) from error
        return leaf


class Certificate(Struct, frozen=True):
    """What a listener shows its callers and requires of them, ready to use."""

    context: ssl.SSLContext
    term: Term
    authorities: tuple[Term, ...] = ()
    """The authorities from which callers need a certificate."""
    lists: tuple[Term, ...] = ()
    """The revocation lists in which callers' certificates are looked up."""
    admits: bytes = b""
    """A digest of who is admitted: of the authorities, and of the revoked certificates."""


class _Callers(Struct, frozen=True):
    """The authorities from which callers need certificates, and the revocations."""

    authorities: tuple[Term, ...]
    lists: tuple[Term, ...]
    digest: bytes


def read_certificate(settings: Settings, section: Section, clock: Clock) -> Certificate | None:
    """A listener's certificate; None if it speaks plain HTTP.

    Raises:
        ConfigurationInvalid: a file cannot be used; it names the file, the key and the reason.
    """
    listener: Listener = getattr(settings, section)
    if not listener.is_encrypted:
        return None
    pair = Pair(
        settings.path(listener.tls_certificate_file),
        f"{section}.tls_certificate_file",
        settings.path(listener.tls_key_file),
        f"{section}.tls_key_file",
        is_shared=True,
    )
    context = context_for(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    now_us = clock.utc_us()
    term = term_of(pair.show_by(context, now_us))
    if not listener.tls_client_ca_file:
        return Certificate(context, term)
    callers = _ask_callers(context, settings, section, now_us)
    return Certificate(context, term, callers.authorities, callers.lists, callers.digest)


def _ask_callers(
    context: ssl.SSLContext, settings: Settings, section: Section, now_us: int
) -> _Callers:
    """Make a context require callers' certificates, and look them up if there is a list."""
    listener: Listener = getattr(settings, section)
    file, key = settings.path(listener.tls_client_ca_file), f"{section}.tls_client_ca_file"
    _load_verify(context, file, key)
    context.verify_mode = ssl.CERT_REQUIRED
    text = read_text(file, key, BUNDLE_BYTES_MAX)
    authorities = parsed(certificates_in(text))
    terms, digest = tuple(map(term_of, authorities)), sha256(text.encode())
    if not listener.tls_client_crl_file:
        return _Callers(terms, (), digest.digest())
    file, key = settings.path(listener.tls_client_crl_file), f"{section}.tls_client_crl_file"
    revocations = read_revocations(file, key, authorities, now_us)
    _load_verify(context, file, key)
    # The complete chain: callers whose authority was revoked are not admitted either.
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    digest.update(revocations.digest)
    return _Callers(terms, revocations.terms, digest.digest())


def _load_verify(context: ssl.SSLContext, file: Path, key: str) -> None:
    try:
        context.load_verify_locations(file)
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationInvalid(str(file), key, _reason(error)) from error


class KeptCertificate:
    """A listener's certificate, kept up to date while the listener runs."""

    def __init__(self, settings: Settings, section: Section, clock: Clock) -> None:
        """Read it.

        Raises:
            ConfigurationInvalid: as for `read_certificate`, or the listener speaks plain HTTP.
        """
        self._settings, self._section, self._clock = settings, section, clock
        self._files = _files(settings, section)
        self._used = self._looked = self._refused = self._look()
        found = read_certificate(settings, section, clock)
        if found is None:
            key = f"{section}.tls_certificate_file"
            raise ConfigurationInvalid(settings.source, key, "names no file")
        self._current = found
        self._ends = EndTeller()
        self._shut_out: Callable[[], None] = _nobody
        self._log = logger()

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection; open connections keep theirs."""
        return self._current.context

    def left_s(self) -> float:
        """Seconds until the certificate in use expires; below 0 if it has expired."""
        return self._current.term.left_s(self._clock.utc_us())

    def counted_in(self, series: CertificateSeries) -> None:
        """Have series ask it how long the files in use are still valid."""
        series.listener(
            self._section,
            self.left_s,
            lambda: self._left_s(self._current.authorities),
            lambda: self._left_s(self._current.lists),
        )

    def when_fewer_may_come(self, shut_out: Callable[[], None]) -> None:
        """Set what to do when connected callers may no longer be admitted."""
        self._shut_out = shut_out

    def caller_left_s(self, ends: str) -> float:
        """Seconds until a caller's certificate expires; `ends` is in the format of `ssl`."""
        return ssl.cert_time_to_seconds(ends) - self._clock.utc_us() / SECOND_US

    async def tend(self) -> None:
        """Put new files into use, and warn in time before those in use expire."""
        await self._follow()
        self._tell_ends()
        if any(each.ends_us <= self._clock.utc_us() for each in self._current.lists):
            # New callers are refused by now: nobody knows who was revoked since.
            self._shut_out()

    async def _follow(self) -> None:
        seen = self._look()
        is_settled, self._looked = seen == self._looked, seen
        # Chain and key are replaced one after the other: recent changes wait for the next look, or
        # a pair that does not match yet would be reported.
        if not is_settled or seen == self._used:
            return
        try:
            # Off the loop: a list may have megabytes.
            found = await asyncio.to_thread(
                read_certificate, self._settings, self._section, self._clock
            )
        except ConfigurationInvalid as error:
            # Tried again each time: the cause may be a date.
            if self._refused != seen:
                self._refused = seen
                said = {"component": self._section, "reason": str(error)}
                self._log.warning(Event.CERTIFICATE_REFUSED, **said)
            return
        if found is not None:
            former, self._current = self._current, found
            self._used = self._refused = seen
            said = {"component": self._section, "reason": f"good until {day(found.term.ends_us)}"}
            self._log.info(Event.CERTIFICATE_RENEWED, **said)
            if found.admits != former.admits:
                self._shut_out()

    def _tell_ends(self) -> None:
        """Warn once a day when the end is near, and at once when it has passed."""
        current, now_us = self._current, self._clock.utc_us()
        for name, terms, event in (
            ("", (current.term,), Event.CERTIFICATE_ENDS),
            ("tls_client_ca_file ", current.authorities, Event.CERTIFICATE_ENDS),
            ("tls_client_crl_file ", current.lists, Event.CERTIFICATE_LIST_ENDS),
        ):
            if line := self._ends.line(name, terms, now_us):
                self._log.warning(event, component=self._section, reason=name + line)

    def _left_s(self, terms: tuple[Term, ...]) -> float | None:
        now_us = self._clock.utc_us()
        found = next_end(terms, now_us)
        return None if found is None else found.left_s(now_us)

    def _look(self) -> tuple[FileState, ...]:
        return tuple(map(state_of, self._files))


def _nobody() -> None:
    """No connection is open yet."""


def trusting(settings: Settings, section: Section) -> ssl.SSLContext | None:
    """A context for our other processes on this machine to reach a listener; None for plain HTTP.

    They trust only the certificate in its file, whatever name they use for the listener.

    Raises:
        ConfigurationInvalid: the file cannot be read.
    """
    listener: Listener = getattr(settings, section)
    if not listener.is_encrypted:
        return None
    context = context_for(ssl.Purpose.SERVER_AUTH, _chain(settings, section))
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _chain(settings: Settings, section: Section) -> bytes:
    """The listener's own certificate in DER."""
    listener: Listener = getattr(settings, section)
    file = settings.path(listener.tls_certificate_file)
    return _leaf(file, f"{section}.tls_certificate_file").public_bytes(
        _serialization().Encoding.DER
    )


def kept_certificate(settings: Settings, section: Section, clock: Clock) -> KeptCertificate | None:
    """A listener's certificate to keep up to date; None if it speaks plain HTTP.

    Raises:
        ConfigurationInvalid: as for `read_certificate`.
    """
    listener: Listener = getattr(settings, section)
    return KeptCertificate(settings, section, clock) if listener.is_encrypted else None


def _files(settings: Settings, section: Section) -> tuple[Path, ...]:
    listener: Listener = getattr(settings, section)
    named = (
        listener.tls_certificate_file,
        listener.tls_key_file,
        listener.tls_client_ca_file,
        listener.tls_client_crl_file,
    )
    return tuple(settings.path(each) for each in named if each)


def _leaf(file: Path, key: str) -> "x509.Certificate":
    """The first of a chain, which is the listener's own."""
    # Loaded only if there is a certificate: 15 modules and 0.6 MiB of a worker.
    reader: Any = import_module("cryptography.x509")
    try:
        with file.open("rb") as chain:
            leaf: x509.Certificate = reader.load_pem_x509_certificates(chain.read(CHAIN_BYTES_MAX))[
                0
            ]
            return leaf
    except OSError as error:
        raise ConfigurationInvalid(str(file), key, _reason(error)) from error
    except ValueError as error:
        raise ConfigurationInvalid(str(file), key, "holds no certificate in PEM") from error


def _serialization() -> Any:
    """Also loaded only if there is a certificate."""
    return import_module("cryptography.hazmat.primitives.serialization")


def _check_dates(leaf: "x509.Certificate", now_us: int, file: Path, key: str) -> None:
    term = term_of(leaf)
    if now_us >= term.ends_us:
        raise ConfigurationInvalid(str(file), key, f"the certificate ended at {day(term.ends_us)}")
    if now_us < term.begins_us:
        reason = f"the certificate is not good before {day(term.begins_us)}"
        raise ConfigurationInvalid(str(file), key, reason)


def _check_key(leaf: "x509.Certificate", pair: Pair) -> None:
    file, key = pair.key_file, pair.key_key
    text = FileSecret(file, key, is_shared=pair.is_shared).load().reveal()
    try:
        private = _serialization().load_pem_private_key(text.encode(), None)
    except TypeError as error:
        raise ConfigurationInvalid(str(file), key, "is locked with a passphrase") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigurationInvalid(str(file), key, "holds no private key in PEM") from error
    if private.public_key() != leaf.public_key():
        raise ConfigurationInvalid(str(file), key, "is not the key of the certificate")


def _reason(error: OSError) -> str:
    """`ssl.SSLError` is an `OSError` too, and gives its reason in capitals."""
    if isinstance(error, ssl.SSLError):
        return f"cannot be used ({(error.reason or 'no PEM').replace('_', ' ').lower()})"
    return f"cannot be read ({error.strerror})"
