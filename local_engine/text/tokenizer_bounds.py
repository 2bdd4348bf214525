"""Bounds what a tokenizer's rules may make of a text, before the text is given to them.

The rules run in native code that cannot be interrupted: a few rules that each double a text have no
end, and a panic in it is no `Exception`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from local_engine.model.errors import ModelRefused
from local_engine.model.json_file import decode_json


_NAME = "tokenizer.json"
_MOST_RULES = 4096
_MOST_GROWTH = 64
_MOST_REGEX_CHARS = 16 * 1024
_MOST_ADDED = 64
"""Special tokens around a text, and characters before it."""


class _Rules(msgspec.Struct):
    normalizer: Any = None
    pre_tokenizer: Any = None
    post_processor: Any = None
    decoder: Any = None


def check_rules(content: bytes) -> None:
    """Raise `ModelRefused` for rules that no model needs, and name them."""
    rules = decode_json(_NAME, content, _Rules)
    for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        growth = 1
        for number, rule in enumerate(_objects(getattr(rules, key))):
            growth *= max(1, _growth(rule))
            if number >= _MOST_RULES:
                raise ModelRefused(f"{_NAME}: {key} has more than {_MOST_RULES} rules")
            if growth > _MOST_GROWTH or _num_added(rule) > _MOST_ADDED:
                raise ModelRefused(f"{_NAME}: {key} makes too long a text of a short one")
            if len(str(rule.get("Regex", ""))) > _MOST_REGEX_CHARS:
                raise ModelRefused(f"{_NAME}: {key} has too long a regular expression")


@contextmanager
def refusing(made: Callable[[BaseException], Exception]) -> Iterator[None]:
    """Turn whatever native code raises, even a panic, into the exception that `made` gives."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, ModelRefused):
        raise
    except BaseException as error:
        raise made(error) from error


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a value, without recursion: the file comes from a stranger."""
    level = [value]
    while level:
        found = [each for each in level if isinstance(each, dict)]
        yield from found
        inner: list[Any] = [each for one in found for each in one.values()]
        inner += [each for many in level if isinstance(many, list) for each in many]
        level = [each for each in inner if isinstance(each, dict | list)]


def _growth(rule: dict[str, Any]) -> int:
    """How many characters one character may become."""
    pattern, content = rule.get("pattern"), rule.get("content")
    if rule.get("type") != "Replace" or not isinstance(content, str):
        return 1
    fixed = pattern.get("String") if isinstance(pattern, dict) else None
    # A regular expression may match one character, or the place between two.
    return -(-len(content) // max(1, len(fixed) if isinstance(fixed, str) else 1))


def _num_added(rule: dict[str, Any]) -> int:
    added = (rule.get("prepend"), rule.get("single"), rule.get("ids"))
    return max(len(each) if isinstance(each, str | list) else 0 for each in added)
