"""Prompts as they may be written: one or several, as text or as token ids."""

import asyncio

from local_engine.serve.errors import InvalidRequest
from local_engine.text.tokenizer import ChatTokenizer


MAX_PROMPTS = 64
# msgspec cannot tell lists apart by their content, so the check is ours.
Prompt = str | list[str | int | list[int]]


async def read_prompts(
    tokenizer: ChatTokenizer, given: Prompt, param: str = "prompt"
) -> list[list[int]]:
    """Token ids of each prompt; raises `InvalidRequest` for an empty or a mixed one."""
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
    found = [
        await asyncio.to_thread(tokenizer.encode_text, text) if isinstance(text, str) else text
        for text in texts
    ]
    if not all(found):
        raise _invalid(f"{param} is empty.", param)
    return found


def _invalid(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_value", param=param)
