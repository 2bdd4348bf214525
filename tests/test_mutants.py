"""The tool that makes mutants: what it changes, whom it asks, and what it says of the answer."""

from pathlib import Path

import pytest

from tests.mutants.changes import changes
from tests.mutants.trying import ask, copied, nearest


SOURCE = '''"""A room."""


def spent(costs: list[int], *, limit: int = 7) -> bool:
    """Say whether `costs` are too much."""
    if not costs:
        return False  # "é"
    try:
        left = limit - max(2, *costs)
        left -= sum(each for each in costs if each != 1)
    except (TypeError, KeyError):
        raise ValueError(f"{costs + costs} is no cost") from None
    log.info("ä", left, costs)
    return left < 0 or note(left, costs, by=True)
'''
CHANGES = {
    (4, "7", "8"),
    (4, "7", "6"),
    (6, "not costs", "(costs)"),
    (6, "not costs", "False"),
    (7, "False", "True"),
    (9, "limit - max(2, *costs)", "(limit + max(2, *costs))"),
    (9, "max", "min"),
    (9, "2", "3"),
    (9, "2", "1"),
    (10, "left -= sum(each for each in costs if each != 1)", "pass"),
    (10, "each != 1", "(each == 1)"),
    (10, "each != 1", "True"),
    (10, "1", "2"),
    (10, "1", "0"),
    (11, "(TypeError, KeyError)", "Exception"),
    (11, "(TypeError, KeyError)", "((KeyError,))"),
    (11, "(TypeError, KeyError)", "((TypeError,))"),
    (12, 'raise ValueError(f"{costs + costs} is no cost") from None', "pass"),
    (13, 'log.info("ä", left, costs)', "(log.info(left, 'ä', costs))"),
    (14, "left < 0 or note(left, costs, by=True)", "(left < 0)"),
    (14, "left < 0 or note(left, costs, by=True)", "(note(left, costs, by=True))"),
    (14, "left < 0 or note(left, costs, by=True)", "(left < 0 and note(left, costs, by=True))"),
    (14, "left < 0", "(left <= 0)"),
    (14, "left < 0", "(left >= 0)"),
    (14, "0", "1"),
    (14, "note(left, costs, by=True)", "(note(costs, left, by=True))"),
    (14, "note(left, costs, by=True)", "(note(left, costs))"),
    (14, "True", "False"),
}


def test_a_module_is_changed_in_one_place_each_time_and_in_none_that_only_speaks() -> None:
    made = changes(SOURCE)
    for each in made:
        places = [at for at in range(len(SOURCE)) if SOURCE.startswith(each.was, at)]
        told = [SOURCE[:at] + each.becomes + SOURCE[at + len(each.was) :] for at in places]
        assert each.text in told
    assert {(each.line, each.was, each.becomes) for each in made} == CHANGES


@pytest.mark.parametrize(
    ("old", "new", "became"),
    [
        ("< 9", "< 8", "killed"),
        ("< 9", "<= 9", "SURVIVED"),
        ("def small", "def tiny", "killed"),
        ("return", "while n: pass\n    return", "out of time"),
    ],
)
def test_a_mutant_is_killed_where_a_test_fails_or_cannot_be_read(
    old: str, new: str, became: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To load what this project's tests need takes longer than to run this one, which needs none.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "room.py").write_text(
        "def small(n):\n    return n < 9\n".replace(old, new), encoding="utf-8"
    )
    (tmp_path / "test_room.py").write_text(
        "from room import small\n\n\ndef test():\n    assert small(8) and not small(10)\n",
        encoding="utf-8",
    )
    assert ask(tmp_path, ["test_room.py"], 1 if became == "out of time" else 120) == became


def test_a_copy_holds_the_tests_that_import_a_module_or_lie_in_its_room(tmp_path: Path) -> None:
    kept = ("gateway/money/cost.py", "tests/gateway/money/test_prices.py")
    for name in (
        *kept,
        "tests/gateway/money/test_cost.py",
        "tests/test_far.py",
        "tests/test_no.py",
    ):
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_text("from gateway.money import cost\n", encoding="utf-8")
    (tmp_path / "here/tests/test_far.py").write_text(
        "import gateway.money.cost\n", encoding="utf-8"
    )
    (tmp_path / "here/node_modules").mkdir()
    tree = copied(tmp_path / "here", tmp_path / "there")
    assert not (tree / "node_modules").exists()
    assert nearest(kept[0], tree) == [
        "tests/gateway/money/test_cost.py",
        "tests/gateway/money/test_prices.py",
        "tests/test_far.py",
    ]
