"""Parses the tokens of an expression into a tree.

or         = and { ("or" | "||") and }
and        = not { ("and" | "&&") not }
not        = ("not" | "!") not | comparison
comparison = operand [ ("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not" "in") operand ]
operand    = primary [ "." NAME "(" arguments ")" ]
primary    = literal | list | NAME | NAME "." NAME | NAME "[" TEXT "]"
           | NAME "(" arguments ")" | "(" or ")"
"""

import math
from typing import Final

from policies.language.lexer import Token, fail, tokens
from policies.language.syntax import (
    Call,
    Compare,
    ListLiteral,
    Literal,
    Logic,
    Lookup,
    Name,
    Node,
    Not,
    Operator,
)
from policies.limits import EXPRESSION_DEPTH_MAX, LIST_LENGTH_MAX
from policies.problems import Position


_OPERATORS: Final[dict[str, Operator]] = {
    "==": "==",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "in": "in",
}


def parse(text: str) -> Node:
    """The tree of an expression; raises ExpressionInvalid with line and column."""
    # A lone surrogate has no UTF-8 form, so it could be neither stored nor hashed.
    for offset, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            line_start = text.rfind("\n", 0, offset) + 1
            at = Position(line=text.count("\n", 0, offset) + 1, column=offset - line_start + 1)
            fail("a surrogate is not a character", at)
    return _Parser(text).whole()


class _Parser:
    """Recursive descent with one token of look-ahead and a bound on nesting."""

    def __init__(self, text: str) -> None:
        self._rest = tokens(text)
        self._token = next(self._rest)
        self._depth = 0

    def whole(self) -> Node:
        if self._has_ended():
            fail("the expression is empty; leave `when` out to match always", self._token.at)
        node = self._or()
        if not self._has_ended():
            fail(f"expected an operator or the end, not {self._token}", self._token.at)
        return node

    def _has_ended(self) -> bool:
        return self._token.kind == "end"

    def _take(self) -> Token:
        taken = self._token
        if taken.kind != "end":
            self._token = next(self._rest)
        return taken

    def _at(self, value: str) -> bool:
        return self._token.kind in {"symbol", "keyword"} and self._token.value == value

    def _accept(self, value: str) -> bool:
        if self._at(value):
            self._take()
            return True
        return False

    def _expect(self, value: str) -> None:
        if not self._accept(value):
            fail(f"expected {value!r}, not {self._token}", self._token.at)

    def _or(self) -> Node:
        at = self._token.at
        self._depth += 1
        if self._depth > EXPRESSION_DEPTH_MAX:
            fail(f"nested deeper than {EXPRESSION_DEPTH_MAX} levels", at)
        operands = [self._and()]
        while self._accept("or"):
            operands.append(self._and())
        self._depth -= 1
        return operands[0] if len(operands) == 1 else Logic("or", tuple(operands), at)

    def _and(self) -> Node:
        at = self._token.at
        operands = [self._not()]
        while self._accept("and"):
            operands.append(self._not())
        return operands[0] if len(operands) == 1 else Logic("and", tuple(operands), at)

    def _not(self) -> Node:
        at = self._token.at
        if not self._accept("not"):
            return self._comparison()
        self._depth += 1
        if self._depth > EXPRESSION_DEPTH_MAX:
            fail(f"nested deeper than {EXPRESSION_DEPTH_MAX} levels", at)
        operand = self._not()
        self._depth -= 1
        return Not(operand, at)

    def _comparison(self) -> Node:
        left = self._operand()
        at = self._token.at
        negated = self._accept("not")
        operator = self._operator(negated=negated)
        if operator is None:
            return left
        node = Compare(operator, left, self._operand(), at)
        if self._operator_follows():
            fail("comparisons cannot be chained; join two with 'and'", self._token.at)
        return Not(node, at) if negated else node

    def _operator_follows(self) -> bool:
        return self._token.kind in {"symbol", "keyword"} and self._token.value in _OPERATORS

    def _operator(self, *, negated: bool) -> Operator | None:
        if negated and not self._at("in"):
            fail(f"expected 'in' after 'not', not {self._token}", self._token.at)
        if not self._operator_follows():
            return None
        return _OPERATORS[self._take().value]

    def _operand(self) -> Node:
        node = self._primary()
        if not self._at("."):
            return node
        self._take()
        method = self._take()
        if method.kind != "name":
            fail(f"expected a function name after '.', not {method}", method.at)
        self._expect("(")
        return Call(method.value, (node, *self._arguments()), method.at)

    def _primary(self) -> Node:
        token = self._take()
        match token.kind:
            case "text":
                return Literal(token.value, token.at)
            case "integer" | "decimal":
                return Literal(_number(token), token.at)
            case "name":
                return self._reference(token)
        match token.value:
            case "true" | "false" if token.kind == "keyword":
                return Literal(token.value == "true", token.at)
            case "-":
                return self._negative(token)
            case "[":
                return self._list(token)
            case "(":
                node = self._or()
                self._expect(")")
                return node
        return fail(f"expected a value, not {token}", token.at)

    def _negative(self, sign: Token) -> Literal:
        token = self._take()
        if token.kind not in {"integer", "decimal"}:
            fail(f"expected a number after '-', not {token}", token.at)
        return Literal(-_number(token), sign.at)

    def _reference(self, name: Token) -> Node:
        if self._accept("("):
            return Call(name.value, self._arguments(), name.at)
        if self._accept("["):
            key = self._take()
            if key.kind != "text":
                fail(f"expected a quoted key, not {key}", key.at)
            self._expect("]")
            return Lookup(name.value, key.value, name.at)
        if self._accept("."):
            member = self._take()
            if member.kind != "name":
                fail(f"expected a name after '.', not {member}", member.at)
            if self._accept("("):
                subject = Name(name.value, name.at)
                return Call(member.value, (subject, *self._arguments()), member.at)
            return Lookup(name.value, member.value, name.at)
        return Name(name.value, name.at)

    def _arguments(self) -> tuple[Node, ...]:
        """Everything between an opened parenthesis and its end."""
        if self._accept(")"):
            return ()
        arguments = [self._or()]
        while self._accept(","):
            arguments.append(self._or())
        self._expect(")")
        return tuple(arguments)

    def _list(self, opening: Token) -> ListLiteral:
        items: list[Literal] = []
        while not self._accept("]"):
            if items:
                self._expect(",")
            at = self._token.at
            item = None if self._at("[") else self._primary()
            if not isinstance(item, Literal):
                fail("a list holds only strings and numbers", at)
            items.append(item)
            if len(items) > LIST_LENGTH_MAX:
                fail(f"the list has more than {LIST_LENGTH_MAX} entries", opening.at)
        return ListLiteral(tuple(items), opening.at)


def _number(token: Token) -> int | float:
    if token.kind == "integer":
        return int(token.value)
    number = float(token.value)
    if not math.isfinite(number):
        fail(f"the number {token.value} is too large", token.at)
    return number
