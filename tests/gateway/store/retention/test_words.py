"""Two processes of one audit folder whose settings keep content for different times."""

import pytest

from gateway.store.retention.folder_retention import FolderRetention
from gateway.store.retention.words import WORDS_NAME, RetentionDoubted
from tests.gateway.store.retention.test_folder_retention import House, house


__all__ = ["house"]
pytestmark = pytest.mark.anyio
DAY_S = 86_400


async def filled(house: House) -> None:
    await house.signed("acme", *range(-9, 5))
    house.keys("one", ("acme", "bob", 100), ("acme", "ann", 40))


async def doubts(retention: FolderRetention, said: str) -> None:
    with pytest.raises(RetentionDoubted, match=said):
        await retention.tend()


@pytest.mark.parametrize(("days", "said"), [(60, "for 60 days"), (0, "for ever")])
async def test_the_shorter_class_of_two_destroys_nothing_of_the_other_folders_process(
    house: House, days: int, said: str
) -> None:
    await filled(house)
    house.says("daily", days=days)
    keeps = house.retention("one")
    await keeps.tend()
    left = house.left("one")
    house.says("daily", days=30)
    listener = house.retention("admin", where="one")
    for _ in range(2):
        await doubts(listener, f"one, .* keeps content of acme {said}, and this process for 30")
    assert house.left("one") == left
    (standing,) = await house.stands()
    assert standing.report.due == len(left), "how late it is by this one's class is told"
    house.clock.advance(DAY_S)
    house.says("daily", days=days)
    await keeps.tend()
    house.says("daily", days=30)
    await doubts(listener, said)

    # The same classes for both; who was told so says it at its start.
    await house.retention("one").tend()
    await listener.tend()
    assert house.left("one") == []


async def test_who_says_nothing_for_two_days_is_not_waited_for(house: House) -> None:
    await filled(house)
    house.says("typed", days=60)
    await house.retention("gone", where="one").tend()
    house.says("daily", days=30)
    listener = house.retention("admin", where="one")
    house.clock.advance(1.9 * DAY_S)
    await doubts(listener, "gone, ")
    house.clock.advance(0.2 * DAY_S)
    await listener.tend()
    assert house.left("one") == []


async def test_what_lies_there_and_nobody_said_is_in_doubt(house: House) -> None:
    await filled(house)
    (house.folder / "one").mkdir(exist_ok=True)
    (house.folder / "one" / WORDS_NAME).write_text("{")
    retention = house.retention("one")
    await doubts(retention, "cannot be read, so nothing is destroyed")
    (house.folder / "one" / WORDS_NAME).unlink()
    await retention.tend()
    assert house.left("one") == []
