"""How long content can be read: what retention would destroy today, and destroying keys for good.

Records and proofs stay, because they cover ciphertext. Holds go before retention and erasure.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from msgspec import Struct
from sqlalchemy import distinct, func, select

from gateway.audit.content_keys.erasure import damaged_keys, destroy_keys, matching_keys
from gateway.audit.content_keys.key_dates import Dated, dated_keys
from gateway.audit.content_keys.keys import KeyWrapper, WrappedKey
from gateway.audit.disk import Disk
from gateway.clock import DAY_US
from gateway.configuration.settings import Settings
from gateway.store.custody.orders import Custody
from gateway.store.engine import Database
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.schema.audit import audit_checkpoints


LIVED_DAYS: Final = 3


class Expired(Struct, frozen=True):
    """What retention means for one organisation today."""

    organisation: str
    retention_class: str
    days: int
    due: tuple[WrappedKey, ...]
    held: tuple[WrappedKey, ...]
    """Past their time too, but a hold forbids it."""
    unsure: tuple[WrappedKey, ...]
    """Past their time by a clock that the log does not bear out; see `borne_out`.

    Or dated by one that stood far back, and no later key says how young they are.
    """


async def content_keys(
    settings: Settings, database: Database, organisation: str, subject: str | None
) -> list[WrappedKey]:
    """The keys of an organisation's content, or of one subject's in it, wherever it lies."""
    directory = settings.path(settings.audit.directory)
    keys = await asyncio.to_thread(matching_keys, directory, organisation, subject)
    return keys + await SecondContents(database).matching_keys(organisation, subject)


async def dated_content_keys(
    settings: Settings, database: Database, organisation: str, today: int
) -> list[Dated]:
    """All keys of an organisation's content, wherever it lies, each with its day."""
    directory = settings.path(settings.audit.directory)
    keys = await asyncio.to_thread(dated_keys, directory, organisation, today)
    second = await SecondContents(database).matching_keys(organisation, None)
    return keys + [Dated(key, key.day) for key in second]


async def damaged_key_lines(settings: Settings, master: KeyWrapper) -> int:
    """How many lines of key files are damaged: nobody knows whose they are, so none is erased."""
    directory = settings.path(settings.audit.directory)
    return len(await asyncio.to_thread(damaged_keys, directory, master))


async def expired(
    settings: Settings,
    database: Database,
    custody: Custody,
    today: int,
    *,
    is_sure: bool = False,
) -> AsyncIterator[Expired]:
    """Of every organisation with a limit, one after the other; `today` in days since 1970, UTC.

    Each is looked at when its turn comes: what is held since the first one went is spared.
    `is_sure` where somebody says that it is `today`, whatever the log has.
    """
    for organisation in sorted(await DatabaseAuditTrees(database).trees()):
        one = await expired_of(settings, database, custody, organisation, today, is_sure=is_sure)
        if one is not None:
            yield one


async def expired_of(
    settings: Settings,
    database: Database,
    custody: Custody,
    organisation: str,
    today: int,
    *,
    is_sure: bool = False,
) -> Expired | None:
    """Of one organisation; None where its class keeps for ever."""
    name, days = retention_of(settings, organisation)
    if not days:
        return None
    keys = await dated_content_keys(settings, database, organisation, today)
    old = [key for key in keys if key.day + days < today]
    # Only now: many keys take a while to read, and a hold that is set meanwhile is one.
    held_for = {hold.subject for hold in await custody.holds(organisation)}
    held = tuple(key.line for key in old if "" in held_for or key.line.subject in held_for)
    free = [key for key in old if "" not in held_for and key.line.subject not in held_for]
    sure = today if is_sure or not free else await borne_out(database, organisation, today)
    due, unsure = list[WrappedKey](), list[WrappedKey]()
    for key in free:
        is_due = (is_sure or key.is_sure) and key.day + days < sure
        (due if is_due else unsure).append(key.line)
    return Expired(organisation, name, days, tuple(due), held, tuple(unsure))


async def borne_out(database: Database, organisation: str, today: int) -> int:
    """The day after the last three in a row on which the log was signed, or `today`; else 0.

    A running worker signs also what is idle. A clock that is set forth by a year would destroy a
    year of content, for good: dates count once somebody has lived through such days. The day after
    counts too, since just after midnight nobody may have signed.
    """
    columns, day = audit_checkpoints.c, today
    while day > 0:
        mine = (columns.organisation == organisation) & (columns.signed_us < (day + 1) * DAY_US)
        recent = mine & (columns.signed_us >= (day - LIVED_DAYS + 1) * DAY_US)
        days = func.count(distinct(columns.signed_us // DAY_US))
        async with database.reading() as connection:
            if (await connection.execute(select(days).where(recent))).scalar_one() == LIVED_DAYS:
                return min(day + 1, today)
            last_us = select(func.max(columns.signed_us)).where(mine)
            last = ((await connection.execute(last_us)).scalar_one() or 0) // DAY_US
        day = min(day - 1, last)
    return 0


def retention_of(settings: Settings, organisation: str) -> tuple[str, int]:
    """An organisation's class and its days; 0 keeps for ever."""
    retention = settings.retention
    name = retention.organisations.get(organisation, retention.default)
    return name, retention.classes.get(name, 0)


async def destroy(
    settings: Settings, database: Database, keys: Sequence[WrappedKey], now_us: int
) -> None:
    """Destroy these keys everywhere, for good; doing it again is harmless.

    Raises:
        OSError: not all of it could be done.
    """
    directory = settings.path(settings.audit.directory)
    folder = settings.path(settings.audit.checkpoint_directory)
    await asyncio.to_thread(destroy_keys, directory, folder, keys, now_us, Disk())
    await SecondContents(database).destroy([key.key for key in keys])
