"""Arguments of calls that are no JSON, on their way to Anthropic's own client."""

import json
from typing import Any

import anthropic
import pytest

from tests.conformance.test_rules_of_responses import response
from tests.gateway.dialects.samples import sse
from tests.running_gateway import DEMO, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


WRITTEN: list[tuple[list[str], Any]] = [
    (['{"city":', ' "Bonn"}'], {"city": "Bonn"}),
    (['{"city":', " Bonn}"], None),
    (['{"city": "Bonn",}'], None),
    (['{"city": "Bonn"}', "}"], None),
    (["{'city': 1}"], None),
    (['{"city": "Bo'], None),
    (["Bonn"], None),
    (["", " "], {}),
]


def calling(pieces: list[str]) -> Answer:
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": "weather"}
    whole, where = item | {"arguments": "".join(pieces)}, {"output_index": 0}
    said = [
        sse("response.created", response=response(status="in_progress", usage=None)),
        sse("response.output_item.added", **where, item=item | {"arguments": ""}),
    ]
    said += [
        sse("response.function_call_arguments.delta", **where, item_id="fc_1", delta=piece)
        for piece in pieces
    ]
    said += (
        sse("response.output_item.done", **where, item=whole),
        sse("response.completed", response=response(whole)),
    )
    return Answer(events=tuple(said))


async def told(
    gateway: RunningGateway, upstreams: Upstreams, pieces: list[str], **tool: Any
) -> tuple[Any, list[str]]:
    """The call's input as the client has it in the end, and the pieces that it got."""
    key = await gateway.issue_key(DEMO)
    upstreams.openai.answer_once(calling(pieces))
    schema = {"type": "object", "properties": {}}
    async with (
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0) as client,
        client.messages.stream(
            model=GPT_TARGET,
            max_tokens=50,
            messages=[{"role": "user", "content": "How is it?"}],
            tools=[{"name": "weather", "input_schema": schema, **tool}],  # type: ignore[list-item]
        ) as stream,
    ):
        heard = [event.partial_json async for event in stream if event.type == "input_json"]
        answer = await stream.get_final_message()
    (use,) = (block for block in answer.content if block.type == "tool_use")
    return use.input, heard


@pytest.mark.anyio
@pytest.mark.parametrize(("pieces", "meant"), WRITTEN)
async def test_rule_16_a_stream_of_broken_arguments_is_an_object_to_anthropics_client(
    gateway: RunningGateway, upstreams: Upstreams, pieces: list[str], meant: Any
) -> None:
    read, heard = await told(gateway, upstreams, pieces)
    whole = "".join(pieces)
    assert read == ({"_raw_arguments": whole} if meant is None else meant)
    assert [json.loads(each) for each in heard] == ([read] if whole.strip() else [])


@pytest.mark.anyio
async def test_a_tool_that_wants_its_arguments_as_they_come_gets_them_so(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    pieces = ['{"city":', ' "Bonn"}']
    read, heard = await told(gateway, upstreams, pieces, eager_input_streaming=True)
    assert (read, heard) == ({"city": "Bonn"}, pieces)
