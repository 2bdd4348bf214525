"""SQLAlchemy's asynchronous engine without its ORM, which nothing here uses (0053).

The package `sqlalchemy.ext.asyncio` imports its sessions, and those import the whole ORM: 44
modules that every process would carry. Here they are imported only when somebody asks for a
session.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final


PACKAGE: Final = "sqlalchemy.ext.asyncio"
_SESSIONS: Final = (f"{PACKAGE}.scoping", f"{PACKAGE}.session")


def leave_out_orm() -> None:
    """Do so from now on; nothing happens where the package has been imported already."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the one package, and has it loaded with what it names of sessions left for later."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != PACKAGE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Runs the package's own code beside modules that stand for those of sessions."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        sys.modules.update({name: _Later(name) for name in _SESSIONS})
        try:
            self._own.exec_module(module)
        finally:
            for name in _SESSIONS:
                del sys.modules[name]
        later = {name: each for name, each in vars(module).items() if isinstance(each, _Name)}
        for name in later:
            delattr(module, name)

        def find(name: str) -> Any:
            if name not in later:
                raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
            return getattr(import_module(later[name].module), name)

        vars(module)["__getattr__"] = find


class _Name:
    """What stands for a name of a module that is not imported yet."""

    def __init__(self, module: str) -> None:
        self.module = module


class _Later(ModuleType):
    """A module of whose names each can be imported, and nothing done with."""

    def __getattr__(self, name: str) -> _Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(self.__name__)
