"""Prompt log-probabilities in vLLM's format: how likely the model found each prompt token."""

from collections.abc import Sequence as Many
from typing import Any

from local_engine.serve.wire import Token
from local_engine.text.tokenizer import ChatTokenizer


Json = dict[str, Any]


def prompt_scores(
    tokens: Many[Token], num_top: int, tokenizer: ChatTokenizer
) -> list[dict[str, Json] | None]:
    """One entry for each token of the prompt: by id the token itself, then the likeliest ones.

    `tokens` are those after the first one: nothing comes before that, so nothing says how likely it
    was.
    """
    return [None, *(_entry(token, num_top, tokenizer) for token in tokens)]


def _entry(token: Token, num_top: int, tokenizer: ChatTokenizer) -> dict[str, Json]:
    ranked = [(token.token_id, token.logprob, token.rank)]
    ranked += [(each, logprob, at) for at, (each, logprob) in enumerate(token.top[:num_top], 1)]
    found: dict[str, Json] = {}
    for token_id, logprob, rank in ranked:
        text = tokenizer.token_text(token_id)
        entry = {"logprob": logprob, "rank": rank, "decoded_token": text}
        found.setdefault(str(token_id), entry)
    return found
