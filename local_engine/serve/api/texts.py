"""`/v1/embeddings`, `/tokenize` and `/detokenize`: the endpoints that need no sampling."""

import base64
import struct
from typing import Any, Literal

import msgspec

from local_engine.core.sequence import PromptTooLong
from local_engine.serve.api.chat_request import decode_body, unsupported_parameter
from local_engine.serve.api.errors import InvalidRequest, api_error_of, unknown_model
from local_engine.serve.api.http import Send, send_body
from local_engine.serve.api.prompts import (
    AskedPrompt,
    Prompt,
    Side,
    read_prompts,
    shortened,
    tokens_of,
)
from local_engine.serve.engine import Engine
from local_engine.serve.link import StepFailed


# Counted without these, a prompt would be a different one.
_NOT_TOKENIZED = ("chat_template", "continue_final_message", "documents", "mm_processor_kwargs")
# vLLM's words for vectors of length one.
_ALWAYS_EMBEDDED = ("normalize", "use_activation")


class _Embeddings(msgspec.Struct):
    model: str
    input: Prompt
    encoding_format: str | None = None
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: Side | None = None
    add_special_tokens: bool | None = None
    embed_dtype: Literal["float32"] | None = None
    endianness: Literal["native", "little"] | None = None
    """As OpenAI's clients read base64, whatever the machine."""


class _Detokenize(msgspec.Struct):
    tokens: list[int]
    model: str | None = None


async def answer_embeddings(body: bytes, send: Send, engine: Engine, served_name: str) -> None:
    """The mean of each text's hidden states; not meaningful for a decoder not trained for it."""
    request: _Embeddings = decode_body(body, _Embeddings, (), _ALWAYS_EMBEDDED)
    if request.model != served_name:
        raise unknown_model(served_name)
    if request.dimensions is not None:
        raise unsupported_parameter("dimensions")
    if request.encoding_format not in (None, "float", "base64"):
        raise unsupported_parameter("encoding_format")
    adds_special = request.add_special_tokens is not False
    prompts = await read_prompts(
        engine.tokenizer, request.input, "input", adds_special=adds_special
    )
    if request.truncate_prompt_tokens is not None:
        num_kept, room = request.truncate_prompt_tokens, engine.context_window
        side = request.truncation_side
        prompts = [shortened(prompt, num_kept, room, side) for prompt in prompts]
    data = []
    for index, prompt in enumerate(prompts):
        embedding = await _embed(engine, prompt)
        shown: Any = embedding
        if request.encoding_format == "base64":
            packed = struct.pack(f"<{len(embedding)}f", *embedding)
            shown = base64.b64encode(packed).decode()
        data.append({"object": "embedding", "index": index, "embedding": shown})
    num_tokens = sum(map(len, prompts))
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    answer = {"object": "list", "data": data, "model": served_name, "usage": usage}
    await send_body(send, 200, msgspec.json.encode(answer))


async def _embed(engine: Engine, prompt: list[int]) -> list[float]:
    if len(prompt) > engine.context_window:
        message = str(PromptTooLong(len(prompt), engine.context_window))
        raise InvalidRequest(message, code="context_length_exceeded", param="input")
    if not all(0 <= token < engine.ready.vocab_size for token in prompt):
        message = "input names a token that does not exist."
        raise InvalidRequest(message, code="invalid_value", param="input")
    try:
        return await engine.embed(prompt)
    except StepFailed as error:
        raise api_error_of(error.code, str(error)) from error


async def answer_tokenize(body: bytes, send: Send, engine: Engine) -> None:
    asked: AskedPrompt = decode_body(body, AskedPrompt, _NOT_TOKENIZED)
    tokens = await tokens_of(asked, engine)
    texts = None
    if asked.return_token_strs:
        texts = [engine.tokenizer.token_text(token) for token in tokens]
    answer = {
        "tokens": tokens,
        "count": len(tokens),
        "max_model_len": engine.context_window,
        "token_strs": texts,
    }
    await send_body(send, 200, msgspec.json.encode(answer))


async def answer_detokenize(body: bytes, send: Send, engine: Engine) -> None:
    request: _Detokenize = decode_body(body, _Detokenize, ())
    if not all(0 <= token < engine.ready.vocab_size for token in request.tokens):
        message = "tokens names a token that does not exist."
        raise InvalidRequest(message, code="invalid_value", param="tokens")
    # Whoever looks at a prompt wants to see what the template put between its messages.
    text = engine.tokenizer.decode_with_special(request.tokens)
    await send_body(send, 200, msgspec.json.encode({"prompt": text}))
