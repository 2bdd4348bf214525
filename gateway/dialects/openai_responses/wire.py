"""Wire structs of the Responses API, limited to what we read; unknown fields are allowed."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from gateway.dialects.bodies.strict_json import Count, Fraction, ModelName, PositiveInt
from gateway.dialects.openai_chat.wire import LOGPROBS_MAX, InputDetails, OutputDetails


Object = dict[str, object]


class Part(Struct):
    """A part of a message or of a tool's output, in or out."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    encrypted_content: str | None = None
    filename: str | None = None
    prompt_cache_breakpoint: Object | None = None
    annotations: object = None
    logprobs: object = None


class Summary(Struct):
    text: str
    type: str = "summary_text"


class Item(Struct):
    """One entry of the input or of the output; `type` decides which fields mean something."""

    type: str | None = None
    id: str | None = None
    status: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    phase: str | None = None
    content: str | list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[Part] | None = None
    summary: list[Summary] | None = None
    encrypted_content: str | None = None
    tools: object = None


class ToolWire(Struct):
    type: str
    name: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    description: str | None = None
    parameters: Object | None = None
    strict: bool | None = None
    server_url: str | None = None
    vector_store_ids: list[str] | None = None
    container: object = None
    format: object = None
    execution: object = None
    environment: object = None
    tools: object = None


class ListedTool(Struct, kw_only=True):
    """The vendor's own types say only that it is an object."""

    type: str = ""
    name: str | None = None
    namespace: str | None = None


class NamedChoice(ListedTool, kw_only=True):
    type: str
    mode: str | None = None
    tools: list[ListedTool] = []


class Format(Struct):
    type: str
    name: str | None = None
    schema: Object | None = None
    strict: bool | None = None
    description: str | None = None


class TextConfig(Struct):
    format: Format | None = None
    verbosity: str | None = None


class ReasoningWire(Struct):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    """The older name of `summary`."""
    context: str | None = None


class NamedConversation(Struct):
    id: Annotated[str, Meta(min_length=1, max_length=128)]


class ResponsesBody(Struct):
    """A request."""

    model: ModelName
    input: str | Annotated[list[Item], Meta(min_length=1)]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: PositiveInt | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LOGPROBS_MAX)] | None = None
    tools: list[ToolWire] | None = None
    tool_choice: str | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningWire | None = None
    user: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    previous_response_id: Annotated[str, Meta(max_length=128)] | None = None
    conversation: Annotated[str, Meta(max_length=128)] | NamedConversation | None = None
    background: bool | None = None
    truncation: str | None = None
    metadata: dict[str, str] | None = None
    include: list[str] | None = None
    max_tool_calls: PositiveInt | None = None
    prompt_cache_key: str | None = None


class UsageWire(Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_tokens: object = None
    """Not a count of its own: without it nothing is missing."""
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class Incomplete(Struct):
    reason: str | None = None


class Reply(Struct):
    object: Literal["response"]
    output: list[Raw] = []
    id: str | None = None
    model: str | None = None
    status: str | None = None
    incomplete_details: Incomplete | None = None
    usage: Any = None
    """See `figures`."""
    service_tier: str | None = None
    error: Raw = Raw()


class StreamWire(Struct):
    """Any event of a stream."""

    type: str
    delta: str | None = None
    item: Raw = Raw()
    item_id: str | None = None
    output_index: int = 0
    response: Reply | None = None
    code: str | None = None
