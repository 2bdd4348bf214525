"""What cannot be looked at is no answer: nothing of the log is taken for away because of it."""

import ast
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.audit.content_keys.erasure import apply_list, damaged_keys, matching_keys
from gateway.audit.content_keys.key_dates import aged_keys
from gateway.audit.content_keys.overwriting import left_over
from gateway.audit.disk import Disk
from gateway.audit.lifelessness import lock_if_here
from gateway.audit.lying_here import folder_lies_here, lies_here
from gateway.audit.proving.exported import CheckpointFiles
from gateway.audit.proving.verify import verify_receipt


ROOT = Path(__file__).resolve().parents[3]
RECEIPT = f"w0.1.20.{'0' * 64}"
ASKED: dict[str, Callable[[Path], object]] = {
    "an erasure": lambda folder: matching_keys(folder, "acme", None),
    "one that is done again": lambda folder: apply_list(folder, folder.parent, Disk()),
    "damaged keys": damaged_keys,
    "retention": lambda folder: aged_keys(folder, {}, 0),
    "a worker's lock": lambda folder: lock_if_here(folder, "w0"),
    "what an overwriting left": left_over,
    "checkpoints": lambda folder: CheckpointFiles(folder, Disk()).recent(),
    "a receipt": lambda folder: verify_receipt(folder, RECEIPT).ok,
    "a folder": folder_lies_here,
    "a file": lies_here,
}
ALONE = "gateway/audit/proving/offline.py"
"""Has only what comes with Python, and says of a pack without a file that it is not whole."""
OF_AN_ENTRY = "gateway/audit/segments.py: each.is_dir"
"""A folder's entry says as before what cannot be told."""


@pytest.fixture(autouse=True)
def _as_python_3_14_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", os.path.exists)
    monkeypatch.setattr(Path, "is_dir", os.path.isdir)
    monkeypatch.setattr(Path, "is_file", os.path.isfile)


@pytest.mark.parametrize("asked", ASKED)
def test_a_place_that_cannot_be_looked_at_is_not_one_where_nothing_is(
    asked: str, tmp_path: Path
) -> None:
    assert not ASKED[asked](tmp_path / "away")
    assert not ASKED[asked](tmp_path / "away" / "below")
    unreadable = tmp_path / ("n" * 300)

    with pytest.raises(OSError, match="File name too long"):
        ASKED[asked](unreadable)


def asks_of_paths(file: Path) -> set[str]:
    """Which questions a file asks that say the same of what is away and of what is unreadable."""
    return {
        f"{file.relative_to(ROOT)}: {ast.unparse(node.func)}"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"exists", "is_dir", "is_file"}
    }


def test_nothing_that_keeps_the_log_asks_a_path_whether_it_is_there() -> None:
    files = [
        file
        for room in ("audit", "store")
        for file in (ROOT / "gateway" / room).rglob("*.py")
        if str(file.relative_to(ROOT)) != ALONE
    ]
    assert len(files) > 100

    assert set().union(*map(asks_of_paths, files)) == {OF_AN_ENTRY}
