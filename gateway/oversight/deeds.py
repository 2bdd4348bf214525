"""Writes what people do in the control plane into the audit log: one admin record per deed.

The record is durable before the deed takes effect. A deed that cannot be recorded is not done, and
one that fails after its record is followed by a second record that says so. The actor is whoever is
signed in or types the command, never a field of the request. Callers pass names, numbers and roles,
never a secret.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct

from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewrightError
from gateway.ports import AuditLog
from gateway.types import AuditRecord, Receipt


OPERATORS = "-operators"
"""The log of operators' deeds: a log of its own, whichever organisation a deed concerns."""


class Deeds:
    """Writes admin records."""

    def __init__(self, audit: AuditLog, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock

    async def record(
        self,
        actor: str,
        action: str,
        organisation: str,
        *,
        before: object = None,
        after: object = None,
        error: str = "",
        **detail: str,
    ) -> Receipt:
        """One admin record; durable when this returns.

        Args:
            actor: whoever is signed in, or the user of the machine, as `os:NAME`.
            action: `subject.verb`, such as `key.revoked`.
            organisation: the one it concerns; empty for the installation.
            before: the state before, as plain values; None if there was none, or nothing changes.
            after: the state that is ordered.
            error: the code of the error, in the record of a deed that failed.
            detail: anything else, by name; empty values are left out.

        Raises:
            AuditUnavailable: it could not be written, so the deed must not be done.
        """
        said = {"organisation": organisation} | detail
        for name, values in (("before", before), ("after", after)):
            if values is not None:
                said[name] = msgspec.json.encode(values, order="deterministic").decode()
        return await self._audit.append(
            AuditRecord(
                stage="admin",
                request_id=f"adm_{secrets.token_hex(8)}",
                organisation=OPERATORS,
                utc_us=self._clock.utc_us(),
                actor=actor,
                action=action,
                status="failed" if error else "ok",
                error=error,
                detail={name: value for name, value in said.items() if value},
            )
        )

    @asynccontextmanager
    async def doing(
        self,
        actor: str,
        action: str,
        organisation: str,
        *,
        before: object = None,
        after: object = None,
        **detail: str,
    ) -> AsyncIterator[None]:
        """Wraps a deed: recorded before it begins, and again if it fails."""
        done = await self.record(actor, action, organisation, before=before, after=after, **detail)
        try:
            yield
        except BaseException as error:
            code = error.code if isinstance(error, GatewrightError) else type(error).__name__
            await asyncio.shield(
                self.record(actor, action, organisation, error=code, record=done.leaf_hash)
            )
            raise


class _Done(Struct, frozen=True):
    """A deed that is not recorded yet."""

    actor: str
    action: str
    organisation: str
    after: Mapping[str, object]
    at_us: int


class LateDeeds:
    """Deeds that do not wait for the log: done first, and recorded as soon as possible.

    They are for what must not be delayed, such as an alarm, or the end of something harmful. They
    are kept in memory until then, so their authors also leave a trace in the database.
    """

    def __init__(self, deeds: Deeds, clock: Clock) -> None:
        self._deeds = deeds
        self._clock = clock
        self._unrecorded: deque[_Done] = deque()

    def note(self, actor: str, action: str, organisation: str, after: Mapping[str, object]) -> None:
        """Note that it was done now; the arguments are those of `Deeds.record`."""
        done = _Done(actor, action, organisation, after, self._clock.utc_us())
        self._unrecorded.append(done)

    async def record(self) -> None:
        """Write what is not recorded yet; a record that comes a second late says when it was done.

        Raises:
            AuditUnavailable: the rest waits for the next call.
        """
        while self._unrecorded:
            done = self._unrecorded[0]
            after, late_us = dict(done.after), self._clock.utc_us() - done.at_us
            if late_us >= SECOND_US:
                after |= {"at_us": done.at_us, "late_s": late_us // SECOND_US}
            await self._deeds.record(done.actor, done.action, done.organisation, after=after)
            self._unrecorded.popleft()
