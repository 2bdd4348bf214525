"""Seals and forgets secrets in the database for the signed-in person; a deed is recorded first.

A value comes in and is sealed. It appears in no deed, no error and no answer; its fingerprint does.
"""

from typing import Final

import msgspec
from msgspec import Struct

from admin.models.credentials import CredentialReader
from admin.services import Services
from gateway.errors import RequestInvalid
from gateway.oversight.access import Person
from gateway.secrets.credentials import master_key
from gateway.secrets.secret import Secret
from gateway.store.sealing.sealed_secrets import SealedSecret


LENGTH_MAX: Final = 8_192
"""Longer than any credential that fits a header."""


class SealOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A value to be sealed. `expected_version` is the one that was seen, 0 for none."""

    value: str
    expected_version: int | None = None

    def __repr__(self) -> str:
        return "SealOrder(•••)"


class Forget(Struct, frozen=True, forbid_unknown_fields=True):
    """Which version is to be forgotten."""

    expected_version: int | None = None


class Sealed(Struct, frozen=True):
    """What may be said of a secret that was just set."""

    name: str
    version: int
    fingerprint: str


class Sealer:
    """What people may do to secrets of the database."""

    def __init__(self, services: Services) -> None:
        self._deeds = services.deeds
        self._master = master_key(services.settings)
        self._reader = CredentialReader(services)

    async def seal(
        self, person: Person, name: str, value: Secret[str], expected: int | None
    ) -> Sealed:
        """Set or replace a secret.

        Raises:
            RequestInvalid: the name or the value cannot be one; the value is not in what it says.
            ChangedMeanwhile: somebody else set it meanwhile.
        """
        check_value(value)
        before = await self._reader.sealed(name)
        mark = self._master.fingerprint(value)
        after = {"name": name, "fingerprint": mark}
        async with self._deeds.doing(
            person.name, "secret.set", "", before=_said(before), after=after
        ):
            version = await self._reader.table.seal(name, value, person.name, expected=expected)
        return Sealed(name, version, mark)

    async def forget(self, person: Person, name: str, expected: int | None) -> None:
        """Forget a secret; who uses it has none once no worker remembers it.

        Raises:
            RequestInvalid: there is none of this name.
            ChangedMeanwhile: it has another version by now.
        """
        before = await self._reader.sealed(name)
        if before is None:
            raise RequestInvalid("there is no such secret", parameter="name")
        async with self._deeds.doing(
            person.name, "secret.removed", "", before=_said(before), after={"name": name}
        ):
            await self._reader.table.remove(name, expected=expected)


def check_value(value: Secret[str]) -> None:
    """Refuse what no adapter could send in a header; raises RequestInvalid."""
    text = value.reveal()
    if not text:
        raise RequestInvalid("Nothing was typed.", parameter="value")
    if len(text) > LENGTH_MAX:
        raise RequestInvalid("This is longer than any credential.", parameter="value")
    if not text.isascii() or not text.isprintable() or " " in text:
        reason = "It holds spaces, line breaks or letters that no credential has."
        raise RequestInvalid(reason, parameter="value")


def _said(secret: SealedSecret | None) -> object:
    return None if secret is None else msgspec.to_builtins(secret)
