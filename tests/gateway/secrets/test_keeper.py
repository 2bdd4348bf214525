"""The keeper: what changed is told once, outages are tolerated for a while and not for ever."""

import asyncio

import pytest

from gateway.clock import StoppedClock
from gateway.secrets.keeper import LocalPlace, SecretKeeper, SecretUnavailableError
from gateway.secrets.secret import Secret
from gateway.secrets.sources import EnvironmentSecret


pytestmark = pytest.mark.anyio


class Changeable:
    def __init__(self, value: str) -> None:
        self.value, self.is_away = value, False

    async def read(self) -> Secret[str]:
        if self.is_away:
            raise SecretUnavailableError("away")
        return Secret(self.value)


class Kept:
    """A keeper of one place, and what it told."""

    def __init__(self) -> None:
        self.place, self.clock = Changeable("one"), StoppedClock()
        self.heard: list[str | None] = []
        self.failures: list[str] = []
        self.keeper = SecretKeeper(
            {"p": self.place},
            self.clock,
            tolerate_s=60.0,
            changed=lambda _, value: self.heard.append(value.reveal() if value else None),
            failed=lambda _, reason: self.failures.append(reason),
        )


async def test_a_change_is_told_once() -> None:
    kept = Kept()
    for value in ("one", "one", "two", "two"):
        kept.place.value = value
        await kept.keeper.refresh()

    assert kept.heard == ["one", "two"]


async def test_an_outage_is_tolerated_for_the_stated_time_and_not_longer() -> None:
    """Counted from when it was read last: it was read well for hours before."""
    kept = Kept()
    for _ in range(2):
        await kept.keeper.refresh()
        kept.clock.advance(7200.0)
    await kept.keeper.refresh()
    kept.place.is_away = True
    for _ in range(6):
        kept.clock.advance(10.0)
        await kept.keeper.refresh()
    tolerated = list(kept.heard)
    kept.clock.advance(1.0)
    await kept.keeper.refresh()
    kept.place.is_away = False
    await kept.keeper.refresh()

    assert tolerated == ["one"]
    assert kept.heard == ["one", None, "one"]
    assert kept.failures == ["away"]


async def test_a_value_in_use_since_before_a_start_is_kept_while_its_place_is_away() -> None:
    place, clock = Changeable("one"), StoppedClock()
    clock.advance(1000.0)
    place.is_away = True
    heard: list[Secret[str] | None] = []
    keeper = SecretKeeper(
        {"p": place},
        clock,
        tolerate_s=60.0,
        changed=lambda _, value: heard.append(value),
        failed=lambda *_: None,
        known={"p": Secret("one")},
    )
    for _ in range(2):
        await keeper.refresh()
        clock.advance(60.0)
    assert heard == []
    await keeper.refresh()

    assert heard == [None]


async def test_a_loss_that_could_not_be_told_is_told_with_the_next_look() -> None:
    """Forgotten before it was told, a credential that may be revoked would be used for ever."""
    place, clock = Changeable("one"), StoppedClock()
    heard: list[str | None] = []
    failing = [TypeError("what nobody thought of")] * 2

    def changed(_: str, value: Secret[str] | None) -> None:
        if value is None and failing:
            raise failing.pop()
        heard.append(value.reveal() if value else None)

    keeper = SecretKeeper(
        {"p": place}, clock, tolerate_s=60.0, changed=changed, failed=lambda *_: None
    )
    await keeper.refresh()
    place.is_away = True
    clock.advance(61.0)
    with pytest.raises(TypeError):
        await keeper.refresh()
    assert keeper.ages_s() == {"p": 61.0}, "it is in use, and its age says so"
    for _ in range(2):
        await keeper.refresh()

    assert heard == ["one", None]
    assert keeper.ages_s() == {}


async def test_every_outage_is_told_once() -> None:
    kept = Kept()
    for is_away in (True, True, False, True, True):
        kept.place.is_away = is_away
        await kept.keeper.refresh()

    assert kept.failures == ["away", "away"]


async def test_a_variable_that_is_not_set_is_an_outage_of_its_place_until_it_is() -> None:
    environment: dict[str, str] = {}
    place = LocalPlace(EnvironmentSecret(environment, "TOKEN"))
    with pytest.raises(SecretUnavailableError, match="is not set") as caught:
        await place.read()
    environment["TOKEN"] = "now it is"

    assert caught.value.reason == "is not set or empty"
    assert (await place.read()).reveal() == "now it is"


async def test_a_place_that_hangs_or_breaks_holds_back_no_other_and_is_not_trusted_for_ever() -> (
    None
):
    """Each in its turn, the first would leave the credentials of all others as they were."""
    clock, asked = StoppedClock(), asyncio.Event()
    heard: dict[str, list[str | None]] = {"breaking": [], "hanging": [], "good": []}
    good, breaking = Changeable("one"), Changeable("one")

    class Hanging:
        async def read(self) -> Secret[str]:
            await asked.wait()
            return Secret("late")

    class Breaking:
        is_broken = False

        async def read(self) -> Secret[str]:
            if self.is_broken:
                raise TypeError("what nobody thought of")
            return await breaking.read()

    broken = Breaking()
    keeper = SecretKeeper(
        {"breaking": broken, "hanging": Hanging(), "good": good},
        clock,
        tolerate_s=60.0,
        changed=lambda name, value: heard[name].append(value.reveal() if value else None),
        failed=lambda *_: None,
    )
    refreshing = asyncio.create_task(keeper.refresh())
    while not (heard["good"] and heard["breaking"]):
        await asyncio.sleep(0)
    assert not heard["hanging"]
    asked.set()
    await refreshing
    broken.is_broken, good.value = True, "two"
    for _ in range(2):
        clock.advance(61.0)
        with pytest.raises(TypeError):
            await keeper.refresh()

    assert heard == {"breaking": ["one", None], "hanging": ["late"], "good": ["one", "two"]}


async def test_a_place_that_goes_on_hanging_holds_nothing_back_and_is_away_meanwhile() -> None:
    """A store that sends a byte now and then hangs for as long as it likes."""
    clock, answering = StoppedClock(), asyncio.Event()
    heard: list[tuple[str, str | None]] = []
    failures: list[tuple[str, str]] = []
    good, asked = Changeable("one"), 0

    class Hanging:
        async def read(self) -> Secret[str]:
            nonlocal asked
            asked += 1
            await answering.wait()
            return Secret("late")

    keeper = SecretKeeper(
        {"hanging": Hanging(), "good": good},
        clock,
        tolerate_s=60.0,
        changed=lambda name, value: heard.append((name, value.reveal() if value else None)),
        failed=lambda *failure: failures.append(failure),
        known={"hanging": Secret("old"), "good": Secret("old")},
        answer_s=0.01,
    )
    for value in ("one", "two", "three"):
        good.value = value
        await keeper.refresh()
        clock.advance(40.0)
    assert sorted(heard[:2]) == [("good", "one"), ("good", "two")]
    assert set(heard[2:]) == {("good", "three"), ("hanging", None)}
    assert (asked, failures) == (1, [("hanging", "its place takes too long to answer")])
    answering.set()
    await keeper.refresh()
    await keeper.refresh()

    assert heard[4:] == [("hanging", "late")]
    assert asked == 2


async def test_who_stops_asking_leaves_nobody_asked() -> None:
    ended = asyncio.Event()

    class Hanging:
        async def read(self) -> Secret[str]:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return Secret("never")

    keeper = SecretKeeper(
        {"hanging": Hanging()},
        StoppedClock(),
        tolerate_s=60.0,
        changed=lambda *_: None,
        failed=lambda *_: None,
    )
    refreshing = asyncio.create_task(keeper.refresh())
    await asyncio.sleep(0.01)
    refreshing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await refreshing
    async with asyncio.timeout(5):
        await ended.wait()


async def test_a_value_that_cannot_be_used_is_an_outage_and_the_one_before_ends() -> None:
    place, clock = Changeable("one"), StoppedClock()
    heard: list[str | None] = []
    failures: list[str] = []

    def changed(_: str, value: Secret[str] | None) -> None:
        text = value.reveal() if value else None
        if text == "b a d":
            raise SecretUnavailableError("holds spaces")
        heard.append(text)

    keeper = SecretKeeper(
        {"p": place},
        clock,
        tolerate_s=60.0,
        changed=changed,
        failed=lambda _, reason: failures.append(reason),
    )
    await keeper.refresh()
    place.value = "b a d"
    for _ in range(3):
        await keeper.refresh()
        clock.advance(31.0)
    place.value = "two"
    await keeper.refresh()

    assert heard == ["one", None, "two"]
    assert failures == ["holds spaces"]
