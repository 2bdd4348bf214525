"""Grammars that an output must follow: JSON, JSON schemas, regular expressions, choices, Lark.

llguidance does the parsing. It is lazy, so a grammar costs nothing up front, but a hostile one can
still be expensive: size and depth are bounded here, and the parser's own limits bound the rest.
"""

import json
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer

from local_engine.sampling_params import Thinking
from local_engine.text.thoughts import Ends, Thoughts


MAX_GRAMMAR_CHARS = 256 * 1024
MAX_SCHEMA_DEPTH = 64
_MAX_CACHED = 64
# As defined by JSON Schema 2020-12, section 7.3 of its validation.
_FORMATS = frozenset(
    {
        *("date-time", "date", "time", "duration", "uuid", "regex"),
        *("email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6"),
        *("uri", "uri-reference", "uri-template", "iri", "iri-reference"),
        *("json-pointer", "relative-json-pointer"),
    }
)
# The first hold values, not schemas; the others hold schemas under names that anybody may choose.
_VALUES = frozenset({"const", "enum", "default", "examples", "example"})
_BY_NAME = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_ROUNDED, _MOST = 1 << 53, (1 << 63) - 1


class GrammarRefused(ValueError):
    """The grammar is malformed, too large, or not supported by the parser."""


class Grammar:
    """The position of one sequence in its grammar."""

    def __init__(
        self, matcher: LLMatcher, vocab_size: int, thoughts: Thoughts | None = None
    ) -> None:
        """`thoughts` are what the model may write before the grammar begins."""
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._thoughts = thoughts

    def allowed(self) -> torch.Tensor:
        """True for each token of the vocabulary that may come next; [vocabulary].

        Raises `GrammarRefused` if the parser has given up: it would then allow only the end, and
        half a text would look like a complete one.
        """
        if self._thoughts is None:
            return self._followed()
        return self._thoughts.allowed(self._followed)

    def accept(self, token_id: int) -> None:
        """Step over a token that was allowed."""
        if self._thoughts is None:
            self._matcher.consume_token(token_id)
        elif not self._thoughts.accept(token_id):
            self._thoughts = None
            self._matcher.consume_token(token_id)
        elif self._thoughts.are_over:
            self._thoughts = None

    def _followed(self) -> torch.Tensor:
        """What the grammar itself allows."""
        mask = bytearray(self._matcher.compute_bitmask())
        if self._matcher.is_error():
            raise GrammarRefused(_reason(self._matcher))
        packed = np.frombuffer(mask, np.uint8)
        # Tokens beyond the tokenizer's vocabulary are filled with zeros.
        bits = np.unpackbits(packed, count=self._vocab_size, bitorder="little")
        return torch.from_numpy(bits).view(torch.bool)


class GrammarCompiler:
    """Compiles grammars for one tokenizer and keeps the latest; call it off the worker's loop."""

    def __init__(
        self, tokenizer_json: str, vocab_size: int, eos_token_ids: tuple[int, ...]
    ) -> None:
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        # The model's vocabulary may be padded beyond the tokenizer's: such tokens never match.
        self._tokenizer = LLTokenizer(
            tokenizer_json, eos_token=list(eos_token_ids) or None, slices=[]
        )
        self._compiled: OrderedDict[tuple[bytes, str], LLMatcher] = OrderedDict()
        self._ends: Ends | None = None

    def compile(
        self, grammar: str, group: bytes | None = None, thinking: Thinking | None = None
    ) -> Grammar:
        """A fresh start in `grammar`, behind the model's reasoning; raises `GrammarRefused`.

        It is kept for others of `group`, since only they may notice that it was there, or for
        nobody.
        """
        key = (group or b"", grammar)
        found = self._compiled.get(key)
        if found is None:
            found = LLMatcher(self._tokenizer, grammar, log_level=0)
            if found.is_error():
                raise GrammarRefused(_reason(found))
            first = found.deep_copy()
            # Only a search for a first token shows that there is none.
            first.compute_bitmask()
            if first.is_error():
                raise GrammarRefused("no text at all fulfils it")
            if group is not None:
                self._compiled[key] = found
        if group is not None:
            self._compiled.move_to_end(key)
            if len(self._compiled) > _MAX_CACHED:
                self._compiled.popitem(last=False)
        return Grammar(found.deep_copy(), self._vocab_size, self._thoughts(thinking))

    def _thoughts(self, thinking: Thinking | None) -> Thoughts | None:
        if thinking is None:
            return None
        if self._ends is None:
            spelt = [self._tokenizer.decode_bytes([each]) for each in range(self._vocab_size)]
            self._ends = Ends(spelt, thinking.ends_with, self._eos_token_ids)
        return Thoughts(self._ends, thinking.opens_with)


def _reason(matcher: LLMatcher) -> str:
    """The parser's message; it quotes the grammar, which is the caller's own."""
    first, *others = str(matcher.get_error()).splitlines()
    # For a pattern the first line says only that it cannot be read.
    why = next((line for line in others if line.startswith("error: ")), "")
    return f"{first} {why.removeprefix('error: ')}".rstrip()[:300]


def grammar_of_schema(schema: dict[str, Any]) -> str:
    """The grammar of all JSON texts that match a JSON schema."""
    if _depth(schema) > MAX_SCHEMA_DEPTH:
        raise GrammarRefused(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    # Spaces as json.dumps writes them: a model cannot fill its length with line breaks.
    spacing: Any = {"whitespace_flexible": False}
    known = json.dumps(_as_kept_to(schema))
    try:
        grammar = LLMatcher.grammar_from_json_schema(known, spacing)
    except ValueError as error:  # It has a number that no float is as large as.
        raise GrammarRefused(f"the schema cannot be read: {error}") from error
    return _bounded(grammar)


def _as_kept_to(value: Any) -> Any:
    """A schema, or several, as the parser enforces it; raises `GrammarRefused` if it would not.

    JSON Schema itself says that formats it does not define mean nothing for the text: `password`
    and `binary` of pydantic, `int32` of OpenAPI. Those that it defines stay, and are enforced or
    refused.
    """
    if isinstance(value, list):
        return [_as_kept_to(each) for each in value]
    if not isinstance(value, dict):
        return value
    _check_numbers(value)
    found: dict[str, Any] = {}
    for key, inner in _with_open_ends_moved(value).items():
        if key == "format" and isinstance(inner, str) and inner not in _FORMATS:
            continue
        if key in _VALUES:
            found[key] = inner
        elif key in _BY_NAME and isinstance(inner, dict):
            found[key] = {name: _as_kept_to(each) for name, each in inner.items()}
        else:
            found[key] = _as_kept_to(inner)
    return found


def _check_numbers(schema: dict[str, Any]) -> None:
    """Refuse integers that the parser would round, since its numbers are floats."""
    for key in ("const", "enum", *_BOUNDS):
        for number in _whole_numbers_in(schema.get(key)):
            # The largest 64-bit number is not a real limit: no written number is beyond it.
            is_open = key == "maximum" and number >= _MOST
            if abs(number) >= _ROUNDED and not is_open:
                raise GrammarRefused(
                    f"{key} has a number that would be rounded: {str(number)[:40]}"
                )


def _whole_numbers_in(value: Any) -> Iterator[int]:
    level = [value]
    while level:
        each = level.pop()
        if isinstance(each, list | dict):
            level += each.values() if isinstance(each, dict) else each
        elif isinstance(each, int):
            yield each


def _with_open_ends_moved(schema: dict[str, Any]) -> dict[str, Any]:
    """The same, except for a range between an integer that it excludes and the next one.

    The parser includes that number if it is written without a point: 0 is not a number above 0 and
    up to 0.5 (as of llguidance 1.9). So such a range begins a millionth of itself later.
    """
    given = {key: schema[key] for key in _BOUNDS if type(schema.get(key)) in {int, float}}
    lows = [given[key] for key in ("minimum", "exclusiveMinimum") if key in given]
    highs = [given[key] for key in ("maximum", "exclusiveMaximum") if key in given]
    if not lows or not highs or not max(lows) < min(highs) < max(lows) + 1:
        return schema
    least, most = max(lows), min(highs)
    moved, step = dict(schema), (most - least) / 1_000_000
    if least == given.get("exclusiveMinimum") and least % 1 == 0:
        del moved["exclusiveMinimum"]
        moved["minimum"] = least + step
    if most == given.get("exclusiveMaximum") and most % 1 == 0:
        del moved["exclusiveMaximum"]
        moved["maximum"] = most - step
    return moved


def grammar_of_json_object() -> str:
    return grammar_of_schema({"type": "object"})


def grammar_of_regex(pattern: str) -> str:
    return _bounded(LLMatcher.grammar_from_regex(pattern))


def grammar_of_choices(choices: list[str]) -> str:
    """The grammar of one of several texts, letter for letter."""
    if not choices:
        raise GrammarRefused("there is nothing to choose from")
    return _bounded(grammar_of_lark("start: " + " | ".join(map(json.dumps, choices))))


def grammar_of_lark(text: str) -> str:
    return _bounded(LLMatcher.grammar_from_lark(_bounded(text)))


def _bounded(grammar: str) -> str:
    if len(grammar) > MAX_GRAMMAR_CHARS:
        raise GrammarRefused(f"the grammar is longer than {MAX_GRAMMAR_CHARS} characters")
    return grammar


def _depth(value: Any) -> int:
    """Levels of nesting, counted without recursion: the value comes from a stranger."""
    deepest, level = 0, [value]
    while level and deepest <= MAX_SCHEMA_DEPTH:
        deepest += 1
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = inner
    return deepest
