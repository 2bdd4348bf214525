"""Sources of secrets: an environment variable, or a file that only its owner can read."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from gateway.errors import ConfigurationInvalid
from gateway.secrets.secret import Secret


SECRET_MAX_BYTES = 64 * 1024


class SecretSource(Protocol):
    """A place that holds one secret."""

    def load(self) -> Secret[str]:
        """Read it now.

        Raises:
            ConfigurationInvalid: it is missing, empty, or others can read it.
        """
        ...


class EnvironmentSecret:
    """A variable of an environment, which the settings pass in; without a closing line break."""

    __slots__ = ("_environment", "_name")

    def __init__(self, environment: Mapping[str, str], name: str) -> None:
        self._environment = environment
        self._name = name

    def load(self) -> Secret[str]:
        value = _without_ending(self._environment.get(self._name, ""))
        if not value:
            raise ConfigurationInvalid("environment", self._name, "is not set or empty")
        if not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
            # Bytes that are not text take this form; encoding them would fail and quote them.
            raise ConfigurationInvalid("environment", self._name, "is not UTF-8 text")
        return Secret(value)


FileState = tuple[int, ...]
"""Device, inode, time of change in nanoseconds and size in bytes; empty if there is no file."""


class FileSecret:
    """A regular file that group and others cannot touch; a closing line break is not part of it.

    With `is_shared` its group may read it.
    """

    __slots__ = ("_forbidden", "_key", "_path")

    def __init__(self, path: Path, key: str = "", *, is_shared: bool = False) -> None:
        self._path = path
        self._key = key
        self._forbidden = 0o037 if is_shared else 0o077

    def load(self) -> Secret[str]:
        try:
            # The checks look at the opened file, so that nobody can swap it between check and read.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise self._invalid(f"cannot be read ({error.strerror})") from error
        try:
            self._check(os.fstat(descriptor))
            raw = os.read(descriptor, SECRET_MAX_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(raw) > SECRET_MAX_BYTES:
            raise self._invalid(f"is larger than {SECRET_MAX_BYTES} bytes")
        try:
            value = _without_ending(raw.decode())
        except UnicodeDecodeError:
            raise self._invalid("is not UTF-8 text") from None
        if not value:
            raise self._invalid("is empty")
        return Secret(value)

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise self._invalid("is not a regular file")
        if status.st_mode & self._forbidden:
            mode = stat.S_IMODE(status.st_mode)
            raise self._invalid(f"can be read by others (mode {mode:04o}); make it 0600")
        if status.st_uid not in (os.geteuid(), 0) and not self._is_the_folders(status.st_uid):
            raise self._invalid("belongs to another user")

    def _is_the_folders(self, owner: int) -> bool:
        """Whether root reads a file of its folder's owner, as commands run by root do.

        In a folder of somebody else's, such as /tmp, anybody may have put it there.
        """
        try:
            return os.geteuid() == 0 and self._path.parent.stat().st_uid == owner
        except OSError:
            return False

    def _invalid(self, reason: str) -> ConfigurationInvalid:
        return ConfigurationInvalid(str(self._path), self._key, reason)


def state_of(file: Path) -> FileState:
    """The file's state in the file system, by which a replaced file is noticed."""
    try:
        # Links are followed: Kubernetes and certbot often replace a link.
        status = file.stat()
    except OSError:
        return ()
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def _without_ending(text: str) -> str:
    """Editors and `echo` end a line, but no secret ends so: a header could not even hold it."""
    return text.removesuffix("\n").removesuffix("\r")
