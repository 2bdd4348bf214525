"""The sandbox that chat templates run in: nothing to reach out with, and an end to what they do.

Jinja bounds neither time nor size. Here every turn of a loop, call, filter and joined text looks
whether the rendering has had its time, and whatever makes a long text of short ones is measured
before it does.
"""

import functools
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer


MAX_TEXT_CHARS = 32 * 1024 * 1024
"""Of any text or list that a template makes on its way."""
_MOST_ENTRIES = 1024 * 1024
_LARGEST_POWER = 64
_LARGEST_FACTOR = 1 << 64
_LOOK_EVERY_STEPS = 16
# Of text and whole numbers these make more text than they are given.
_GROWING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "join"})
_GROWING_FILTERS = frozenset({"center", "indent", "join", "batch", "slice", "wordwrap", "tojson"})
# These write out what they are given, with all that is in it.
_WRITING_FILTERS = frozenset({"join", "string", "tojson", "pprint", "urlencode", "xmlattr"})
# A width that is long, or one that is given as a value.
_WIDE = re.compile(r"[0-9]{6}|\*|\{[^{}]*\{")


class TooDear(TemplateError):
    """The template takes too long, or makes too long a text."""


class RaisedByTemplate(TemplateError):
    """The template called `raise_exception`."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates; `start` begins each rendering of one."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], autoescape=False
        )
        self.globals = {
            "raise_exception": _raise_exception,
            "range": self.globals["range"],
            "namespace": self.globals["namespace"],
        }
        self.filters["tojson"] = _to_json
        self.filters = {name: self._watched(name, each) for name, each in self.filters.items()}
        self.filters |= {"_turns": self._turns, "_joined": self._joined}
        self.concat = self._joined  # type: ignore[method-assign]
        self.finalize = _writable
        self._now = threading.local()

    def start(self, max_s: float) -> None:
        """From now on this thread's rendering may work so long."""
        self._now.ends_s = time.thread_time() + max_s
        self._now.num_steps = 0

    def step(self) -> None:
        """Raises `TooDear` if this rendering has had its time."""
        now = self._now
        now.num_steps = steps = getattr(now, "num_steps", 0) + 1
        # While it is compiled a template's constants are worked out, and nobody has started.
        if steps % _LOOK_EVERY_STEPS == 0 and time.thread_time() > getattr(now, "ends_s", 0.0):
            raise TooDear("it takes too long")

    def call(self, context: Context, called: Any, *args: Any, **kwargs: Any) -> Any:
        self.step()
        method = getattr(called, "__wrapped__", called)
        text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(text, str):
            if name == "join":
                args = tuple(map(_at_hand, args))
            _check_method(name, text, [*args, *kwargs.values()])
        return super().call(context, called, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and type(left) is str and type(right) is str:
            _check(len(left) + len(right))
            return left + right
        self.step()
        _check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        return super()._generate(_Watching().visit(source), *args, **kwargs)

    def _watched(self, name: str, called: Callable[..., Any]) -> Callable[..., Any]:
        """The filter, which is no longer one that may take any time or make any length."""
        # Some are given the context, or what follows from it, first.
        first = int(hasattr(called, "jinja_pass_arg"))

        @functools.wraps(called)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.step()
            if name in _WRITING_FILTERS:
                args = (*args[:first], _writable(_at_hand(args[first])), *args[first + 1 :])
            given = [*args[first:], *kwargs.values()]
            if name in _GROWING_FILTERS:
                _check(_size(given[0]) * max(1, sum(map(_size, given[1:]))))
            elif name in {"replace", "format"}:
                _check_method(name, str(given[0]), given[1:])
            return called(*args, **kwargs)

        return watched

    def _turns(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self.step()
            yield value

    def _joined(self, parts: Iterable[Any]) -> str:
        self.step()
        texts = [str(_writable(part)) for part in parts]
        _check(sum(map(len, texts)))
        return "".join(texts)


class _Watching(NodeTransformer):
    """Puts our own filters where a template takes turns and joins texts."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_turns")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_joined")


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    assert isinstance(node, nodes.Expr), "what is gone through or joined is a value"
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _check(size: int) -> None:
    if size > MAX_TEXT_CHARS:
        raise TooDear("it makes too long a text")


def _check_method(name: str, text: str, args: list[Any]) -> None:
    if name == "replace" and len(args) > 1 and all(isinstance(each, str) for each in args[:2]):
        _check(len(text) + text.count(args[0]) * len(args[1]))
    elif name in {"format", "format_map"}:
        _check_format(text, args)
    elif name in _GROWING_METHODS:
        _check(max(1, len(text)) * sum(map(_size, args)))


def _check_format(text: str, args: list[Any]) -> None:
    if _WIDE.search(text):
        raise TooDear("it makes too long a text")
    longest = max((_size(each) for each in args if not isinstance(each, int)), default=1)
    _check(len(text) + (text.count("{") + text.count("%")) * longest)


def _check_operator(operator: str, left: Any, right: Any) -> None:
    numbers = [each for each in (left, right) if isinstance(each, int)]
    if operator == "%" and isinstance(left, str):
        _check_format(left, list(right) if isinstance(right, tuple) else [right])
    elif operator == "**" and any(abs(each) > _LARGEST_POWER for each in numbers[-1:]):
        raise TooDear("it makes too large a number")
    elif operator == "*" and len(numbers) == 1:
        _check(_size(left) * _size(right))
    elif any(abs(each) > _LARGEST_FACTOR for each in numbers):
        raise TooDear("it makes too large a number")
    elif operator == "+" and not numbers:
        _check(_size(left) + _size(right))


def _size(value: Any) -> int:
    """Characters of a text or of all texts in a list, and how wide a number might make it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, int):
        return abs(value)
    if isinstance(value, list | tuple | dict):
        if len(value) > _MOST_ENTRIES:
            return MAX_TEXT_CHARS + 1
        inner = value.values() if isinstance(value, dict) else value
        return len(value) + sum(len(each) for each in inner if isinstance(each, str))
    return 1


def _at_hand(values: Any) -> Any:
    """A list instead of what can be gone through once only."""
    return list(values) if isinstance(values, Iterator) else values


def _writable(value: Any) -> Any:
    """The value itself, if it can be written out; raises `TooDear`.

    A list that holds another one twice, which holds a third twice, and so on, is small and has no
    end when it is written.
    """
    if type(value) is not str and isinstance(value, list | tuple | dict | Namespace):
        _check(_written_size(value, {}))
    return value


def _written_size(value: Any, known: dict[int, int]) -> int:
    if isinstance(value, Namespace):
        return MAX_TEXT_CHARS + 1
    if not isinstance(value, list | tuple | dict):
        return len(value) if isinstance(value, str) else 1
    if id(value) not in known:
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = len(value) + sum(_written_size(each, known) for each in inner)
    return known[id(value)]


def _raise_exception(message: str) -> NoReturn:
    raise RaisedByTemplate(message)


def _to_json(value: object, indent: int | None = None) -> str:
    """Like `tojson`, without the escapes that jinja2 makes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
