"""What every program asks about, and how it is run; needs nothing but Python.

A program is started as `python -m tests.conformance.frameworks.programs.NAME` by the Python of an
environment with its framework. It asks shape by shape, each at an address of its own, so that
whoever listens knows which shape a request belongs to; what it prints is which versions asked.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import version


URL, KEY = os.environ.get("URL", ""), os.environ.get("KEY", "")
GPT, CLAUDE = os.environ.get("GPT", ""), os.environ.get("CLAUDE", "")
OLD_CLAUDE = os.environ.get("OLD_CLAUDE", "")
EMBEDDER = os.environ.get("EMBEDDER", "")
IS_GATEWAY = "IS_GATEWAY" in os.environ
"""A gateway has one address for all shapes."""
QUESTION = "How old is the bridge?"
SECOND = "And who built it?"
SYSTEM = "Be brief."
LONG_SYSTEM = "Bridges are what this is about. " * 40
"""As long as what a vendor caches has to be."""
AGE_OF = "Say how old a bridge is."
FACT = "What is known of a bridge."
JSON_QUESTION = "How old is the bridge? Answer in JSON with age and name."
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="

Ask = Callable[[str], object]


def age_of(name: str) -> str:
    """Say how old a bridge is."""
    return f"{name}: 120"


def run(packages: tuple[str, ...], shapes: Mapping[str, Ask]) -> None:
    """Ask everything at the address of its shape; ends with 1 where one raised.

    A shape whose name begins with `refused` may raise: its answer is an error.
    """
    chosen = sys.argv[1:]
    failed = 0
    for name, ask in shapes.items():
        if chosen and name not in chosen:
            continue
        try:
            said = ask(URL if IS_GATEWAY else f"{URL}/{name}")
        except Exception:  # noqa: BLE001 - a framework raises what it likes, and the others go on
            failed += not name.startswith("refused")
            sys.stderr.write(f"{name}\n{traceback.format_exc()}\n")
        else:
            sys.stderr.write(f"{name}: {said!r:.200}\n")
    versions = {package: version(package) for package in packages}
    sys.stdout.write(json.dumps(versions) + "\n")
    sys.stdout.flush()
    os._exit(1 if failed else 0)
