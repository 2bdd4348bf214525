"""The enterprise's own price file: taken whole or not at all, also while a worker runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.clock import StoppedClock
from gateway.configuration.reading import parse_settings
from gateway.configuration.settings import Settings
from gateway.errors import ChangedMeanwhile, ConfigurationInvalid
from gateway.money.price_file import PRICE_FILE_BYTES_MAX
from gateway.store.engine import Database, open_database
from gateway.store.money.price_files import CONFIGURED, PriceFiles
from gateway.store.money.price_proposals import PriceProposals
from gateway.types import Target
from gateway.worker.pricing import PriceWatch, configured_targets


pytestmark = pytest.mark.anyio

CONFIGURATION = """
[prices]
file = "own.toml"

[providers.house]
kind = "openai_compatible"
base_url = "http://127.0.0.1:9"
jurisdiction = "in-house"

[targets.ours]
provider = "house"
model = "ours"

[targets.demo]
provider = "house"
model = "gatewright-demo"
"""
ENTRY = """
[models.ours]
vendor = "house"
tier = "cheap"
input_microusd_per_mtok = {input}
output_microusd_per_mtok = 200
cache_read_microusd_per_mtok = 0
cache_write_microusd_per_mtok = 0
cache_write_1h_microusd_per_mtok = 0
batch_percent = 100
context_window_tokens = 1000
output_tokens_max = 100
capabilities = ["streaming"]
source = "an agreement"
as_of = "2026-11-01"
"""


class Enterprise:
    """A configuration with a price file, and what its worker was told."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "own.toml"
        self.folder = folder
        self.told: list[tuple[Target, ...]] = []
        self.write(ENTRY.format(input=100))

    def write(self, text: str) -> None:
        beside = self.folder / "own.new"
        beside.write_text(text)
        beside.replace(self.file)

    @property
    def settings(self) -> Settings:
        return parse_settings(CONFIGURATION, "gatewright.toml", self.folder, {})

    def watch(self, files: PriceFiles | None = None) -> PriceWatch:
        return PriceWatch(self.settings, self.told.append, files)


@pytest.fixture
def enterprise(tmp_path: Path) -> Enterprise:
    return Enterprise(tmp_path)


def price_of(targets: tuple[Target, ...]) -> dict[str, int]:
    return {target.name: target.price.input_microusd_per_mtok for target in targets}


def test_an_own_entry_stands_beside_and_in_front_of_the_shipped_ones(
    enterprise: Enterprise,
) -> None:
    shipped = price_of(configured_targets(enterprise.settings))["demo"]
    enterprise.write(
        ENTRY.format(input=100) + ENTRY.format(input=7).replace(".ours]", ".gatewright-demo]")
    )

    prices = price_of(configured_targets(enterprise.settings))
    assert prices == {"ours": 100, "demo": 7}
    assert shipped != 7


async def test_a_changed_file_is_taken_and_told_once(enterprise: Enterprise) -> None:
    watch = enterprise.watch()
    enterprise.write(ENTRY.format(input=150))
    with capture_logs() as lines:
        for _ in range(3):
            await watch.follow()

    assert [price_of(told)["ours"] for told in enterprise.told] == [150]
    assert [(line["event"], line["count"]) for line in lines] == [("prices:changed", 1)]


async def test_a_file_that_says_the_same_in_other_words_is_not_told(
    enterprise: Enterprise,
) -> None:
    watch = enterprise.watch()
    enterprise.write("# another remark\n" + ENTRY.format(input=100))
    await watch.follow()

    assert enterprise.told == []


async def test_each_time_that_a_file_goes_missing_is_said_once(enterprise: Enterprise) -> None:
    watch = enterprise.watch()
    with capture_logs() as lines:
        for _ in range(2):
            enterprise.file.unlink()
            for _ in range(2):
                await watch.follow()
            enterprise.write(ENTRY.format(input=100))
            await watch.follow()

    assert [line["event"] for line in lines] == ["prices:refused"] * 2
    assert enterprise.told == []


@pytest.mark.parametrize("is_cached", [True, False])
def test_targets_cache_prompts_where_the_settings_let_them(
    enterprise: Enterprise, is_cached: bool
) -> None:
    able = '["streaming", "prompt_cache"]'
    enterprise.write(ENTRY.format(input=100).replace('["streaming"]', able))
    requests = f"[requests]\nprompt_cache = {str(is_cached).lower()}\n"
    settings = parse_settings(requests + CONFIGURATION, "gatewright.toml", enterprise.folder, {})
    ours = next(each for each in configured_targets(settings) if each.name == "ours")

    assert ("prompt_cache" in ours.capabilities) is is_cached


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[models.ours", "not valid TOML"),
        (ENTRY.format(input=-1), "models.ours.input_microusd_per_mtok"),
        (ENTRY.format(input='"free"'), "models.ours.input_microusd_per_mtok: Expected `int`"),
        (ENTRY.format(input=1).replace("as_of", "as_off"), "field `as_of`; unknown: `as_off`"),
        (ENTRY.format(input=1) + ENTRY.format(input=1), "not valid TOML"),
        (ENTRY.format(input=1).replace(".ours]", ".theirs]"), "targets.ours.model"),
        ("#" * (PRICE_FILE_BYTES_MAX + 1), "is longer than"),
    ],
    ids=["cut", "negative", "type", "field", "twice", "missing", "long"],
)
async def test_a_file_with_one_error_is_refused_as_a_whole_and_the_old_prices_hold(
    enterprise: Enterprise, text: str, says: str
) -> None:
    watch = enterprise.watch()
    enterprise.write(text)
    with capture_logs() as lines:
        await watch.follow()
        await watch.follow()

    assert enterprise.told == []
    assert [line["event"] for line in lines] == ["prices:refused"]
    assert says in lines[0]["reason"]
    if not says.startswith("targets."):
        assert lines[0]["reason"].startswith(f"{enterprise.file}: ")
    with pytest.raises(ConfigurationInvalid, match=says.replace(".", r"\.")):
        enterprise.watch()  # a start has no older prices to keep

    enterprise.write(ENTRY.format(input=9))
    await watch.follow()
    assert [price_of(told)["ours"] for told in enterprise.told] == [9]


async def test_a_file_that_is_gone_or_no_text_leaves_the_prices_and_is_said_once(
    enterprise: Enterprise,
) -> None:
    watch = enterprise.watch()
    enterprise.file.unlink()
    with capture_logs() as lines:
        await watch.follow()
        await watch.follow()
        enterprise.file.write_bytes(b"\xff\xfe\x00")
        await watch.follow()

    assert enterprise.told == []
    assert [line["event"] for line in lines] == ["prices:refused", "prices:refused"]
    assert "UTF-8" in lines[1]["reason"]


async def test_without_a_price_file_nothing_is_read(tmp_path: Path) -> None:
    text = CONFIGURATION.replace('file = "own.toml"', "").replace('"ours"', '"gatewright-demo"')
    settings = parse_settings(text, "gatewright.toml", tmp_path, {})
    told: list[tuple[Target, ...]] = []
    await PriceWatch(settings, told.append).follow()

    assert told == []


class Agreed(PriceFiles):
    """Price files that are put in force as two people do it: one proposes, another agrees."""

    def __init__(self, database: Database) -> None:
        clock = StoppedClock(1_800_000_000_000_000)
        super().__init__(database, clock)
        self._proposals = PriceProposals(database, clock)

    async def order(self, number: int, by: str, reason: str, *, seen: int) -> None:
        made = await self._proposals.propose(number, by, reason, seen=seen, more_microusd=0)
        await self._proposals.approve(made.number, "zoe", "yes")


@pytest.fixture
async def files(database_url: str) -> AsyncIterator[Agreed]:
    database = open_database(database_url)
    yield Agreed(database)
    await database.close()


async def test_what_is_put_in_force_in_the_database_counts_on_every_worker_and_after_a_start(
    enterprise: Enterprise, files: Agreed
) -> None:
    workers = [enterprise.watch(files) for _ in range(3)]
    for worker in workers:
        await worker.start()
    assert enterprise.told == []

    number = await files.add("new.toml", ENTRY.format(input=250), "ann")
    for worker in workers:
        await worker.follow()
    assert enterprise.told == [], "a file that is only kept changes nothing"

    await files.order(number, "ann", "agreed", seen=0)
    with capture_logs() as lines:
        for worker in workers * 2:
            await worker.follow()
    assert [price_of(told)["ours"] for told in enterprise.told] == [250] * 3
    assert [line["event"] for line in lines] == ["prices:changed"] * 3

    # The file of one machine says nothing any more, neither to those that run nor at a start.
    enterprise.write(ENTRY.format(input=999))
    started = enterprise.watch(files)
    await started.start()
    for worker in workers:
        await worker.follow()
    assert [price_of(told)["ours"] for told in enterprise.told] == [250] * 4


async def test_going_back_is_an_order_too_also_to_what_the_configuration_names(
    enterprise: Enterprise, files: Agreed
) -> None:
    worker = enterprise.watch(files)
    first = await files.add("a", ENTRY.format(input=1), "ann")
    second = await files.add("b", ENTRY.format(input=2), "ben")
    for seen, number in enumerate((first, second, first, CONFIGURED)):
        await files.order(number, "ann", f"order {seen}", seen=seen)
        await worker.follow()
    assert [price_of(told)["ours"] for told in enterprise.told] == [1, 2, 1, 100]
    assert [order.number for order in await files.orders(10)] == [CONFIGURED, first, second, first]


async def test_a_file_that_leaves_a_target_without_a_price_changes_no_worker_and_stops_a_start(
    enterprise: Enterprise, files: Agreed
) -> None:
    """The page refuses such a file; a configuration may name more targets afterwards."""
    worker = enterprise.watch(files)
    number = await files.add("lacking", ENTRY.format(input=1).replace(".ours]", ".theirs]"), "ann")
    await files.order(number, "ann", "wrong", seen=0)
    with capture_logs() as lines:
        await worker.follow()
        await worker.follow()
    assert enterprise.told == []
    assert [line["event"] for line in lines] == ["prices:refused"]
    with pytest.raises(ConfigurationInvalid, match=r"targets\.ours\.model"):
        await enterprise.watch(files).start()


async def test_of_two_people_who_saw_the_same_prices_only_the_first_is_obeyed(
    files: Agreed,
) -> None:
    first = await files.add("a", ENTRY.format(input=1), "ann")
    second = await files.add("b", ENTRY.format(input=2), "ben")
    assert await files.add("c", ENTRY.format(input=1), "eve") == first, "it is there already"
    await files.order(first, "ann", "mine", seen=0)
    with pytest.raises(ChangedMeanwhile):
        await files.order(second, "ben", "no, mine", seen=0)
    assert (await files.standing()).number == first
