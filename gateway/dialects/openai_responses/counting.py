"""OpenAI's `responses/input_tokens`: counts the tokens of a request instead of answering it."""

from collections.abc import Sequence

import msgspec
from msgspec import structs

from gateway.dialects.bodies import body
from gateway.dialects.bodies.strict_json import decode_object
from gateway.dialects.counted import read_count
from gateway.dialects.openai_responses import request as requests
from gateway.dialects.openai_responses.dialect import OpenAIResponses
from gateway.ports import UpstreamBody
from gateway.thread import Thread
from gateway.types import ChatRequest, Completion, DialectName, Target
from policies.facts import AUTO


UNCOUNTED = frozenset(
    {
        *("access_programs", "background", "context_management", "image", "include"),
        *("max_output_tokens", "max_tool_calls", "metadata", "moderation", "prompt"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "store", "stream", "stream_options"),
        *("temperature", "top_logprobs", "top_p", "user"),
    }
)
"""Fields that a response request may have but a count may not: none makes the input longer."""


class OpenAITokenCount(OpenAIResponses):
    """Stateless. Policy and inspection see the response that would be asked for."""

    def decode_request(
        self, raw: bytes, request_id: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> ChatRequest:
        """A Responses request that stores nothing, never streams and uses up no tokens.

        The vendor lets a count name no model and bring no input: policy then chooses, as for
        `auto`, and the instructions, the tools or the continued thread are counted.
        """
        del headers
        tree = decode_object(raw)
        absent = {"model": AUTO, "input": ""}
        tree |= {name: value for name, value in absent.items() if tree.get(name) is None}
        asked = requests.read_request(tree, raw, request_id)
        thread = asked.thread or Thread()
        return structs.replace(
            asked,
            stream=False,
            max_output_tokens=None,
            input_tokens_most=0,
            thread=structs.replace(thread, keeps=False, background=False),
        )

    def encode_request(
        self, request: ChatRequest, target: Target, output_tokens_cap: int
    ) -> UpstreamBody:
        """The caller's own bytes with the model set and without fields that a count rejects."""
        cap = max(output_tokens_cap, requests.OUTPUT_TOKENS_MIN)
        asked = requests.patch_request(request, target, cap)
        counted = {
            name: value for name, value in body.split(asked.body).items() if name not in UNCOUNTED
        }
        return structs.replace(asked, body=body.join(counted))

    def decode_reply(self, raw: bytes) -> Completion:
        return read_count(raw)

    def encode_reply(
        self, completion: Completion, source: DialectName, request: ChatRequest
    ) -> bytes:
        """The vendor's own answer, or our estimate in the same format."""
        del source, request
        counted = {
            "object": "response.input_tokens",
            "input_tokens": completion.usage.input_tokens,
        }
        return completion.raw or msgspec.json.encode(counted)
