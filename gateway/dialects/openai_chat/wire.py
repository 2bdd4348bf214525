"""Wire structs of chat completions, limited to what we read; unknown fields are allowed."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.dialects.bodies.strict_json import Count, Fraction, ModelName, PositiveInt


STOPS_MAX = 16
"""OpenAI takes four; compatible servers take more, and decide themselves up to this bound."""

LOGPROBS_MAX = 20
"""The vendor's own limit, and the default of compatible servers."""

Object = dict[str, object]


class Link(Struct):
    url: str
    detail: str | None = None


class File(Struct):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class ContentPart(Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: Link | None = None
    file: File | None = None
    cache_control: Object | None = None
    """A cache breakpoint in Anthropic's words, as its clients send it through this dialect."""
    prompt_cache_breakpoint: Object | None = None
    thinking: object = None
    """The thinking of Mistral's models, within what they said."""


class FunctionCall(Struct):
    name: str
    arguments: str


class CustomCall(Struct):
    name: str
    input: str


class RequestToolCall(Struct):
    id: str
    type: str = "function"
    function: FunctionCall | None = None
    custom: CustomCall | None = None
    index: object = None
    """Its place in a stream, which clients that join a stream leave there."""


class ThinkingBlock(Struct):
    """Another vendor's thinking, given out with an answer and sent back unchanged."""

    type: Literal["thinking", "redacted_thinking"]
    thinking: str = ""
    signature: str = ""
    data: str = ""
    index: object = None
    """As for a call."""


class ChatMessage(Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[RequestToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    function_call: FunctionCall | None = None
    thinking_blocks: list[ThinkingBlock] | None = None
    reasoning_content: str | None = None
    audio: Object | None = None
    annotations: object = None


class FunctionTool(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    description: str | None = None
    parameters: Object | None = None
    strict: bool | None = None
    cache_control: Object | None = None


class GrammarWire(Struct):
    syntax: str
    definition: str


class CustomFormat(Struct):
    type: str
    grammar: GrammarWire | None = None


class CustomTool(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    description: str | None = None
    format: CustomFormat | None = None


class ToolWire(Struct):
    type: str
    function: FunctionTool | None = None
    custom: CustomTool | None = None


class NamedFunction(Struct):
    name: str


class ListedTool(Struct, kw_only=True):
    """The vendor's own types say only that it is an object."""

    type: str = ""
    function: NamedFunction | None = None
    custom: NamedFunction | None = None


class AllowedTools(Struct):
    mode: str | None = None
    tools: list[ListedTool] = []


class NamedChoice(ListedTool, kw_only=True):
    type: str
    allowed_tools: AllowedTools | None = None


class JsonSchema(Struct):
    name: str
    schema: Object | None = None
    strict: bool | None = None
    description: str | None = None


class ResponseFormatWire(Struct):
    type: str
    json_schema: JsonSchema | None = None


class StreamOptions(Struct):
    include_usage: bool | None = None


class ChatBody(Struct):
    """A request; limits here are those every OpenAI-compatible server shares."""

    model: ModelName
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=STOPS_MAX)] | None = None
    seed: int | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LOGPROBS_MAX)] | None = None
    logit_bias: dict[str, float] | None = None
    tools: list[ToolWire] | None = None
    tool_choice: str | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[FunctionTool] | None = None
    function_call: str | NamedFunction | None = None
    response_format: ResponseFormatWire | None = None
    reasoning_effort: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    modalities: list[str] | None = None
    prediction: Object | None = None
    verbosity: str | None = None
    store: bool | None = None
    metadata: Object | None = None
    prompt_cache_key: str | None = None


class CacheWriteDetails(Struct):
    ttl_12h_tokens: Count | None = None
    ttl_30m_tokens: Count | None = None


class InputDetails(Struct):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    cache_write_tokens_details: CacheWriteDetails | None = None

    @property
    def written_for_long(self) -> int:
        """Of the tokens written to the cache, those kept for twelve hours."""
        kinds = self.cache_write_tokens_details
        return 0 if kinds is None else kinds.ttl_12h_tokens or 0

    @property
    def written_for_short(self) -> int:
        """The others, kept for half an hour."""
        kinds, for_long = self.cache_write_tokens_details, self.written_for_long
        counted = 0 if kinds is None else kinds.ttl_30m_tokens or 0
        return max((self.cache_write_tokens or 0) - for_long, counted)


class OutputDetails(Struct):
    reasoning_tokens: Count | None = None


class UsageWire(Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: object = None
    """Not a count of its own: without it nothing is missing."""
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class ReplyFunction(Struct):
    name: str | None = None
    arguments: str | None = None


class ReplyCustom(Struct):
    name: str | None = None
    input: str | None = None


class ReplyToolCall(Struct):
    id: str | None = None
    type: str | None = None
    function: ReplyFunction | None = None
    custom: ReplyCustom | None = None
    index: int | None = None
    extra_content: object = None
    """Where Google's models put a call's seal."""


class ReplyAudio(Struct):
    transcript: str | None = None


class ReplyPart(Struct):
    """A part of the content, where a server's reasoning stands among its words (Mistral's)."""

    text: str | None = None
    thinking: "str | list[ReplyPart] | None" = None


class ReplyMessage(Struct):
    """A complete message or, in a stream, a piece of one."""

    content: str | list[ReplyPart] | None = None
    refusal: str | None = None
    tool_calls: list[ReplyToolCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    function_call: ReplyFunction | None = None
    """The predecessor of tools; passed on to the caller all the same."""
    audio: ReplyAudio | None = None


class Ended(Struct):
    """Why one of an answer's choices ended, whatever its text."""

    finish_reason: str | None = None
    stop_reason: object = None
    """vLLM's and our own engine's: the stop string, or the token, that ended the answer."""
    matched_stop: object = None
    """The same in SGLang's words."""


class ReplyChoice(Ended, kw_only=True):
    message: ReplyMessage


class Reply(Struct):
    choices: Annotated[list[ReplyChoice], Meta(min_length=1)]
    id: str | None = None
    model: str | None = None
    usage: object = None
    """See `figures`."""
    service_tier: str | None = None


class Piece(Ended):
    """What a chunk's choice says of itself: which of several answers it continues."""

    index: int = 0


class ChunkChoice(Piece, kw_only=True):
    delta: ReplyMessage | None = None
