"""Splits the text of an expression into tokens with their positions."""

import re
from collections.abc import Iterator
from typing import Final, Literal, NoReturn, TypeAlias

import msgspec

from policies.limits import EXPRESSION_LENGTH_MAX, NUMBER_LENGTH_MAX
from policies.problems import ExpressionInvalid, Position, Problem, shown


TokenKind: TypeAlias = Literal["name", "keyword", "text", "integer", "decimal", "symbol", "end"]

KEYWORDS: Final = frozenset({"and", "or", "not", "in", "true", "false"})


class Token(msgspec.Struct, frozen=True):
    """One word of the language; the value of a text is what its quotes and escapes mean."""

    kind: TokenKind
    value: str
    at: Position

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else shown(self.value)


_SYNONYMS: Final = {"&&": "and", "||": "or", "!": "not"}
_ESCAPES: Final = {
    "\\": "\\",
    '"': '"',
    "'": "'",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_HEX_LENGTH: Final = 4

# Every alternative is linear: no nested repetition.
_TOKEN: Final = re.compile(
    r"""
    (?P<blank>[ \t\r\n]+)
  | (?P<raw>r"[^"\n]*"|r'[^'\n]*')
  | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<decimal>[0-9][0-9_]*(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
  | (?P<integer>[0-9][0-9_]*)
  | (?P<synonym>&&|\|\||!(?!=))
  | (?P<symbol>==|!=|<=|>=|[<>()\[\],.\-])
    """,
    re.VERBOSE,
)


def fail(message: str, at: Position) -> NoReturn:
    """Refuse the expression because of what is at this position."""
    raise ExpressionInvalid([Problem(path="", message=message, position=at)])


def tokens(text: str) -> Iterator[Token]:
    """The words of an expression, the last of kind "end"; raises ExpressionInvalid."""
    if len(text) > EXPRESSION_LENGTH_MAX:
        fail(
            f"the expression is longer than {EXPRESSION_LENGTH_MAX} characters",
            Position(line=1, column=1),
        )
    offset, line, line_start = 0, 1, 0
    while offset < len(text):
        at = Position(line=line, column=offset - line_start + 1)
        found = _TOKEN.match(text, offset)
        if found is None or found.lastgroup is None:
            _fail_at_character(text[offset], at)
        written = found.group()
        if found.lastgroup == "blank":
            if "\n" in written:
                line += written.count("\n")
                line_start = offset + written.rindex("\n") + 1
        else:
            yield _token(found.lastgroup, written, at)
        offset = found.end()
    yield Token("end", "", Position(line=line, column=offset - line_start + 1))


_MEANT: Final = {
    ":": '; a comparison is written as in workspace == "payroll"',
    "&": "; write 'and'",
    "|": "; write 'or'",
}
"""What to write instead of other languages' spellings."""


def _fail_at_character(character: str, at: Position) -> NoReturn:
    if character in "\"'":
        fail("this string is not closed on its line", at)
    if character == "=":
        fail("'=' is not an operator; write '=='", at)
    hint = _MEANT.get(character, "")
    fail(f"unexpected character {shown(character)}{hint}", at)


def _token(group: str, written: str, at: Position) -> Token:
    match group:
        case "name":
            return Token("keyword" if written in KEYWORDS else "name", written, at)
        case "raw":
            return Token("text", written[2:-1], at)
        case "text":
            return Token("text", _unescaped(written, at), at)
        case "synonym":
            return Token("keyword", _SYNONYMS[written], at)
        case "symbol":
            return Token("symbol", written, at)
    if len(written) > NUMBER_LENGTH_MAX:
        fail(f"the number is longer than {NUMBER_LENGTH_MAX} characters", at)
    kind: TokenKind = "integer" if group == "integer" else "decimal"
    return Token(kind, written.replace("_", ""), at)


def _unescaped(written: str, start: Position) -> str:
    body = written[1:-1]
    if "\\" not in body:
        return body
    parts: list[str] = []
    offset = 0
    while offset < len(body):
        if body[offset] != "\\":
            parts.append(body[offset])
            offset += 1
            continue
        letter = body[offset + 1]
        at = Position(line=start.line, column=start.column + 1 + offset)
        if letter == "u":
            parts.append(_code_point(body[offset + 2 : offset + 2 + _HEX_LENGTH], at))
            offset += 2 + _HEX_LENGTH
        elif letter in _ESCAPES:
            parts.append(_ESCAPES[letter])
            offset += 2
        else:
            fail(
                f"unknown escape {shown(chr(92) + letter)}; "
                "double the backslash or write r'...' for a pattern",
                at,
            )
    return "".join(parts)


def _code_point(digits: str, at: Position) -> str:
    if len(digits) != _HEX_LENGTH or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        fail("\\u takes four hexadecimal digits", at)
    character = chr(int(digits, 16))
    if "\ud800" <= character <= "\udfff":
        fail("a surrogate is not a character", at)
    return character
