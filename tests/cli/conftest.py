"""An operator with an empty folder, and one whose folder is ready for a first start."""

import shutil
from pathlib import Path

import pytest

from tests.cli.operator import Operator


@pytest.fixture
def newcomer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Operator:
    """Nothing is there yet."""
    return Operator(tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="session")
def ready_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `gatewright init` leaves, made once."""
    return tmp_path_factory.mktemp("ready")


@pytest.fixture
def operator(newcomer: Operator, ready_folder: Path) -> Operator:
    if not ready_folder.joinpath("gatewright.toml").exists():
        assert newcomer.types("init", "--folder", ready_folder).status == 0
    shutil.copytree(ready_folder, newcomer.folder, dirs_exist_ok=True)
    return newcomer
