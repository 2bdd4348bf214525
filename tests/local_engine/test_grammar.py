"""Grammars: every output that ends is of its grammar, whatever the model would rather say."""

import json
import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from local_engine.runner.sampler import History, sample
from local_engine.sampling_params import SamplingParams
from local_engine.text.grammar import (
    GrammarCompiler,
    GrammarRefused,
    grammar_of_choices,
    grammar_of_json_object,
    grammar_of_lark,
    grammar_of_regex,
    grammar_of_schema,
)
from tests.local_engine.models import DEMO_MODEL


VOCABULARY, EOS = 1536, 1
RAW = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
COMPILER = GrammarCompiler(RAW.to_str(), VOCABULARY, (EOS,))
SCHEMA = {
    "type": "object",
    "properties": {"old": {"type": "boolean"}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["old", "kind"],
    "additionalProperties": False,
}


def written(grammar_text: str, seed: int) -> str | None:
    """What a model of pure noise writes; `None` if it comes to no end in time."""
    grammar = COMPILER.compile(grammar_text)
    tokens: list[int] = []
    noise = torch.Generator().manual_seed(seed)
    for _ in range(150):
        logits = torch.randn(VOCABULARY, generator=noise)
        logits[EOS] += 8.0
        history = History(written=tokens, allowed=grammar.allowed(), num_written=len(tokens))
        token = sample(logits, SamplingParams(temperature=1.0), history, seed).token_id
        if token == EOS:
            return str(RAW.decode(tokens))
        grammar.accept(token)
        tokens.append(token)
    return None


def is_pet(text: str) -> bool:
    pet = json.loads(text)
    return isinstance(pet["old"], bool) and pet["kind"] in {"cat", "dog"} and len(pet) == 2


GRAMMARS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "schema": (grammar_of_schema(SCHEMA), is_pet),
    "object": (grammar_of_json_object(), lambda text: isinstance(json.loads(text), dict)),
    "regex": (
        grammar_of_regex(r"[0-9]{2}-[a-c]"),
        lambda t: bool(re.fullmatch("[0-9]{2}-[a-c]", t)),
    ),
    "choice": (
        grammar_of_choices(["yes", "no", 'per"haps']),
        lambda t: t in {"yes", "no", 'per"haps'},
    ),
    "lark": (grammar_of_lark('start: "a" ("b" | "c")'), lambda text: text in {"ab", "ac"}),
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_noise_under_a_grammar_follows_it(name: str) -> None:
    text, is_right = GRAMMARS[name]
    ended = [found for seed in range(12) if (found := written(text, seed)) is not None]
    assert ended
    assert all(is_right(found) for found in ended)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 9999))
def test_the_same_seed_writes_the_same_under_a_grammar(seed: int) -> None:
    assert written(GRAMMARS["schema"][0], seed) == written(GRAMMARS["schema"][0], seed)


def test_two_sequences_stand_at_different_places_of_one_grammar() -> None:
    first, second = (COMPILER.compile(GRAMMARS["regex"][0]) for _ in range(2))
    before = second.allowed()
    for _ in range(2):
        first.accept(int(first.allowed().nonzero()[0]))
    assert torch.equal(second.allowed(), before)
    assert not torch.equal(first.allowed(), before)


def test_what_is_no_grammar_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(100):
        deep = {"properties": {"a": deep}}
    with pytest.raises(GrammarRefused, match="nested"):
        grammar_of_schema(deep)
    with pytest.raises(GrammarRefused, match="longer"):
        grammar_of_lark("x" * 300_000)
    with pytest.raises(GrammarRefused):
        COMPILER.compile(grammar_of_lark("start: nonsense("))
    with pytest.raises(GrammarRefused):
        COMPILER.compile(grammar_of_regex("(unclosed"))
    with pytest.raises(GrammarRefused, match="no text at all"):
        COMPILER.compile(grammar_of_regex(r"[^\s\S]"))
    with pytest.raises(GrammarRefused, match="Unsatisfiable"):
        COMPILER.compile(grammar_of_schema({"type": "string", "minLength": 5, "maxLength": 2}))
    with pytest.raises(GrammarRefused):
        grammar_of_choices([])


def test_the_grammar_that_was_not_met_for_longest_is_given_up() -> None:
    compiler = GrammarCompiler(RAW.to_str(), VOCABULARY, (EOS,))
    often = grammar_of_choices(["often"])
    for number in range(100):
        compiler.compile(grammar_of_choices([str(number)]), b"group")
        compiler.compile(often, b"group")
    assert len(compiler._compiled) == 64
    assert (b"group", often) in compiler._compiled


@pytest.mark.parametrize("name", ["password", "int32", "binary", "file-path"])
def test_a_format_that_json_schema_does_not_define_says_nothing(name: str) -> None:
    secret = {"type": "string", "format": name}
    schema = {
        "$defs": {"Secret": secret},
        "type": "object",
        "properties": {"format": {"const": "a"}, "key": secret, "all": {"items": secret}},
        "anyOf": [{"required": ["key"]}, {"properties": {"key": {"$ref": "#/$defs/Secret"}}}],
    }
    COMPILER.compile(grammar_of_schema(schema))
    assert written(grammar_of_schema({"enum": [{"format": name}]}), 1) == f'{{"format":"{name}"}}'
    assert written(grammar_of_schema({**secret, "enum": ["yes"]}), 1) == '"yes"'


def test_a_format_that_json_schema_defines_is_kept_to_or_refused() -> None:
    text = written(grammar_of_schema({"type": "string", "format": "date"}), 1)
    assert re.fullmatch(r'"\d{4}-\d\d-\d\d"', str(text))
    with pytest.raises(GrammarRefused, match="Unknown format: iri"):
        COMPILER.compile(grammar_of_schema({"type": "string", "format": "iri"}))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((">", 0), ("<=", 0.5)),
        ((">", 10), ("<", 10.25)),
        ((">=", -0.5), ("<", 0)),
        ((">", 1), ("<", 2)),
    ],
)
def test_a_range_between_two_whole_numbers_has_neither(
    low: tuple[str, float], high: tuple[str, float]
) -> None:
    words = {">": "exclusiveMinimum", ">=": "minimum", "<": "exclusiveMaximum", "<=": "maximum"}
    schema = {"type": "number", **{words[sign]: bound for sign, bound in (low, high)}}
    ended = [found for seed in range(30) if (found := written(grammar_of_schema(schema), seed))]
    assert ended
    # Of the numbers between two whole ones none is whole.
    assert not [found for found in ended if float(found).is_integer()]
    assert not [found for found in ended if not low[1] <= float(found) <= high[1]]


@pytest.mark.parametrize(
    "schema",
    [
        {"const": 2**60 + 1},
        {"enum": ["none", {"ids": [-(2**60) - 1]}]},
        {"type": "integer", "minimum": 10**20, "maximum": 10**20 + 3},
        {"type": "integer", "exclusiveMinimum": 2**53},
        {"$defs": {"Id": {"maximum": 2**53 + 1}}, "properties": {"id": {"$ref": "#/$defs/Id"}}},
    ],
)
def test_a_number_that_the_parser_would_round_is_refused(schema: dict[str, object]) -> None:
    with pytest.raises(GrammarRefused, match="would be rounded"):
        grammar_of_schema(schema)


@pytest.mark.parametrize("schema", [{"maximum": 10**400, "minimum": 0.5}, {"default": 10**400}])
def test_a_number_that_no_float_holds_is_refused(schema: dict[str, object]) -> None:
    with pytest.raises(GrammarRefused, match="cannot be read: number out of range"):
        grammar_of_schema(schema)


def test_the_largest_whole_numbers_of_languages_are_taken_as_bounds() -> None:
    for low, high in ((0, 2**63 - 1), (0, 2**64 - 1), (1 - 2**53, 2**53 - 1)):
        schema = {"type": "integer", "minimum": low, "maximum": high}
        found = written(grammar_of_schema(schema), 1)
        assert found is not None
        assert low <= int(found) <= high
    properties = {"const": {"type": "boolean"}, "minimum": {"default": 2**60 + 1}}
    COMPILER.compile(grammar_of_schema({"type": "object", "properties": properties}))


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        (grammar_of_schema({"type": "string", "pattern": "^(?!a)b$"}), "look-ahead"),
        (grammar_of_regex("[0-9"), "unclosed character class"),
    ],
)
def test_what_is_wrong_with_a_pattern_is_said(grammar: str, why: str) -> None:
    with pytest.raises(GrammarRefused, match=why):
        COMPILER.compile(grammar)
