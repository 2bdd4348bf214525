"""What a client got, given back as it is to another target: programs keep the SDK's own objects."""

from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest
from anyio import to_thread

from gateway.types import DialectName
from tests.conformance.round_trips import cells
from tests.conformance.round_trips.asked import read
from tests.conformance.round_trips.heard import Callers
from tests.conformance.round_trips.said import Call, Said, SpeakingUpstreams
from tests.conformance.round_trips.shapes import ASKED, TOOLS, USER
from tests.running_gateway import CLAUDE_TARGET, RunningGateway


pytestmark = pytest.mark.anyio

SETTINGS = cells.SETTINGS
CALLS = (
    Call("age_of", {"name": "Old Bridge"}, "call_1"),
    Call("age_of", {"name": "New \u2028 Bridge"}, "call_2"),
)
SAID = Said(thought="Two bridges.", seal="c2VhbGVk", text="Let me see.", calls=CALLS, end="tool")
RESULTS = {"call_1": "120", "call_2": "7"}
SEALING = (CLAUDE_TARGET, cells.GPT_TARGET)
"""Those whose thoughts are sealed here, whoever asks."""
VENDORS = {CLAUDE_TARGET: "anthropic", cells.OLD_GPT_TARGET: "openai", cells.GPT_TARGET: "openai"}


@pytest.fixture(scope="module")
async def shared_upstreams() -> AsyncIterator[SpeakingUpstreams]:
    async with SpeakingUpstreams() as running:
        yield running


@pytest.fixture
async def callers(shared_gateway: RunningGateway, shared_key: str) -> AsyncIterator[Callers]:
    clients = Callers(shared_gateway.url, shared_key)
    yield clients
    await clients.close()


def first(caller: DialectName, target: str) -> dict[str, Any]:
    name = cells.NAMES[caller]
    asked: dict[str, Any] = {"input": [USER]} if name == "responses" else {"messages": [USER]}
    limit = {"max_tokens": 256} if name == "messages" else {}
    return {"model": target, "tools": TOOLS[name]} | asked | limit


def second(caller: DialectName, ask: dict[str, Any], made: Any, target: str) -> dict[str, Any]:
    """The same request, with the answer's own objects and the results behind it."""
    if caller == "openai_responses":
        results: list[Any] = [
            {"type": "function_call_output", "call_id": each, "output": told}
            for each, told in RESULTS.items()
        ]
        return ask | {"model": target, "input": [USER, *made.output, *results]}
    if caller == "openai_chat":
        results = [
            {"role": "tool", "tool_call_id": each, "content": told}
            for each, told in RESULTS.items()
        ]
        turns = [USER, made.choices[0].message, *results]
        return ask | {"model": target, "messages": turns}
    content = [
        {"type": "tool_result", "tool_use_id": each, "content": told}
        for each, told in RESULTS.items()
    ]
    said = {"role": "assistant", "content": made.content}
    return ask | {
        "model": target,
        "messages": [USER, said, {"role": "user", "content": content}],
    }


SPOKEN = [
    *ASKED,
    ["assistant", ["text", SAID.text], *(["call", c.tool_id, c.name, c.arguments] for c in CALLS)],
    ["user", *(["result", each, told] for each, told in RESULTS.items())],
]


def without_thoughts(turns: list[list[Any]]) -> list[list[Any]]:
    return [
        [turn[0], *(part for part in turn[1:] if part[0] not in {"thought", "sealed"})]
        for turn in turns
    ]


@pytest.mark.parametrize("caller", cells.NAMES)
@pytest.mark.parametrize("streams", [False, True])
async def test_an_answers_own_objects_can_be_given_back_to_every_target(
    callers: Callers, shared_upstreams: SpeakingUpstreams, caller: DialectName, streams: bool
) -> None:
    for one, other in product(cells.TARGETS, repeat=2):
        ask = first(caller, one)
        shared_upstreams.say(SAID)
        if streams:
            made = await callers.put_together(caller, ask)
        else:
            made = await to_thread.run_sync(callers.made_in_turn, caller, ask)
        shared_upstreams.say(Said(text="120 and 7."))

        heard, _ = await callers.whole(caller, second(caller, ask, made, other))

        assert heard["text"] == "120 and 7.", (one, other)
        (call,) = shared_upstreams.calls
        turns = read(call.path, call.json)["turns"]
        assert without_thoughts(turns) == SPOKEN, (one, other)
        thoughts = [part for part in turns[1][1:] if part[0] in {"thought", "sealed"}]
        if one == other and one in SEALING:
            assert [part[-1] for part in thoughts] == [SAID.seal], (one, other)
        elif VENDORS.get(one) != VENDORS.get(other):
            assert SAID.seal not in str(thoughts), (one, other)
