"""Reads the accepted forms of prompts: one or several, as text or as token ids."""

import asyncio
from functools import partial
from typing import Literal

import msgspec

from local_engine.serve.api.chat_request import (
    Effort,
    Json,
    Message,
    Tool,
    messages_of,
    tools_of,
    variables_of,
)
from local_engine.serve.api.errors import InvalidRequest
from local_engine.serve.engine import Engine
from local_engine.text.errors import PromptRefused
from local_engine.text.tokenizer import ChatTokenizer


MAX_PROMPTS = 64
# msgspec cannot distinguish lists by their content, so the check is ours.
Prompt = str | list[str | int | list[int]]
Side = Literal["left", "right"]
"""The side from which a prompt is cut; by default the left."""


class AskedPrompt(msgspec.Struct):
    """A text, or the parts of a chat that make its prompt: to be read, not answered."""

    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    tool_choice: str | Json | None = None
    chat_template_kwargs: Json | None = None
    reasoning_effort: Effort | None = None
    add_special_tokens: bool | None = None
    """For a text; a chat's come from its template."""
    return_token_strs: bool | None = None
    model: str | None = None


async def tokens_of(asked: AskedPrompt, engine: Engine) -> list[int]:
    """The tokens from which the same text or chat is answered; raises `InvalidRequest`."""
    if (asked.prompt is None) == (asked.messages is None):
        raise _invalid("Either prompt or messages is needed.", "prompt")
    if asked.messages is None:
        adds_special = asked.add_special_tokens is not False
        (tokens,) = await read_prompts(
            engine.tokenizer, asked.prompt or "", adds_special=adds_special
        )
        return tokens
    messages = messages_of(asked.messages)
    tools = () if asked.tool_choice == "none" else tools_of(asked.tools or [])
    try:
        variables = variables_of(asked.chat_template_kwargs, asked.reasoning_effort)
        return await engine.encode_chat(messages, tools, variables)
    except PromptRefused as error:
        raise _invalid(str(error), "messages") from error


async def read_prompts(
    tokenizer: ChatTokenizer, given: Prompt, param: str = "prompt", *, adds_special: bool = True
) -> list[list[int]]:
    """Token ids of each prompt; raises `InvalidRequest` for an empty or a mixed one.

    `adds_special` says whether texts get the special tokens that the tokenizer puts around them.
    """
    encode = partial(tokenizer.encode_text, adds_special=adds_special)
    if isinstance(given, str):
        texts: list[str | list[int]] = [given]
    elif given and all(isinstance(entry, int) for entry in given):
        texts = [[entry for entry in given if isinstance(entry, int)]]
    else:
        texts = [entry for entry in given if not isinstance(entry, int)]
        if len(texts) != len(given):
            raise _invalid(f"{param} mixes token ids with texts.", param)
    if not 1 <= len(texts) <= MAX_PROMPTS:
        raise _invalid(f"{param} needs between 1 and {MAX_PROMPTS} entries.", param)
    try:
        found = [
            await asyncio.to_thread(encode, text) if isinstance(text, str) else text
            for text in texts
        ]
    except PromptRefused as error:
        raise _invalid(str(error), param) from error
    if not all(found):
        raise _invalid(f"{param} is empty.", param)
    return found


def shortened(tokens: list[int], num_kept: int, most: int, side: Side | None) -> list[int]:
    """`num_kept` tokens of a prompt cut from `side`, -1 for as many as there is room for (`most`).

    Raises `InvalidRequest` for any other value.
    """
    if num_kept == -1:
        num_kept = max(1, most)
    if num_kept < 1:
        raise _invalid("truncate_prompt_tokens must be -1 or at least 1.", "truncate_prompt_tokens")
    return tokens[:num_kept] if side == "right" else tokens[-num_kept:]


def _invalid(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_value", param=param)
