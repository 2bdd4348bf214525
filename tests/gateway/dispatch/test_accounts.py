"""What an upstream says of our account there holds for all who are asked with it, and for no other.

Several credentials for one vendor are several providers: where one is exhausted or revoked,
another takes over, and nobody pays for finding that out with each request.
"""

from collections.abc import Sequence

import msgspec
import pytest

from gateway.dispatch.accounts import Accounts as HeardOfAccounts
from gateway.errors import UpstreamRefused
from gateway.providers.scripted import ScriptedReply
from gateway.types import Plan
from tests.gateway.dispatch.test_walking import UNPAID, World


pytestmark = pytest.mark.anyio
REVOKED = ScriptedReply(status=401, pieces=(b'{"error":{"code":"invalid_api_key"}}',))
DENIED = ScriptedReply(status=403, pieces=(b"{}",))
BROKEN = ScriptedReply(status=500, pieces=(b"{}",))


class Accounts(World):
    """Targets are named by their account and a number: `a1` and `a2` share a credential."""

    def plan(self, names: Sequence[str], **more: object) -> Plan:
        plan = super().plan([name[0] for name in names], **more)
        candidates = tuple(
            msgspec.structs.replace(
                each, target=msgspec.structs.replace(each.target, name=f"scripted/{name}")
            )
            for each, name in zip(plan.candidates, names, strict=True)
        )
        return msgspec.structs.replace(plan, candidates=candidates)

    def asked(self) -> list[str]:
        """The targets of the last request, in the order in which they were asked."""
        return [each.target.removeprefix("scripted/") for each in self.log.as_tuple()]

    async def asks(self, *names: str, **more: object) -> list[str]:
        await self.ask(names, **more)  # type: ignore[arg-type]
        return self.asked()


async def test_a_revoked_credential_costs_no_request_its_answer_where_another_one_is_good() -> None:
    world = Accounts()
    answers: list[str] = []
    for _ in range(500):
        world.providers["a"].add(REVOKED)
        answers += (await world.asks("a1", "b1"))[-1:]
    assert answers == ["b1"] * 500
    assert len(world.providers["a"].calls) == 1


@pytest.mark.parametrize("refusal", [UNPAID, REVOKED])
async def test_one_target_without_money_speaks_for_all_of_its_account(
    refusal: ScriptedReply,
) -> None:
    world = Accounts()
    world.providers["a"].add(refusal)
    assert await world.asks("a1", "a2", "b1") == ["a1", "b1"]
    assert await world.asks("a2", "b1") == ["b1"]
    assert await world.asks("a3", "a2") == ["a3"], "it is passed over, and never forbidden"
    assert await world.asks("a2", "b1") == ["a2"], "and was paid meanwhile, as that answer shows"


async def test_so_it_does_where_the_second_would_have_been_asked_at_once() -> None:
    world = Accounts()
    world.providers["a"].add(UNPAID)
    assert await world.asks("a1", "a2", "b1", hedge_after_s=30.0) == ["a1", "b1"]


async def test_all_targets_of_an_account_without_money_are_shown_as_open() -> None:
    world = Accounts()
    world.providers["a"].add(UNPAID)
    await world.asks("a1", "b1")
    now_s, health = world.clock.monotonic_s(), world.health
    shown = [health.position(f"scripted/{name[0]}9", now_s, name) for name in ("a", "b")]
    assert shown == ["open", "closed"]
    assert health.position("scripted/a9", now_s + 30.0, "a") == "closed"


async def test_an_answer_to_an_earlier_call_says_nothing_of_an_account_that_was_refused_since() -> (
    None
):
    accounts, refused = HeardOfAccounts(), UpstreamRefused("", upstream_status=401)
    accounts.record("a", 1.0, 5.0, refused)
    accounts.record("a", 4.0, 6.0, None)
    assert accounts.is_paused("a", 7.0)
    accounts.record("a", 5.0, 7.0, None)
    assert not accounts.is_paused("a", 7.0)


async def test_an_account_is_asked_again_after_half_a_minute() -> None:
    world = Accounts()
    world.providers["a"].add(UNPAID)
    await world.asks("a1", "b1")
    world.clock.advance(29.0)
    assert await world.asks("a2", "b1") == ["b1"]
    world.clock.advance(1.5)
    assert await world.asks("a2", "b1") == ["a2"]


@pytest.mark.parametrize("failure", [BROKEN, DENIED])
async def test_what_is_wrong_with_one_target_or_request_says_nothing_of_its_account(
    failure: ScriptedReply,
) -> None:
    """A 403 may be about the model, the region or the content."""
    world = Accounts()
    world.providers["a"].add(failure)
    assert await world.asks("a1", "a2", "b1") == ["a1", "a2"]
    assert await world.asks("a1", "b1") == ["a1"]


async def test_the_last_account_is_asked_though_it_has_no_money() -> None:
    world = Accounts()
    for _ in range(2):
        world.providers["a"].add(UNPAID)
        with pytest.raises(UpstreamRefused) as refused:
            await world.asks("a1")
        assert refused.value.code == "upstream_unpaid"
    assert len(world.providers["a"].calls) == 2


async def test_a_trial_is_given_to_who_is_asked_and_not_to_who_stands_behind() -> None:
    """Else routes that begin elsewhere use up the trials, and nobody finds out that it is well."""
    world = Accounts()
    for _ in range(5):
        world.providers["a"].add(BROKEN)
        await world.asks("a1", "b1")
    assert await world.asks("a1", "b1") == ["b1"]
    world.clock.advance(5.1)
    assert await world.asks("b1", "a1") == ["b1"]
    assert await world.asks("a1", "b1") == ["a1"]


async def test_one_at_a_time_tries_who_was_broken() -> None:
    world = Accounts()
    for _ in range(5):
        world.providers["a"].add(BROKEN)
        await world.asks("a1", "b1")
    world.clock.advance(5.1)
    assert world.dispatcher._ground.health.place("scripted/a1", world.clock.monotonic_s()) == 0
    world.health.asks("scripted/a1", world.clock.monotonic_s())
    assert await world.asks("a1", "b1") == ["b1"]
