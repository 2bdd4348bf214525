"""The suite's own runner: a part that hangs or dies is a failure, and is not run again."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import side_by_side


STUCK = """
import threading
def test_it_never_ends(): threading.Event().wait()
"""
STUCK_AT_ITS_END = """
import threading
import pytest
@pytest.fixture
def kept():
    yield
    threading.Event().wait()
def test_it_fails_and_never_ends(kept): assert False
"""
NEVER_ENDS_IN_A_LOOP = """
import asyncio
import pytest
@pytest.fixture
def anyio_backend(): return "asyncio"
@pytest.fixture
async def kept():
    yield
@pytest.mark.anyio
@pytest.mark.timeout(1)
async def test_it_never_ends(kept):
    while True:
        await asyncio.sleep(0.01)
"""
NEVER_BEGINS = NEVER_ENDS_IN_A_LOOP.replace(
    "async def kept():",
    """async def first():
    yield
@pytest.fixture
async def kept(first):
    await asyncio.sleep(3600)""",
)
NEVER_CLOSES = NEVER_ENDS_IN_A_LOOP.replace(
    "    while True:\n        await asyncio.sleep(0.01)",
    """    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.Event().wait()""",
)
FAILS = "def test_it_fails(): assert False\n"
LEAN = ("-p", "no:faker", "-p", "no:hypothesispytest")
"""Leaving out plugins that these small tests do not need saves a third of each start."""
PASSES = "def test_it_passes(): pass\n"
ONCE = """
from pathlib import Path
def test_it_fails_once():
    seen = Path(__file__).with_name("seen")
    if not seen.exists():
        seen.touch()
        assert False
"""
WAITS_FOR = """
import time
from pathlib import Path
def test_it_ends_when_so_many_have_begun():
    shared = Path(__file__).parent.parent
    (shared / Path(__file__).stem).touch(exist_ok=False)
    while len(list(shared.glob("test_*"))) < {}:
        time.sleep(0.01)
"""


def status_of(
    monkeypatch: pytest.MonkeyPatch, folder: Path, beside: str, last: str, *shared: str
) -> int:
    """The status of a run of two small parts, with files that both share."""
    for name, text in (("beside", beside), ("last", last)):
        (folder / name).mkdir()
        (folder / name / f"test_{name}.py").write_text(text, encoding="utf-8")
    for number, text in enumerate(shared):  # two in each folder
        place = folder / "last" / "shared" / str(number // 2) / f"test_shared_{number}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    places = (str(folder / "last" / "shared"),) if shared else ()
    monkeypatch.setattr(side_by_side, "SHARED", places)
    monkeypatch.setattr(side_by_side, "BESIDE", ((str(folder / "beside"),),))
    monkeypatch.setattr(side_by_side, "REST", (str(folder / "last"),))
    monkeypatch.chdir(folder)
    return side_by_side.main([*LEAN])


def test_what_passes_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert status_of(monkeypatch, tmp_path, PASSES, PASSES) == 0


def test_what_fails_twice_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert status_of(monkeypatch, tmp_path, PASSES, FAILS) == side_by_side.FAILED


def test_what_failed_once_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert status_of(monkeypatch, tmp_path, ONCE, PASSES) == 0


def test_what_is_shared_is_tested_once_by_whichever_part_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of two parts must take one, the first to end takes the third; the longest first."""
    in_order = [WAITS_FOR.format(count) + "#" * (9 - at) for at, count in enumerate((2, 3, 0))]

    assert status_of(monkeypatch, tmp_path, PASSES, PASSES, *in_order) == 0
    begun = sorted(each.name for each in (tmp_path / "last" / "shared").glob("test_*"))
    assert begun == ["test_shared_0", "test_shared_1", "test_shared_2"]


@pytest.mark.parametrize("shared", [FAILS, ONCE])
def test_what_is_shared_is_asked_again_as_all_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared: str
) -> None:
    status = status_of(monkeypatch, tmp_path, PASSES, PASSES, shared)
    assert status == (side_by_side.FAILED if shared == FAILS else 0)


@pytest.mark.parametrize("endless", [NEVER_ENDS_IN_A_LOOP, NEVER_BEGINS, NEVER_CLOSES])
def test_what_never_ends_in_an_event_loop_fails_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, endless: str
) -> None:
    status = status_of(monkeypatch, tmp_path, endless, PASSES)
    assert status == side_by_side.FAILED


@pytest.mark.parametrize("other", [PASSES, ONCE])
@pytest.mark.parametrize("stuck_part", [STUCK, STUCK_AT_ITS_END])
def test_a_part_that_is_stuck_fails_whatever_the_others_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stuck_part: str, other: str
) -> None:
    stuck = tuple(each.replace("420", "1") for each in side_by_side.STUCK)
    monkeypatch.setattr(side_by_side, "STUCK", stuck)
    assert status_of(monkeypatch, tmp_path, stuck_part, other) == side_by_side.BROKEN_OFF


def test_parts_share_no_folder_that_one_of_them_removes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two parts that ended at once removed the same old folder, and the slower one broke off."""
    common = tmp_path / "common"
    common.mkdir()
    monkeypatch.setitem(side_by_side.SETTING, "PYTEST_DEBUG_TEMPROOT", str(common))
    keeps = "def test_it_keeps_a_file(tmp_path): (tmp_path / 'kept').touch()\n"

    assert status_of(monkeypatch, tmp_path, keeps, keeps) == 0
    assert not list(common.iterdir())


def test_the_last_lines_say_how_each_part_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    breaks_off = "import atexit, os\ndef test_it_passes(): atexit.register(os._exit, 1)\n"

    status = status_of(monkeypatch, tmp_path, PASSES, breaks_off)

    beside, last = (str(tmp_path / name) for name in ("beside", "last"))
    said = capfdbinary.readouterr().out.decode().splitlines()[-3:]
    assert status == side_by_side.BROKEN_OFF
    assert said[:2] == [f"status 0: {beside}", f"status {side_by_side.BROKEN_OFF}: {last}"]
    assert "no test is named" in said[2]


def test_a_failure_is_named_in_the_last_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    many = "".join(f"def test_{number}(): assert False\n" for number in range(4))

    assert status_of(monkeypatch, tmp_path, many, PASSES) == side_by_side.FAILED

    said = capfdbinary.readouterr().out.decode().splitlines()[-5:]
    assert said[0] == f"status {side_by_side.FAILED}: {tmp_path / 'beside'}"
    assert [line[-6:] for line in said[1:]] == [f"test_{number}" for number in range(4)]


def test_a_part_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "PART_S", 0.0)
    sleeping = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert side_by_side.ended(sleeping, time.monotonic()) < 0
