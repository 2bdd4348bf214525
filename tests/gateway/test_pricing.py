"""The enterprise's own price file: taken whole or not at all, also while a worker runs."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.configuration import parse_settings
from gateway.errors import ConfigurationInvalid
from gateway.price_file import PRICE_FILE_BYTES_MAX
from gateway.pricing import PriceWatch, configured_targets
from gateway.settings import Settings
from gateway.types import Target


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

    def watch(self) -> PriceWatch:
        return PriceWatch(self.settings, self.told.append)


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[models.ours", "not valid TOML"),
        (ENTRY.format(input=-1), "models.ours.input_microusd_per_mtok"),
        (ENTRY.format(input='"free"'), "models"),
        (ENTRY.format(input=1).replace("as_of", "as_off"), "models"),
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
