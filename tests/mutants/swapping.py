"""Bodies of functions put in the place of others while the program runs that has them."""

import gc
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Final, NamedTuple


COMPARED: Final = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
"""What makes two bodies differ, besides constants and handlers. Lines do not: all below move."""


class Place(NamedTuple):
    """A function as its file has it: one that is decorated begins with its decorators."""

    file: str
    name: str
    line: int


def functions_by_place() -> dict[Place, list[FunctionType]]:
    """Every function that there is now, closures too; those made later come of their makers."""
    gc.unfreeze()  # what is frozen is not listed
    found = defaultdict(list)
    for each in gc.get_objects():
        # Not `isinstance`: an object may answer by whatever `__class__` of its own (torch has one
        # that warns).
        if type(each) is FunctionType:
            found[place_of(each.__code__)].append(each)
    gc.freeze()  # nor copied by a fork
    return found


def place_of(code: CodeType) -> Place:
    return Place(code.co_filename, code.co_qualname, code.co_firstlineno)


def bodies(file: str, whole: str, text: str) -> dict[Place, CodeType]:
    """Bodies that a change of a file's text gives other instructions, by the place of the old."""
    old, new = _by_name(compile(whole, file, "exec")), _by_name(compile(text, file, "exec"))
    return {
        place_of(was): becomes
        for name, codes in old.items()
        if len(codes) == len(new[name])  # else nobody knows which lambda became which
        for was, becomes in zip(codes, new[name], strict=True)
        if not _is_same(was, becomes)
    }


def swaps(
    changed: dict[Place, CodeType], functions: dict[Place, list[FunctionType]]
) -> list[tuple[FunctionType, CodeType]]:
    """Which function gets which body; none where the change is not in functions alone.

    Defaults of arguments and fields of classes were made when the module was read. A body that
    closes over other names than the function there is cannot be put into it.
    """
    found = [(each, body) for place, body in changed.items() for each in functions.get(place, ())]
    fits = all(len(each.__code__.co_freevars) == len(body.co_freevars) for each, body in found)
    return found if fits else []


def _by_name(module: CodeType) -> defaultdict[str, list[CodeType]]:
    found = defaultdict(list)
    for code in _within(module):
        found[code.co_qualname].append(code)
    return found


def _within(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _within(each)


def _is_same(one: object, other: object) -> bool:
    if not isinstance(one, CodeType) or not isinstance(other, CodeType):
        return type(one) is type(other) and repr(one) == repr(other)  # 1 is not True, nor 1.0
    if any(getattr(one, name) != getattr(other, name) for name in COMPARED):
        return False
    if one.co_exceptiontable != other.co_exceptiontable:
        return False
    constants = one.co_consts, other.co_consts
    return len(constants[0]) == len(constants[1]) and all(map(_is_same, *constants))
