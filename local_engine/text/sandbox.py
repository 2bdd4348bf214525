"""The sandbox that chat templates run in: no access to anything outside, and bounded work.

Jinja bounds neither time nor size. Here every turn of a loop, call, filter and concatenation checks
whether the rendering has used up its time, and any operation that makes a long text of short ones
is measured before it runs.
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

from local_engine.text.sizes import Sizes, TooDear, UnwrittenNamespace, check_size


_LARGEST_POWER = 64
_LARGEST_FACTOR = 1 << 64
_LOOK_EVERY_STEPS = 16
# These methods of text and integers make a longer text than they are given.
_GROWING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "join"})
_GROWING_FILTERS = frozenset({"center", "indent", "join", "batch", "slice", "tojson"})
# These neither write, compare nor nest what they are given.
_LOOKING_FILTERS = frozenset(
    {"length", "count", "first", "last", "list", "map", "select", "reject", "selectattr"}
    | {"rejectattr", "default", "d", "attr", "reverse", "items", "_turns"}
)
_LOOKING_TESTS = frozenset(
    {"defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number"}
    | {"string", "mapping", "iterable", "sequence", "callable", "sameas", "filter", "test"}
)
# Python goes through each word or character for these.
_SLOW_FILTERS = frozenset({"title", "wordcount", "urlencode"})
_SLOW_TIMES = 8
# Not needed by any prompt and without a bound: for HTML pages, or random.
_MISSING_FILTERS = (
    *("forceescape", "filesizeformat", "pprint", "random", "striptags", "urlize"),
    *("wordwrap", "xmlattr"),
)
# From text to bytes, by tables, and from numbers to any number of bytes.
_MISSING_METHODS = frozenset({"encode", "translate", "maketrans", "to_bytes", "from_bytes"})
# A long width, or one that is given as a value.
_WIDE = re.compile(r"[0-9]{6}|\*|\{[^{}]*\{")


class RaisedByTemplate(TemplateError):
    """The template called `raise_exception`."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates; `start` begins each rendering."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], autoescape=False
        )
        self.globals = {
            "raise_exception": _raise_exception,
            "range": self.globals["range"],
            "namespace": UnwrittenNamespace,
        }
        self.filters["tojson"] = _to_json
        for name in _MISSING_FILTERS:
            del self.filters[name]
        self.filters = {name: self._watched(name, each) for name, each in self.filters.items()}
        self.filters |= {"_turns": self._turns, "_joined": self._joined, "_built": self._bounded}
        tests: dict[str, Any] = {**self.tests}
        for name in tests.keys() - _LOOKING_TESTS:
            tests[name] = self._watched_test(tests[name])
        self.tests = tests
        self.concat = self._joined  # type: ignore[method-assign]
        self.finalize = self._bounded
        self._now = threading.local()

    def start(self, max_s: float) -> None:
        """Allow this thread's rendering this much time from now on."""
        self._now.ends_s = time.thread_time() + max_s
        self._now.num_steps = 0
        self._now.sizes = Sizes()

    @property
    def _sizes(self) -> Sizes:
        # While a template is compiled, no rendering has started.
        found: Sizes | None = getattr(self._now, "sizes", None)
        return Sizes() if found is None else found

    def step(self) -> None:
        """Raise `TooDear` if this rendering has used up its time."""
        now = self._now
        now.num_steps = steps = getattr(now, "num_steps", 0) + 1
        # While a template is compiled its constants are computed, and no rendering has started.
        if steps % _LOOK_EVERY_STEPS == 0 and time.thread_time() > getattr(now, "ends_s", 0.0):
            raise TooDear("it takes too long")

    def call(self, context: Context, called: Any, *args: Any, **kwargs: Any) -> Any:
        self.step()
        method = getattr(called, "__wrapped__", called)
        text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(text, str):
            if name == "join":
                args = tuple(map(_at_hand, args))
            given = [*args, *kwargs.values()]
            check_size(_growth_of_method(name, text, given, self._sizes))
        for each in (*args, *kwargs.values()):
            self._bounded(each)
        if isinstance(text, list | tuple):
            self._bounded(text)  # Its `index` and `count` compare all that is in it.
        return super().call(context, called, *args, **kwargs)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if type(argument) is not str:
            self._bounded(argument)
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _MISSING_METHODS and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and type(left) is str and type(right) is str:
            check_size(len(left) + len(right))
            return left + right
        self.step()
        _check_operator(operator, left, right, self._sizes)
        made = super().call_binop(context, operator, left, right)
        return self._sizes.joined(left, right, made) if operator == "+" else made

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        return super()._generate(_Watching().visit(source), *args, **kwargs)

    def _watched(self, name: str, called: Callable[..., Any]) -> Callable[..., Any]:
        """The filter, with its time and the length of its result bounded."""
        # Some take the context, or something derived from it, first.
        first = int(hasattr(called, "jinja_pass_arg"))

        @functools.wraps(called)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.step()
            if name in _LOOKING_FILTERS:
                return called(*args, **kwargs)
            args = (*args[:first], *map(_at_hand, args[first:]))
            if name == "replace":
                kwargs = {key: kwargs[key] for key in ("old", "new", "count") if key in kwargs}
            sizes, given = self._sizes, [*args[first:], *kwargs.values()]
            for each in given:
                self._bounded(each)
            if name in _GROWING_FILTERS:
                more = sum(_width(each, sizes) for each in given[1:])
                check_size(max(1, sizes.size(given[0])) * max(1, more))
            elif name in {"replace", "format"}:
                check_size(_growth_of_method(name, str(given[0]), given[1:], sizes))
            elif name in _SLOW_FILTERS:
                check_size(_SLOW_TIMES * sizes.size(given[0]))
            elif name == "sum" and any(isinstance(each, list | tuple) for each in given[1:]):
                raise TooDear("it takes too long to join lists one by one")
            return called(*args, **kwargs)

        return watched

    def _watched_test(self, called: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(called)
        def watched(*args: Any, **kwargs: Any) -> Any:
            for each in (*args, *kwargs.values()):
                self._bounded(each)
            return called(*args, **kwargs)

        return watched

    def _bounded(self, value: Any) -> Any:
        """The value itself; raises `TooDear` if going through all of it would never end."""
        if type(value) is not str:
            check_size(self._sizes.size(value))
            if isinstance(value, Namespace):
                repr(value)
        return value

    def _turns(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self.step()
            yield value

    def _joined(self, parts: Iterable[Any]) -> str:
        self.step()
        texts = [str(self._bounded(part)) for part in parts]
        check_size(sum(map(len, texts)))
        return "".join(texts)


class _Watching(NodeTransformer):
    """Inserts our own filters where a template loops, joins texts, or nests lists."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_turns")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_joined")

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802 - jinja2's name
        return self._built(node, node.items)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802 - jinja2's name
        # A tuple may also be the target of an assignment.
        return node if node.ctx != "load" else self._built(node, node.items)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:  # noqa: N802 - jinja2's name
        return self._built(node, [part for pair in node.items for part in (pair.key, pair.value)])

    def _built(self, node: nodes.Expr, parts: list[nodes.Expr]) -> nodes.Expr:
        if all(isinstance(part, nodes.Const) for part in parts):
            return node
        self.generic_visit(node)
        return _filtered(node, "_built")


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    assert isinstance(node, nodes.Expr), "what is gone through or joined is a value"
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _growth_of_method(name: str, text: str, args: list[Any], sizes: Sizes) -> int:
    """The largest length of a text that a method of `text` makes; 0 if it makes none longer."""
    if name == "replace" and len(args) > 1 and all(isinstance(each, str) for each in args[:2]):
        return len(text) + text.count(args[0]) * len(args[1])
    if name in {"format", "format_map"}:
        return _growth_of_format(text, args, sizes)
    if name in _GROWING_METHODS:
        return max(1, len(text)) * sum(_width(each, sizes) for each in args)
    return 0


def _growth_of_format(text: str, args: list[Any], sizes: Sizes) -> int:
    if _WIDE.search(text):
        raise TooDear("it makes too long a text")
    longest = max((sizes.size(each) for each in args if not isinstance(each, int)), default=1)
    return len(text) + (text.count("{") + text.count("%")) * longest


def _check_operator(operator: str, left: Any, right: Any, sizes: Sizes) -> None:
    numbers = [each for each in (left, right) if isinstance(each, int)]
    if operator == "%" and isinstance(left, str):
        given = list(right) if isinstance(right, tuple) else [right]
        check_size(_growth_of_format(left, given, sizes))
    elif operator == "**" and any(abs(each) > _LARGEST_POWER for each in numbers[-1:]):
        raise TooDear("it makes too large a number")
    elif operator == "*" and len(numbers) == 1:
        check_size(_width(left, sizes) * _width(right, sizes))
    elif any(abs(each) > _LARGEST_FACTOR for each in numbers):
        raise TooDear("it makes too large a number")
    elif operator == "+" and not numbers:
        check_size(sizes.size(left) + sizes.size(right))


def _width(value: Any, sizes: Sizes) -> int:
    """How wide a text or list is, and how wide a number might make one."""
    return abs(value) if isinstance(value, int) else sizes.size(value)


def _at_hand(values: Any) -> Any:
    """A list in place of something that can be iterated only once."""
    return list(values) if isinstance(values, Iterator) else values


def _raise_exception(message: str) -> NoReturn:
    raise RaisedByTemplate(message)


def _to_json(value: object, indent: int | None = None) -> str:
    """Like `tojson`, without the escapes that jinja2 makes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
