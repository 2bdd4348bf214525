"""Wire structs of text completions: request bodies, complete answers and stream chunks."""

from typing import Annotated

from msgspec import Meta, Struct

from gateway.dialects.bodies.strict_json import Fraction, ModelName
from gateway.dialects.openai_chat.wire import STOPS_MAX, Piece, StreamOptions


Text = Annotated[str, Meta(min_length=1)]
ANSWERS_MAX = 128
"""OpenAI's maximum for `n`."""


class CompletionsBody(Struct):
    """A request; limits here are those every compatible server shares."""

    model: ModelName
    prompt: Text | Annotated[list[Text], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    n: Annotated[int, Meta(ge=1, le=ANSWERS_MAX)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=ANSWERS_MAX)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: Annotated[int, Meta(ge=0)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=STOPS_MAX)] | None = None
    seed: int | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None
    service_tier: str | None = None


class Choice(Piece):
    """A complete continuation or, in a stream, a piece of one."""

    text: str | None = None


class Reply(Struct):
    choices: Annotated[list[Choice], Meta(min_length=1)]
    id: str | None = None
    model: str | None = None
    usage: object = None
    """See `figures`."""
    service_tier: str | None = None
