"""A request sees one configuration as a whole, and none that is too old to be trusted."""

import pytest
from msgspec import structs

from gateway.errors import NotReady
from gateway.identity import KeyTable
from gateway.rollout.versions import INSTALLATION, Level, PolicySet
from gateway.routing.board import TargetBoard
from gateway.snapshot import STALE_AFTER_S, SnapshotKeeper
from tests.gateway.providers.samples import make_target
from tests.policies.worlds import document


ONE = make_target("one")
KEYS = KeyTable(1, {})


class Age:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def keeper(age: Age | None = None) -> SnapshotKeeper:
    return SnapshotKeeper(PolicySet(document()), TargetBoard({"one": ONE}, {}), age or Age())


def test_before_the_first_keys_there_is_no_service() -> None:
    unready = keeper()
    unready.publish_board(TargetBoard({}, {}))

    assert unready.revision == -1
    with pytest.raises(NotReady, match="no configuration"):
        unready.current()


def test_a_configuration_nobody_confirmed_for_a_minute_is_refused_and_comes_back() -> None:
    age = Age()
    kept = keeper(age)
    kept.publish(KEYS, {})

    age.seconds = STALE_AFTER_S
    assert kept.current().keys is KEYS
    age.seconds = STALE_AFTER_S + 0.001
    with pytest.raises(NotReady, match="stale") as refused:
        kept.current()
    age.seconds = 0.0

    assert refused.value.retry_after_s == 5.0
    assert kept.current().keys is KEYS


def test_what_a_request_holds_does_not_change_under_it() -> None:
    kept = keeper()
    kept.publish(KEYS, {})
    held = kept.current()

    kept.publish(KeyTable(2, {}), {})
    kept.publish_board(TargetBoard({"one": ONE}, {"one": "it is down"}))

    assert held.keys is KEYS
    assert not held.board.unavailable
    assert kept.current().keys.revision == kept.revision == 2
    assert kept.current().board.unavailable == {"one": "it is down"}


def test_every_change_has_a_name_of_its_own_and_the_same_state_the_same() -> None:
    kept = keeper()
    names = []
    boards = (
        TargetBoard({"one": ONE}, {}),
        TargetBoard({"one": ONE}, {"one": "it is down"}),
        TargetBoard({"one": ONE, "two": structs.replace(ONE, name="two")}, {}),
    )
    for revision in (1, 2):
        kept.publish(KeyTable(revision, {}), {})
        for board in boards:
            kept.publish_board(board)
            names.append(kept.current().digest)
    kept.publish(KeyTable(1, {}), {})
    kept.publish_board(TargetBoard({"one": ONE}, {}))

    assert len(set(names)) == len(names)
    assert kept.current().digest == names[0]


def test_a_thousand_publishes_never_show_half_of_a_change() -> None:
    """Keys and policies of one publish belong together: revision n comes with policy n."""
    kept = keeper()
    policies = [document({"name": f"rule-{n}", "no_cache": True}) for n in range(1_000)]
    seen = set()
    for revision, policy in enumerate(policies):
        kept.publish(KeyTable(revision, {}), {INSTALLATION: Level(live=policy)})
        held = kept.current()
        assert held.keys.revision == revision
        assert held.policies.base is policy
        seen.add(held.digest)
    assert len(seen) == len(policies)


def test_another_policy_has_another_name_and_sees_the_same_headers() -> None:
    visible = {b"x-team": "team"}
    policies = PolicySet(document(), visible_headers=visible)
    kept = SnapshotKeeper(policies, TargetBoard({"one": ONE}, {}), Age())
    names = set()

    def level(name: str) -> Level:
        rule = {"name": name, "when": "data_class >= 'S2'", "no_cache": True}
        return Level(live=document(rule))

    for name in ("before", "after"):
        kept.publish(KEYS, {INSTALLATION: level(name)})
        names.add(kept.current().digest)
        assert kept.current().policies.visible_headers == visible
    held = kept.current().policies
    kept.publish(KEYS, {INSTALLATION: level("after")})

    assert len(names) == 2
    assert kept.current().policies is held, "what it worked out for projects is kept"
