"""OpenAI's embeddings as a `ports.Dialect`: text in, vectors out, nothing streamed.

Only text is accepted: a list of token numbers says as much as text does, but nothing here could
inspect it.
"""

from array import array
from base64 import b64encode
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.dialects.bodies import body
from gateway.dialects.bodies.reserved import check_not_reserved
from gateway.dialects.bodies.strict_json import (
    Count,
    ModelName,
    PositiveInt,
    checked,
    decode_object,
)
from gateway.dialects.figures import read_figures
from gateway.dialects.loss import unsupported
from gateway.dialects.openai_chat.stream_in import ChatStreamDecoder
from gateway.dialects.openai_chat.stream_out import ChatPassThrough
from gateway.dialects.openai_errors import OpenAIEnvelope
from gateway.errors import UpstreamMalformed
from gateway.estimate import estimate_input_tokens, estimate_longest_tokens
from gateway.ports import StreamDecoder, StreamEncoder, UpstreamBody
from gateway.types import ChatRequest, Completion, DialectName, Target, Usage


INPUTS_MAX = 2048
"""OpenAI's own limit; every compatible server accepts fewer."""
FIGURES_MAX = 65_536
"""Limit on the numbers of one vector; today's have up to eight thousand."""

Text = Annotated[str, Meta(min_length=1)]


class EmbeddingsBody(Struct):
    model: ModelName
    input: Text | Annotated[list[Text], Meta(min_length=1, max_length=INPUTS_MAX)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: PositiveInt | None = None
    user: str | None = None


class Vector(Struct):
    embedding: list[float] | str
    index: int | None = None
    object: str = "embedding"


class RawVector(Struct):
    """The same without parsing its numbers: they are many, and passed on as they are."""

    embedding: msgspec.Raw
    index: int | None = None


class UsageWire(Struct):
    prompt_tokens: Count | None = None


class Reply(Struct):
    data: Annotated[list[RawVector], Meta(min_length=1)]
    model: str | None = None
    usage: object = None
    """See `figures`."""


_REPLY = msgspec.json.Decoder(Reply)
_EMBEDDING: msgspec.json.Decoder[list[float] | str] = msgspec.json.Decoder(list[float] | str)
_FIGURE_BYTES = 2


class OpenAIEmbeddings(OpenAIEnvelope):
    """Stateless; one object serves every request."""

    name: DialectName = "openai_embeddings"

    def decode_request(
        self, raw: bytes, request_id: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> ChatRequest:
        del headers
        tree = decode_object(raw)
        check_not_reserved(tree)
        if tree.get("messages") is not None:
            raise unsupported("messages", "Send text as `input`", 59)
        given = tree.get("input")
        for at, each in enumerate(given if isinstance(given, list) else ()):
            if not isinstance(each, str):
                reason = "Send text; token numbers cannot be inspected"
                raise unsupported(f"input[{at}]", reason, 59)
        wire = checked(tree, EmbeddingsBody)
        about, most = estimate_input_tokens(raw, 0, 0, 0)
        return ChatRequest(
            request_id=request_id,
            dialect=self.name,
            raw=raw,
            tree=tree,
            model=wire.model,
            stream=False,
            # Vectors are no tokens: what is put out costs nothing.
            max_output_tokens=1,
            wants_stream_usage=False,
            has_tools=False,
            has_images=False,
            has_documents=False,
            wants_json_schema=False,
            input_tokens_estimate=about,
            input_tokens_most=most,
            longest_tokens_estimate=estimate_longest_tokens(wire.input),
            purpose="embedding",
        )

    def encode_request(
        self, request: ChatRequest, target: Target, output_tokens_cap: int
    ) -> UpstreamBody:
        del output_tokens_cap
        if request.dialect != self.name:
            raise unsupported("model", "This model makes embeddings only", 59)
        return UpstreamBody(body.patch(request.raw, {"model": msgspec.json.encode(target.model)}))

    def decode_reply(self, raw: bytes) -> Completion:
        try:
            wire = _REPLY.decode(raw)
            for vector in wire.data:
                _read(vector)  # One by one: it takes as long as all at once, but holds nobody up.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamMalformed("The upstream's answer is no list of embeddings.") from error
        numbers = [vector.index for vector in wire.data if vector.index is not None]
        if numbers and sorted(numbers) != list(range(len(wire.data))):
            raise UpstreamMalformed("The upstream's vectors are not numbered like its texts.")
        counted = read_figures(wire.usage, UsageWire)[0].prompt_tokens
        usage = Usage(estimated=True) if counted is None else Usage(input_tokens=counted)
        return Completion(
            raw=raw,
            message_id="",
            model=wire.model or "",
            text="",
            tool_calls=(),
            stop_reason="end",
            stop_sequence=None,
            usage=usage,
            vectors=len(wire.data),
            is_repeatable=True,
        )

    def encode_reply(
        self, completion: Completion, source: DialectName, request: ChatRequest
    ) -> bytes:
        """The upstream's bytes; base64 vectors and usage are added if the upstream sent none.

        Raises:
            UpstreamMalformed: there is not one vector for each text, so that nobody could tell
            which is whose.
        """
        del source
        given = request.tree["input"]
        if completion.vectors != (len(given) if isinstance(given, list) else 1):
            raise UpstreamMalformed("The upstream made more or fewer vectors than it got texts.")
        changes: dict[str, bytes | None] = {}
        if completion.usage.estimated:
            tokens = completion.usage.input_tokens
            changes["usage"] = msgspec.json.encode(
                {"prompt_tokens": tokens, "total_tokens": tokens}
            )
        if request.tree.get("encoding_format") == "base64":
            vectors = [
                Vector(_read(vector), vector.index) for vector in _REPLY.decode(completion.raw).data
            ]
            if any(isinstance(vector.embedding, list) for vector in vectors):
                changes["data"] = msgspec.json.encode(
                    [_in_base64(vector, at) for at, vector in enumerate(vectors)]
                )
        return body.patch(completion.raw, changes) if changes else completion.raw

    def unmet(self, request: ChatRequest, text: str) -> str:
        """Vectors have no schema."""
        del request, text
        return ""

    def stream_decoder(self, answers: int = 1) -> StreamDecoder:
        """Never called: no request of this dialect is a stream."""
        return ChatStreamDecoder(answers)

    def stream_encoder(self, request: ChatRequest, source: DialectName) -> StreamEncoder:
        """Never called: no request of this dialect is a stream."""
        del source
        return ChatPassThrough(request)


def _read(vector: RawVector) -> list[float] | str:
    """Its numbers, or its base64 text; raises UpstreamMalformed and DecodeError."""
    raw = bytes(vector.embedding)
    if len(raw) > _FIGURE_BYTES * FIGURES_MAX and raw.count(b",") >= FIGURES_MAX:
        raise UpstreamMalformed("The upstream made a vector of too many figures.")
    return _EMBEDDING.decode(raw)


def _in_base64(vector: Vector, place: int) -> Vector:
    """Little-endian 32-bit floats, as the official client reads them; numbered in any case."""
    if isinstance(vector.embedding, str):
        return vector
    packed = array("f", vector.embedding)
    index = place if vector.index is None else vector.index
    return Vector(b64encode(packed.tobytes()).decode(), index)
