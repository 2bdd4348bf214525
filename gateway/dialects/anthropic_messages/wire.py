"""Wire structs of the Messages API, limited to what we read; unknown fields are allowed."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from gateway.dialects.bodies.strict_json import Count, Fraction, ModelName


STOPS_MAX = 64

Object = dict[str, object]


class Source(Struct):
    """Of an image or a document."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    content: object = None


class Said(Struct):
    """A text inside a search result, or inside a document of such."""

    type: Literal["text"]
    text: str
    cache_control: object = None
    citations: object = None


class InnerBlock(Struct):
    """A part of a tool result."""

    type: str
    text: str | None = None
    source: Source | str | None = None
    title: str | None = None
    context: str | None = None
    citations: object = None
    content: object = None
    cache_control: Object | None = None


class Block(Struct):
    type: str
    text: str | None = None
    source: Source | str | None = None
    title: str | None = None
    context: str | None = None
    citations: object = None
    id: str | None = None
    name: str | None = None
    input: Object | None = None
    tool_use_id: str | None = None
    content: str | list[InnerBlock] | Object | None = None
    is_error: bool | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    cache_control: Object | None = None


class TurnWire(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class SystemBlock(Struct):
    type: Literal["text"]
    text: str
    cache_control: Object | None = None


class ToolWire(Struct):
    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: Object | None = None
    strict: bool | None = None
    cache_control: Object | None = None


class ToolChoiceWire(Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputFormat(Struct):
    type: str
    schema: Object | None = None


class OutputConfig(Struct):
    effort: str | None = None
    format: OutputFormat | None = None


class Thinking(Struct):
    type: str
    budget_tokens: Annotated[int, Meta(ge=1)] | None = None
    display: str | None = None
    block_binding: Object | None = None
    """What becomes of thoughts whose conversation has changed; those of Claude go nowhere else."""


class Metadata(Struct):
    user_id: str | None = None


class MessagesBody(Struct):
    """A request. `max_tokens` 0 is valid: it fills the prompt cache without an answer."""

    model: ModelName
    messages: Annotated[list[TurnWire], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    stream: bool | None = None
    system: str | list[SystemBlock] | None = None
    temperature: Fraction | None = None
    top_p: Fraction | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    stop_sequences: Annotated[list[str], Meta(max_length=STOPS_MAX)] | None = None
    tools: list[ToolWire] | None = None
    tool_choice: ToolChoiceWire | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    """The older name of `output_config.format`, in the beta that brought it."""
    metadata: Metadata | None = None
    service_tier: str | None = None
    cache_control: Object | None = None

    @property
    def format(self) -> OutputFormat | None:
        """What the answer is held to, by either of its names."""
        named = self.output_config.format if self.output_config is not None else None
        return named or self.output_format


class CacheCreation(Struct):
    ephemeral_5m_input_tokens: Count | None = None
    ephemeral_1h_input_tokens: Count | None = None


class OutputDetails(Struct):
    thinking_tokens: Count | None = None


class ServerToolUse(Struct):
    web_search_requests: Count | None = None


class FiguresWire(Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: CacheCreation | None = None

    @property
    def read(self) -> int:
        return self.cache_read_input_tokens or 0

    @property
    def written_1h(self) -> int:
        kinds = self.cache_creation
        return (kinds.ephemeral_1h_input_tokens or 0) if kinds is not None else 0

    @property
    def written(self) -> int:
        """To the cache, for however long; vendors say the sum, its kinds, or both."""
        kinds = self.cache_creation
        minutes = (kinds.ephemeral_5m_input_tokens or 0) if kinds is not None else 0
        return max(self.cache_creation_input_tokens or 0, self.written_1h + minutes)


class IterationWire(FiguresWire):
    """One turn of several within a request."""

    type: str | None = None


class UsageWire(FiguresWire):
    output_tokens_details: OutputDetails | None = None
    service_tier: str | None = None
    server_tool_use: ServerToolUse | None = None
    inference_geo: str | None = None
    iterations: list[IterationWire] | None = None


class StopDetails(Struct):
    explanation: str | None = None


class ReplyBlock(Struct):
    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Object | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    content: Raw = Raw()


class Reply(Struct):
    type: Literal["message"]
    content: list[Raw]
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: StopDetails | None = None
    usage: object = None
    """See `figures`."""


class StartMessage(Struct):
    id: str | None = None
    model: str | None = None
    usage: object = None


class Piece(Struct):
    """The `delta` of a content block or of the message."""

    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: StopDetails | None = None
    content: object = None
    """Words of a summary."""


class ErrorWire(Struct):
    type: str | None = None


class StreamWire(Struct):
    """Any event of a stream."""

    type: str
    index: int = 0
    delta: Piece | None = None
    content_block: ReplyBlock | None = None
    message: StartMessage | None = None
    usage: object = None
    error: ErrorWire | None = None
