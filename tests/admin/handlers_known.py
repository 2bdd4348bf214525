"""Builds listeners sooner than Litestar does, beside a version whose private parts are known."""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version

from litestar import Litestar


def built(build: Callable[[], Litestar], of: str = "") -> Litestar:
    """What `build` gives; with another Litestar (`of` stands for the installed one) as it gives it.

    Tests then take longer, and mean the same.
    """
    if not (of or version("litestar")).startswith("2.25."):
        return build()
    made: Litestar = import_module("tests.admin.handlers_of_litestar_2_25").built(build)
    return made
