"""Query parameters: the object that reads one from an address also describes it in OpenAPI.

There is no second list that could drift: the OpenAPI document finds these objects in the code of
handlers, and in the functions that they call.
"""

import dis
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any, Final, Literal

from msgspec import Struct

from admin.asking import Asking


OURS: Final = "admin."


class Query(Struct, frozen=True):
    """One parameter of an address."""

    name: str
    about: str
    """What it says, in a sentence; also what its text looks like, and where it is refused."""
    kind: Literal["string", "integer"] = "string"
    length_max: int | None = None
    pattern: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""
    is_many: bool = False
    """Whether it may be named several times."""

    def of(self, request: Asking) -> str:
        """Its text in a request; the default where it is not named."""
        return str(request.query_params.get(self.name, self.default))

    def all_of(self, request: Asking) -> list[str]:
        """Each of its texts, for one that may be named several times."""
        return [str(text) for text in request.query_params.getall(self.name, [])]

    def is_in(self, request: Asking) -> bool:
        """Whether a request names it."""
        return self.name in request.query_params

    def described(self) -> dict[str, Any]:
        """As OpenAPI has it."""
        schema: dict[str, Any] = {"type": self.kind}
        if self.length_max is not None:
            schema["maxLength"] = self.length_max
        if self.pattern:
            schema["pattern"] = self.pattern
        if self.choices:
            is_text = self.kind == "string"
            schema["enum"] = [each if is_text else int(each) for each in self.choices]
        if self.default:
            schema["default"] = self.default if self.kind == "string" else int(self.default)
        if self.kind == "integer":
            schema["minimum"] = 0
        if self.is_many:
            schema = {"type": "array", "items": schema}
        return {
            "name": self.name,
            "in": "query",
            "required": False,
            "description": self.about,
            "schema": schema,
        }


_PLACE_LENGTH_MAX: Final = 6
PAGE_ROWS: Final = 100
"""Of a list on one page."""
FIRST: Final = Query(
    "from",
    "How many to leave out before the first of this page; what is no number leaves out none.",
    "integer",
)


AFTER: Final = Query(
    "after",
    "The key of the last row before this page, as the way on says it: the page is sought behind "
    "it, however many rows come before. What is none is left aside.",
    length_max=400,
)


def after_of(request: Asking) -> str:
    """The key behind which a page begins; empty where none is named."""
    return AFTER.of(request)[: AFTER.length_max]


def first_of(request: Asking) -> int:
    """A place in a list; the first where it is none."""
    text = FIRST.of(request)
    is_place = text.isascii() and text.isdigit() and len(text) <= _PLACE_LENGTH_MAX
    return int(text) if is_place else 0


def queries_of(function: Callable[..., Any]) -> list[Query]:
    """The parameters that a handler reads, by name: its own, and those of functions it calls."""
    found = {
        value.name: value
        for reached in reached_from(function)
        for value in _named_in(reached)
        if isinstance(value, Query)
    }
    return [found[name] for name in sorted(found)]


def reached_from(function: Callable[..., Any]) -> list[FunctionType]:
    """A function of ours and all that it calls by name, each once."""
    waiting, found = [function], dict[int, FunctionType]()
    while waiting:
        each = waiting.pop()
        if not isinstance(each, FunctionType) or id(each) in found:
            continue
        if each.__module__.startswith(OURS):
            found[id(each)] = each
            waiting += [value for value in _named_in(each) if isinstance(value, FunctionType)]
    return list(found.values())


def names_in(code: CodeType) -> Iterable[str]:
    """The global names that a piece of code looks up, and those inside of it."""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL":
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def _named_in(function: FunctionType) -> Iterable[Any]:
    """What the names in a function's code stand for, and what it closes over."""
    for name in names_in(function.__code__):
        if name in function.__globals__:
            yield function.__globals__[name]
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # Not bound yet.
            continue
