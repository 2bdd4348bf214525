"""A pytest plugin that divides shared test files among runs side by side, each tested once.

Whichever run is done with its own files takes the next shared one, so all runs end at about the
same time, whatever the machine is busy with. A run claims a file by creating another file, which
only one run can do.
"""

import hashlib
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--claims", type=Path, help="the folder in which shared files are claimed")
    parser.addoption("--shared", action="append", default=[], help="a folder of shared files")


def pytest_configure(config: pytest.Config) -> None:
    claims: Path | None = config.getoption("--claims")
    if claims is not None:
        folders = [config.rootpath / folder for folder in config.getoption("--shared")]
        config.pluginmanager.register(Sharing(claims, folders))


class Sharing:
    """One run's share of the files."""

    def __init__(self, claims: Path, folders: list[Path]) -> None:
        self._claims = claims
        self._folders = folders
        self._ours: dict[Path, bool] = {}
        """Shared files that this run came to, and whether it was the first."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put shared files last, the longest of them first, so that the end is short."""
        sizes = {path: path.stat().st_size for path in {item.path for item in items}}
        items.sort(
            key=lambda item: sizes[item.path] if self._is_shared(item) else 2**62, reverse=True
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Report it as done if another run does it."""
        if not self._is_shared(item) or self._is_ours(item.path):
            return None
        if nextitem is not None:
            # The test before left what it has in common with this one, which is not the next.
            item.session._setupstate.teardown_exact(nextitem)
        return True

    def _is_shared(self, item: pytest.Item) -> bool:
        return any(folder in item.path.parents for folder in self._folders)

    def _is_ours(self, path: Path) -> bool:
        if path not in self._ours:
            self._ours[path] = self._claimed(path)
        return self._ours[path]

    def _claimed(self, path: Path) -> bool:
        claim = self._claims / hashlib.sha256(str(path).encode()).hexdigest()
        try:
            claim.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
