"""Finds what retention would destroy today, by how long content is kept; destroys keys for good.

Records and proofs stay, because they cover ciphertext. Holds take precedence over retention and
erasure.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Self

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import distinct, func, select

from gateway.audit.content_keys.erasure import damaged_keys, destroy_keys, matching_keys
from gateway.audit.content_keys.key_dates import Aged, aged_keys, alone
from gateway.audit.content_keys.keys import KeyWrapper, WrappedKey
from gateway.audit.disk import Disk
from gateway.clock import DAY_US
from gateway.configuration.settings import Settings
from gateway.store.custody.orders import CustodyReader
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
    """Past their time too, but a hold forbids destroying them."""
    unsure: tuple[WrappedKey, ...]
    """Past their time by a clock that the log does not confirm; see `borne_out`.

    Or dated by a clock that was far behind, and no later key shows how young they are.
    """
    left_day: int = 0
    """The day of the oldest other key without a hold, unsure or young; 0 without one."""

    @property
    def has_keys(self) -> bool:
        """Whether there is any key, past its time or not."""
        return bool(self.due or self.held or self.unsure or self.left_day)

    def spared(self, subjects: Collection[str]) -> Self:
        """The same, without keys under holds that were set since."""
        due = tuple(key for key in self.due if not is_held(key, subjects))
        held = tuple(key for key in self.due if is_held(key, subjects))
        return replace(self, due=due, held=(*self.held, *held))


async def content_keys(
    settings: Settings, database: Database, organisation: str, subject: str | None
) -> list[WrappedKey]:
    """The keys of an organisation's content, or of one subject's, wherever they are."""
    directory = settings.path(settings.audit.directory)
    keys = await asyncio.to_thread(matching_keys, directory, organisation, subject)
    return keys + await SecondContents(database).matching_keys(organisation, subject)


async def aged_content_keys(
    settings: Settings, database: Database, days: Mapping[str, int], today: int
) -> dict[str, Aged]:
    """By organisation the content keys, wherever they are, whose time is over, and the next one."""
    directory = settings.path(settings.audit.directory)
    found = await asyncio.to_thread(aged_keys, directory, days, today)
    second = SecondContents(database)
    for organisation in (await second.organisations()).intersection(days):
        keys = await second.matching_keys(organisation, None)
        known, limit = found.get(organisation, Aged()), days[organisation]
        dates = [alone(key) for key in keys]
        old = [each for each in dates if each.day + limit < today]
        young = [each.day for each in dates if each.day + limit >= today]
        if known.young_day:
            young.append(known.young_day)
        found[organisation] = Aged((*known.old, *old), min(young, default=0))
    return found


async def damaged_key_lines(settings: Settings, master: KeyWrapper) -> int:
    """How many lines of key files are damaged: their owner is unknown, so none is erased."""
    directory = settings.path(settings.audit.directory)
    return len(await asyncio.to_thread(damaged_keys, directory, master))


async def expired(
    settings: Settings,
    database: Database,
    custody: CustodyReader,
    today: int,
    *,
    is_sure: bool = False,
) -> AsyncIterator[Expired]:
    """What is expired in every organisation with a limit; `today` in days since 1970, UTC.

    Each is read when its turn comes, so holds set in the meantime are respected. `is_sure` means
    that somebody confirms the date, whatever the log shows.
    """
    days = await limited(settings, database)
    aged = await aged_content_keys(settings, database, days, today) if days else {}
    for name, limit in days.items():
        one = _Looked(name, retention_of(settings, name)[0], limit, today, is_sure)
        yield await _expired(database, custody, one, aged.get(name, Aged()))


async def limited(settings: Settings, database: Database) -> dict[str, int]:
    """How many days each organisation with a log keeps content, without unlimited ones."""
    names = sorted(await DatabaseAuditTrees(database).trees())
    return {name: limit for name in names if (limit := retention_of(settings, name)[1])}


async def expired_of(
    settings: Settings, database: Database, custody: CustodyReader, organisation: str, today: int
) -> Expired | None:
    """What is expired in one organisation; None if its class keeps for ever."""
    name, days = retention_of(settings, organisation)
    if not days:
        return None
    aged = await aged_content_keys(settings, database, {organisation: days}, today)
    one = _Looked(organisation, name, days, today, is_sure=False)
    return await _expired(database, custody, one, aged.get(organisation, Aged()))


class _Looked(NamedTuple):
    organisation: str
    retention_class: str
    days: int
    today: int
    is_sure: bool


async def _expired(database: Database, custody: CustodyReader, one: _Looked, aged: Aged) -> Expired:
    sure = one.today
    if aged.old and not one.is_sure:
        sure = await borne_out(database, one.organisation, one.today)
    # Read as late as here: many keys take a while to read, and a hold set meanwhile counts.
    holds = await custody.holds(one.organisation) if aged.old else ()
    held_for = {hold.subject for hold in holds}
    due, held, unsure = list[WrappedKey](), list[WrappedKey](), list[WrappedKey]()
    left = [aged.young_day] if aged.young_day else []
    for key in aged.old:
        if is_held(key.line, held_for):
            held.append(key.line)
        elif (one.is_sure or key.is_sure) and key.day + one.days < sure:
            due.append(key.line)
        else:
            unsure.append(key.line)
            left.append(key.day)
    return Expired(
        one.organisation,
        one.retention_class,
        one.days,
        tuple(due),
        tuple(held),
        tuple(unsure),
        left_day=min(left, default=0),
    )


def is_held(key: WrappedKey, subjects: Collection[str]) -> bool:
    """Whether a hold covers it; `subjects` are those of its organisation's holds."""
    return "" in subjects or key.subject in subjects


async def borne_out(database: Database, organisation: str, today: int) -> int:
    """The day after the last three consecutive days with a signed log, or `today`; else 0.

    A running worker also signs idle logs. A clock that is set forward by a year would destroy a
    year of content, for good: dates count only after such days were lived through. The day after
    counts too, since just after midnight nothing may be signed yet.
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
    """Destroy these keys everywhere, for good; repeating this is harmless.

    Raises:
        OSError: not all of it could be done.
    """
    directory = settings.path(settings.audit.directory)
    folder = settings.path(settings.audit.checkpoint_directory)
    await asyncio.to_thread(destroy_keys, directory, folder, keys, now_us, Disk())
    await SecondContents(database).destroy([key.key for key in keys])
