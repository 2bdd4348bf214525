"""Prepared templates for the stream events that repeat with every piece of a response."""

from collections.abc import Mapping
from typing import Final


def _piece(kind: str, place: str, more: str = "") -> bytes:
    return (
        f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":%d,"item_id":%b,'
        f'"output_index":%d,{place}"delta":%b{more}}}\n\n'
    ).encode()


PIECES: Final[Mapping[str, bytes]] = {
    "text": _piece("response.output_text.delta", '"content_index":0,', ',"logprobs":[]'),
    "likely": _piece("response.output_text.delta", '"content_index":0,', ',"logprobs":%b'),
    "refusal": _piece("response.refusal.delta", '"content_index":0,'),
    "thinking": _piece("response.reasoning_summary_text.delta", '"summary_index":0,'),
    "call": _piece("response.function_call_arguments.delta", ""),
}
"""By kind of piece. Filled in are the number, the item, its place and the piece; for `likely` also
the piece's tokens."""
