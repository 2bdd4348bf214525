"""Lists each master key and pepper and how much depends on it, before one is removed."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.secrets.credentials import master_key, named_master_keys, pepper_setting
from gateway.store.engine import Database
from gateway.store.identity.key_peppers import hanging_on_peppers, holds_of_end_users
from gateway.store.sealing.hanging import all_hanging


class KeyInUse(Struct, frozen=True):
    """A key that is configured or still needed."""

    key: Literal["master_key", "pepper"]
    name: str
    """A master key's id, or a pepper's version. An id is empty for what no key opens."""
    setting: str
    """The setting that names it; empty if none does."""
    hanging: Mapping[str, int]
    """How much of each kind depends on it; of the audit folder, what lies on this machine."""

    @property
    def total(self) -> int:
        return sum(self.hanging.values())


async def keys_in_use(settings: Settings, database: Database, clock: Clock) -> Sequence[KeyInUse]:
    """Master keys first, the present one before all others.

    Raises:
        ConfigurationInvalid: a configured key cannot be read.
        StartupRefused: the audit folder cannot be read.
        NotReady: the database does not answer.
    """
    keys = await asyncio.to_thread(master_key, settings)
    ids = [keys.key_id, *(other.key_id for other in keys.others)]
    named = zip(ids, named_master_keys(settings), strict=True)
    places = {key_id: setting for key_id, (setting, _) in named}
    hanging = await all_hanging(settings, database)
    masters = [
        KeyInUse("master_key", each, places.get(each, ""), hanging.get(each, Counter()))
        for each in dict.fromkeys([*ids, *sorted(hanging)])
    ]
    return [*masters, *await _peppers(settings, database, clock)]


async def _peppers(settings: Settings, database: Database, clock: Clock) -> Sequence[KeyInUse]:
    async with database.reading() as connection:
        hanging = await hanging_on_peppers(connection, clock.utc_us())
        holds = await holds_of_end_users(connection)
    named = [settings.secrets.pepper_version, *map(int, settings.secrets.other_peppers)]
    found = []
    for version in sorted({*named, *hanging}):
        counts = hanging.get(version, Counter())
        if version == min(named):
            # End users are known by digests under the oldest one.
            counts += Counter({"holds of end users": holds})
        setting = pepper_setting(settings, version)
        found.append(KeyInUse("pepper", str(version), setting, counts))
    return found
