"""The mutation tool: what it changes, which tests it runs, and how it reports the result."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mutants.changes import changes
from tests.mutants.trying import ask, copied, nearest


ROOT = Path(__file__).resolve().parent.parent
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


ROOM = """import functools


def kept(function):
    @functools.wraps(function)
    def inner(*given):
        return function(*given) + 1
    return inner


@kept
def small(n, most=9):
    return n < most


class Row:
    width = 3

    def is_wide(self, of=4):
        return any(each > of for each in [self.width])


is_odd = lambda n: n % 2 == 1


def unasked():
    return 1


def endless():
    return endless()
"""
ASKS = """from room import Row, endless, is_odd, small


def test_that_comes_first_and_recurs_without_end():
    try:
        endless()
    except RecursionError:
        pass


def test():
    assert small(8) and small(10) == 1


def test_row():
    assert not Row().is_wide()


def test_odd():
    assert is_odd(3) and not is_odd(4)


def test_that_fails_anyhow():
    assert small(8) == 1
"""
BECAME = [
    ("n < most", "n > most", "killed"),
    ("n < most", "n < most < 10", "SURVIVED"),
    ("return n < most", "n = n\n    return n < most", "SURVIVED"),
    ("return n < most", "small(n)", "killed"),
    ("+ 1", "+ 2", "killed"),
    ("> of", "< of", "killed"),
    ("> of", ">= of", "SURVIVED"),
    ("== 1\n", "== 0\n", "killed"),
    ("== 1\n", "== 1 > 0\n", "SURVIVED"),
    ("return 1", "return 2", "not reached"),
    ("most=9", "most=8", "left"),
    ("width = 3", "width = 5", "left"),
    ("of=4", "of=5", "left"),
    ("return inner", "return function", "not reached"),
]
"""Code in the room, its replacement, and the result. The last one is called while the room is read,
which was before any fork."""
RUN = """import json
import sys
from pathlib import Path

from tests.mutants.changes import Change
from tests.mutants.forking import ask_in_forks

became = []
texts, limit_s = json.loads(sys.stdin.read())
mutants = [("room.py", Change(line, "", "", text)) for line, text in enumerate(texts)]
tell = lambda mutant, what: became.append((mutant[1].line, what))
left = ask_in_forks(Path.cwd(), mutants, ["test_room.py"], limit_s, tell)
print(json.dumps(became + [(change.line, "left") for _, change in left]))
"""


def asking_in_forks(folder: Path, texts: list[str], limit_s: float) -> subprocess.Popen[str]:
    (folder / "room.py").write_text(ROOM, encoding="utf-8")
    (folder / "test_room.py").write_text(ASKS, encoding="utf-8")
    (folder / "asks.py").write_text(RUN, encoding="utf-8")
    (folder / "asked.json").write_text(json.dumps([texts, limit_s]), encoding="utf-8")
    with (folder / "asked.json").open() as asked:
        return subprocess.Popen(
            [sys.executable, "-m", "asks"],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            text=True,
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def asked_in_forks(folder: Path, texts: list[str], limit_s: float) -> list[str]:
    asking = asking_in_forks(folder, texts, limit_s)
    told, failed = asking.communicate()
    assert asking.returncode == 0, failed
    return [became for _, became in sorted(json.loads(told))]


def test_a_fork_is_asked_of_a_change_in_a_function_and_of_no_other(tmp_path: Path) -> None:
    assert all(ROOM.count(old) == 1 for old, _, _ in BECAME)
    texts = [ROOM.replace(old, new) for old, new, _ in BECAME]
    assert asked_in_forks(tmp_path, texts, 120) == [became for _, _, became in BECAME]


def test_a_fork_that_comes_to_no_end_is_ended(tmp_path: Path) -> None:
    texts = [ROOM.replace("return n < most", "while n: pass")]
    assert asked_in_forks(tmp_path, texts, 1) == ["out of time"]


def test_whoever_ends_it_ends_the_fork_that_it_waits_for(tmp_path: Path) -> None:
    written = "import os, time; open('fork', 'x').write(str(os.getpid()))"
    text = ROOM.replace("return n < most", f"{written}\n    while n: time.sleep(0.01)")
    asking = asking_in_forks(tmp_path, [text], 600)
    while not (tmp_path / "fork").exists() or not (fork := (tmp_path / "fork").read_text()):
        assert asking.poll() is None
        time.sleep(0.01)
    watched = os.pidfd_open(int(fork))
    asking.terminate()
    has_ended, _, _ = select.select([watched], [], [], 20)
    os.close(watched)
    if not has_ended:
        os.kill(int(fork), signal.SIGKILL)
    asking.communicate()
    assert has_ended
    assert asking.returncode == -signal.SIGTERM


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
