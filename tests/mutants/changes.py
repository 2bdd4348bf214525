"""What may be changed in a module: one small thing at a time, each as a new text of the file."""

import ast
import copy
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar


OTHERS: Final[dict[type[ast.AST], tuple[Any, ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
"""What each operator becomes: a boundary moved by one, and the opposite."""
OPPOSITES: Final = {"max": "min", "min": "max", "any": "all", "all": "any"}
LEAVING: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)
SAYING: Final = frozenset({"debug", "info", "warning", "error", "exception"})
"""Calls that write to a log: without them an answer is the same."""
Placed = ast.expr | ast.stmt
Node = TypeVar("Node", bound=ast.AST)
Parts = Iterator[tuple[Placed, Placed | str]]
"""A node that stands in the file, with what is put into its place."""


class Change(NamedTuple):
    """One mutant: the line it begins in, what stood there, what stands there now, and the file."""

    line: int
    was: str
    becomes: str
    text: str


def changes(source: str) -> list[Change]:
    """Every change of a module that Python can read and that is another program, by place."""
    tree, found = ast.parse(source), set[Change]()
    whole = ast.dump(tree)
    for old, new in _walk(tree):
        was = ast.get_source_segment(source, old) or ""
        becomes = new if isinstance(new, str) else f"({ast.unparse(new)})"
        text = _put(source, old, becomes)
        if _read(text) not in {whole, None}:
            found.add(Change(old.lineno, was, becomes, text))
    return sorted(found)


def _put(source: str, old: Placed, becomes: str) -> str:
    """Write something else where a node stands. Columns of a tree count bytes."""
    lines = source.encode().splitlines(keepends=True)
    last = (old.end_lineno or old.lineno) - 1
    before, after = lines[old.lineno - 1][: old.col_offset], lines[last][old.end_col_offset :]
    changed = [*lines[: old.lineno - 1], before, becomes.encode(), after, *lines[last + 1 :]]
    return b"".join(changed).decode()


def _read(text: str) -> str | None:
    """Read a module, but for its places; None for what is no Python."""
    try:
        return ast.dump(ast.parse(text))
    except SyntaxError:
        return None


def _walk(node: ast.AST) -> Parts:
    """Every change below a node. Messages, annotations and decorators are left as they are.

    Places inside of an f-string are not told right before Python 3.12.
    """
    if isinstance(node, ast.JoinedStr | ast.Raise):
        yield from _of_statement(node)
        return
    yield from _of_statement(node)
    yield from _of_expression(node)
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns", "decorator_list"}:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _walk(child)


def _of_statement(node: ast.AST) -> Parts:
    match node:
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Await(value=ast.Call())):
            yield node, "pass"
        case ast.Expr(value=ast.Call(func=func)) if getattr(func, "attr", "") not in SAYING:
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
        case ast.If(test=test, body=[*_, last], orelse=[]) if isinstance(last, LEAVING):
            yield test, "False"
        case ast.comprehension(ifs=conditions):
            yield from ((condition, "True") for condition in conditions)
        case ast.ExceptHandler(type=ast.AST() as kind):
            yield kind, "Exception"
            if isinstance(kind, ast.Tuple):
                yield from ((kind, one) for one in _each_without(kind, "elts"))


def _of_expression(node: ast.AST) -> Parts:
    match node:
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                for other in OTHERS.get(type(operator), ()):
                    new = copy.deepcopy(node)
                    new.ops[place] = other()
                    yield node, new
        case ast.BoolOp():
            yield from ((node, one) for one in _each_without(node, "values"))
            yield from _with_others(node)
        case ast.BinOp():
            yield from _with_others(node)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, operand
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield from ((node, str(each)) for each in (value + 1, value - 1) if each >= 0)
        case ast.Call():
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Parts:
    if isinstance(node.func, ast.Name) and node.func.id in OPPOSITES:
        yield node.func, OPPOSITES[node.func.id]
    if len(node.args) > 1 and not any(isinstance(each, ast.Starred) for each in node.args):
        new = copy.deepcopy(node)
        new.args[:2] = reversed(new.args[:2])
        yield node, new
    yield from ((node, one) for one in _each_without(node, "keywords"))


def _with_others(node: ast.BoolOp | ast.BinOp) -> Parts:
    for other in OTHERS.get(type(node.op), ()):
        new = copy.deepcopy(node)
        new.op = other()
        yield node, new


def _each_without(node: Node, field: str) -> Iterator[Node]:
    """Copies of a node which lack one of the parts in a field each."""
    for place in range(len(getattr(node, field))):
        new = copy.deepcopy(node)
        del getattr(new, field)[place]
        yield new
