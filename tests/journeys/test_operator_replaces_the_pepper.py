"""An operator replaces the pepper: callers with keys of before notice nothing until they rotate."""

from pathlib import Path

import aiohttp
import pytest

from gateway.clock import DAY_US, SystemClock
from gateway.identity import Peppers
from gateway.secrets.credentials import all_peppers
from gateway.secrets.envelope import create_key_file
from gateway.store.engine import Database, open_database
from gateway.store.identity.key_peppers import FORMER, SECRETS, hanging_on_peppers
from gateway.store.identity.keys import KeyStore
from tests.faults.envelopes import Caller, ask
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either]
SETTINGS = {
    "first": 'pepper = { file = "var/first.key" }\npepper_version = 1\n',
    "next beside it": 'other_peppers = { 2 = { file = "var/second.key" } }\n',
    "second": 'pepper = { file = "var/second.key" }\npepper_version = 2\n',
    "first beside it": 'other_peppers = { 1 = { file = "var/first.key" } }\n',
}


class House:
    """One gateway after another, over the same folder and database."""

    def __init__(self, folder: Path, database_url: str, upstreams: Upstreams) -> None:
        self._folder, self._url, self._upstreams = folder, database_url, upstreams

    def under(self, *named: str) -> RunningGateway:
        more = "[secrets]\n" + "".join(SETTINGS[name] for name in named)
        return RunningGateway(self._folder, self._url, self._upstreams, more=more)


async def status(gateway: RunningGateway, http: aiohttp.ClientSession, key: str) -> int:
    return (await Caller(gateway, http, key).post("openai", ask("openai"))).status


def store(gateway: RunningGateway, database: Database) -> KeyStore:
    settings = gateway.settings
    peppers = Peppers(all_peppers(settings), settings.secrets.pepper_version)
    return KeyStore(database, peppers, SystemClock())


async def test_keys_work_through_a_change_of_the_pepper_until_their_overlap_is_over(
    tmp_path: Path, database_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    house, database = House(tmp_path, database_url, upstreams), open_database(database_url)

    async def hanging(later_us: int = 0) -> dict[int, dict[str, int]]:
        async with database.reading() as connection:
            now_us = SystemClock().utc_us() + later_us
            found = await hanging_on_peppers(connection, now_us)
        return {version: dict(counts) for version, counts in found.items()}

    async with house.under("first") as gateway:
        key = await gateway.issue_key()
        assert await status(gateway, http, key) == 200
    create_key_file(tmp_path / "var" / "second.key")
    async with house.under("first", "next beside it") as gateway:
        assert await status(gateway, http, key) == 200

    async with house.under("second", "first beside it") as gateway:
        assert await status(gateway, http, key) == 200
        assert await hanging() == {1: {SECRETS: 1}}
        rotated = await store(gateway, database).rotate(key.split("_")[2], overlap_s=3600)
        while await status(gateway, http, rotated.reveal()) != 200:
            pass
        assert await status(gateway, http, key) == 200
        assert await hanging() == {1: {FORMER: 1}, 2: {SECRETS: 1}}
        assert await hanging(DAY_US) == {2: {SECRETS: 1}}
        ended = await store(gateway, database).rotate(key.split("_")[2], overlap_s=0)
    await database.close()

    tmp_path.joinpath("var", "first.key").unlink()
    async with house.under("second") as gateway:
        assert await status(gateway, http, ended.reveal()) == 200
        for former in (key, rotated.reveal()):
            assert await status(gateway, http, former) == 401
