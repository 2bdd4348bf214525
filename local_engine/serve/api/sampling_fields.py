"""Reads the sampling fields that chat and plain completions share, as sampling parameters."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from local_engine.model.config import SamplingDefaults
from local_engine.sampling_params import (
    MAX_STOP_STRING_CHARS,
    MAX_TOP_LOGPROBS,
    InvalidParameter,
    SamplingParams,
)
from local_engine.serve.api.errors import InvalidRequest
from local_engine.text.errors import PromptRefused
from local_engine.text.grammar import (
    GrammarRefused,
    grammar_of_choices,
    grammar_of_json_object,
    grammar_of_lark,
    grammar_of_regex,
    grammar_of_schema,
)
from local_engine.text.tokenizer import ChatTokenizer


MAX_CHOICES = 16
_MAX_BAD_WORDS = 64
_TOKEN_ID = re.compile("0|[1-9][0-9]{0,18}")
# Ways of sampling that other engines have and this one has not.
OTHERS_SAMPLING = (
    "typical_p",
    "tfs_z",
    "top_a",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "epsilon_cutoff",
    "eta_cutoff",
    "dry_multiplier",
    "xtc_probability",
    "use_beam_search",
    "num_beams",
    "length_penalty",
    "logits_processors",
    "thinking_token_budget",
    "guided_whitespace_pattern",
    "logprob_token_ids",
    "repetition_detection",
    "watermarking",
    "structural_tag",
    "vllm_xargs",
    "kv_transfer_params",
    "ec_transfer_params",
    "return_prompt_text",
    # SGLang's, and what llama.cpp's server calls a grammar.
    "json_schema",
    "grammar",
    "regex",
    "ebnf",
    "no_stop_trim",
    "stop_regex",
    "custom_logit_processor",
    "custom_params",
    "lora_path",
    "return_hidden_states",
)
# What other engines do unless they are told not to, and this one always does.
ALWAYS_ON = ("add_generation_prompt", "include_reasoning", "separate_reasoning")
MAX_CACHE_SALT_CHARS = 256


class JsonSchema(msgspec.Struct):
    schema: dict[str, Any] | None = None
    name: str = ""
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    type: str
    json_schema: JsonSchema | None = None


class StructuredOutputs(msgspec.Struct):
    """vLLM's words for the same, and a little more; the last ones are refused by name."""

    json: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None
    whitespace_pattern: Any = None
    disable_additional_properties: bool | None = None

    @property
    def unsupported(self) -> str | None:
        """The field asking for something that an answer could not follow."""
        words = ("structural_tag", "whitespace_pattern", "disable_additional_properties")
        return next((word for word in words if getattr(self, word)), None)


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """vLLM's: each part gives the usage up to it. It implies the usage at the end."""


class SamplingFields(msgspec.Struct, kw_only=True):
    """What a body may say about sampling; `None` is "not said"."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    bad_words: list[str] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    allowed_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool | None = None
    cache_salt: str | None = None

    @property
    def keeps_special(self) -> bool:
        """Whether control tokens are part of the text."""
        return self.skip_special_tokens is False

    @property
    def include_usage(self) -> bool:
        options = self.stream_options
        if options is None or options.include_usage is not None:
            return options is not None and bool(options.include_usage)
        return bool(options.continuous_usage_stats)

    @property
    def usage_so_far(self) -> bool:
        """Whether each part of a stream gives the usage up to it."""
        is_asked = self.stream_options is not None and self.stream_options.continuous_usage_stats
        return self.include_usage and bool(is_asked)

    @property
    def num_choices(self) -> int:
        return 1 if self.n is None else self.n


def read_params(
    body: SamplingFields,
    defaults: SamplingDefaults,
    tokenizer: ChatTokenizer,
    **extra: Any,
) -> SamplingParams:
    """Checked parameters; raises `InvalidRequest` naming the field at fault."""
    if not 1 <= body.num_choices <= MAX_CHOICES:
        message = f"n must be between 1 and {MAX_CHOICES}."
        raise InvalidRequest(message, code="invalid_value", param="n")
    if body.stream_options is not None and not body.stream:
        message = "stream_options is only allowed where stream is true."
        raise InvalidRequest(message, code="invalid_value", param="stream_options")
    _check_prompt_scores(body)
    if body.cache_salt is not None and not 1 <= len(body.cache_salt) <= MAX_CACHE_SALT_CHARS:
        message = f"cache_salt has 1 to {MAX_CACHE_SALT_CHARS} characters."
        raise InvalidRequest(message, code="invalid_value", param="cache_salt")
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    fields = {
        "temperature": _or(body.temperature, defaults.temperature),
        "top_p": _or(body.top_p, defaults.top_p),
        "top_k": int(_or(body.top_k, defaults.top_k)),
        "min_p": _or(body.min_p, 0.0),
        "presence_penalty": _or(body.presence_penalty, 0.0),
        "frequency_penalty": _or(body.frequency_penalty, 0.0),
        "repetition_penalty": _or(body.repetition_penalty, 1.0),
        "seed": body.seed,
        "max_tokens": body.max_tokens,
        "min_tokens": body.min_tokens or 0,
        "ignore_eos": bool(body.ignore_eos),
        "stop": stop,
        "includes_stop": bool(body.include_stop_str_in_output),
        "stop_token_ids": tuple(body.stop_token_ids or ()),
        "prompt_logprobs": body.prompt_logprobs,
    }
    if body.allowed_token_ids is not None:
        fields["allowed_token_ids"] = tuple(body.allowed_token_ids)
    try:
        bias = _logit_bias(body.logit_bias or {})
        bad = _bad_words(body.bad_words or [], tokenizer)
        grammar = extra.pop("grammar", None) or grammar_of(body)
        return SamplingParams(
            **{**fields, **extra}, logit_bias=bias, bad_token_ids=bad, grammar=grammar
        )
    except InvalidParameter as error:
        raise InvalidRequest(str(error), code="invalid_value", param=error.param) from error
    except GrammarRefused as error:
        message = f"The grammar cannot be used: {error}"
        raise InvalidRequest(message, code="invalid_grammar", param=grammar_field(body)) from error


def _check_prompt_scores(body: SamplingFields) -> None:
    """As in vLLM, they come only with a complete answer; -1, the entire vocabulary, is refused."""
    if body.prompt_logprobs is None:
        return
    if not 0 <= body.prompt_logprobs <= MAX_TOP_LOGPROBS:
        message = f"prompt_logprobs must be between 0 and {MAX_TOP_LOGPROBS}."
        raise InvalidRequest(message, code="invalid_value", param="prompt_logprobs")
    if body.stream:
        message = "prompt_logprobs is only possible where stream is not true."
        raise InvalidRequest(message, code="invalid_value", param="prompt_logprobs")


def grammar_field(body: SamplingFields) -> str:
    """The field that asks for a grammar, to be named if the grammar cannot be used."""
    given = (name for name in _OTHER_WORDS if getattr(body, name) is not None)
    return next(given, "response_format")


def grammar_of(body: SamplingFields) -> str | None:
    """The one grammar that a body asks for, in whichever words."""
    wishes = _wishes(body)
    if len(wishes) > 1:
        raise InvalidParameter("response_format", "an output can follow one grammar only")
    for kind, value in wishes:
        make: Callable[[Any], str] = _GRAMMARS[kind]
        return make(value)
    return None


def _wishes(body: SamplingFields) -> list[tuple[str, Any]]:
    """What is asked for and its kind: vLLM's new words, its old ones, OpenAI's.

    Nothing that was given is left out, even if empty: the answer would not be as requested.
    """
    found: list[tuple[str, Any]] = [
        ("schema", body.guided_json),
        ("regex", body.guided_regex),
        ("choice", body.guided_choice),
        ("lark", body.guided_grammar),
    ]
    if body.structured_outputs is not None:
        found += _structured_outputs(body.structured_outputs)
    if body.response_format is not None:
        found += _response_format(body.response_format).items()
    return [(kind, value) for kind, value in found if value is not None]


def _structured_outputs(given: StructuredOutputs) -> list[tuple[str, Any]]:
    if word := given.unsupported:
        message = f"This engine does not support the parameter 'structured_outputs.{word}'."
        param = f"structured_outputs.{word}"
        raise InvalidRequest(message, code="unsupported_parameter", param=param)
    if given == StructuredOutputs():
        raise InvalidParameter("structured_outputs", "structured_outputs names nothing known here")
    return [
        ("schema", given.json),
        ("regex", given.regex),
        ("choice", given.choice),
        ("lark", given.grammar),
        ("object", given.json_object or None),
    ]


def _response_format(given: ResponseFormat) -> dict[str, Any]:
    match given:
        case ResponseFormat("text"):
            return {}
        case ResponseFormat("json_object"):
            return {"object": True}
        case ResponseFormat("json_schema", JsonSchema(dict(schema))):
            return {"schema": schema}
    raise InvalidParameter("response_format", "response_format has an unknown or incomplete type")


_OTHER_WORDS = (
    *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
)
_GRAMMARS: dict[str, Callable[[Any], str]] = {
    "schema": lambda schema: grammar_of_schema(_read_schema(schema)),
    "regex": grammar_of_regex,
    "choice": grammar_of_choices,
    "lark": grammar_of_lark,
    "object": lambda _: grammar_of_json_object(),
}


def _read_schema(schema: dict[str, Any] | str) -> dict[str, Any]:
    """A schema as vLLM accepts it: also as JSON text."""
    if not isinstance(schema, str):
        return schema
    try:
        return msgspec.json.decode(schema, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise GrammarRefused("the schema is not the text of a JSON object") from error


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _logit_bias(entries: dict[str, float]) -> dict[int, float]:
    # One spelling for each: of "5" and "05" one would win.
    if not all(_TOKEN_ID.fullmatch(token_id) for token_id in entries):
        raise InvalidParameter("logit_bias", "logit_bias keys must be token ids")
    return {int(token_id): bias for token_id, bias in entries.items()}


def _bad_words(words: list[str], tokenizer: ChatTokenizer) -> tuple[tuple[int, ...], ...]:
    """A word is written with and without a space before it; both spellings are forbidden."""
    if len(words) > _MAX_BAD_WORDS:
        raise InvalidParameter("bad_words", f"at most {_MAX_BAD_WORDS} bad words are allowed")
    if any(not 1 <= len(word) <= MAX_STOP_STRING_CHARS for word in words):
        message = f"a bad word has 1 to {MAX_STOP_STRING_CHARS} characters"
        raise InvalidParameter("bad_words", message)
    spellings = [spelling for word in words for spelling in (word, f" {word}")]
    try:
        encoded = [tuple(tokenizer.encode_plain(spelling)) for spelling in spellings]
    except PromptRefused as error:
        raise InvalidParameter("bad_words", str(error)) from error
    return tuple(dict.fromkeys(tokens for tokens in encoded if tokens))
