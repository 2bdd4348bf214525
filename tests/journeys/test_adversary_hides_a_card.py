"""Whoever hides a card's number in some corner of some door sends it to nobody but the house."""

import base64
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.identifiers import card
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio

CARD = card(11)
FOURS = [CARD[at : at + 4] for at in range(0, 16, 4)]
LINES = base64.b64encode(f"name\tcard\r\nInge\t{CARD}\r\n".encode()).decode()
CODED = base64.b64encode(CARD.encode()).decode().rstrip("=")
HELLO = {"role": "user", "content": "Hello"}


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": GPT_TARGET, "messages": [HELLO, *messages], **fields}


def called(arguments: str, name: str = "call_1") -> tuple[dict[str, Any], dict[str, Any]]:
    function = {"name": "pay", "arguments": arguments}
    calls = [{"id": name, "type": "function", "function": function}]
    answer = {"role": "tool", "tool_call_id": name, "content": "ok"}
    return {"role": "assistant", "content": None, "tool_calls": calls}, answer


def used(given: dict[str, Any]) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": given}
    done = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
    turns = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [done]}]
    return {"model": CLAUDE_TARGET, "max_tokens": 30, "messages": [HELLO, *turns]}


def response(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": GPT_TARGET, "input": [*items, HELLO], **fields}


def thought(*texts: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "rs_1", "summary": summary}


MARKUP = "<b>{}</b> <b>{}</b> <b>{}</b> <b>{}</b>".format(*FOURS)
CELLS = "<tr>{}</tr>".format("".join(f"<td class=c>{four}</td>\n" for four in FOURS))
ITEMS = "\n".join(f"{at}. {four}" for at, four in enumerate(FOURS, start=1))
CIRCLED = "".join(chr(0x2780 + int(digit) - 1) if digit > "0" else "\U0001f10b" for digit in CARD)
DOORS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", chat({"role": "user", "content": "\n".join(FOURS)})),
    ("/v1/chat/completions", chat({"role": "user", "content": MARKUP})),
    ("/v1/chat/completions", chat({"role": "user", "content": CELLS})),
    ("/v1/chat/completions", chat(*called(json.dumps({"it": ITEMS})))),
    ("/v1/messages", used({"it": f"use part1={CARD[:8]}, part2={CARD[8:]}"})),
    ("/v1/completions", {"model": GPT_TARGET, "prompt": CIRCLED}),
    ("/v1/chat/completions", chat(*called(json.dumps({"it": FOURS})))),
    ("/v1/chat/completions", chat(*called("{}", f"call_a{CARD}"))),
    ("/v1/chat/completions", chat(*called("{}", f"call_{CODED}"))),
    ("/v1/chat/completions", chat(prompt_cache_key=f"ses_{CODED}")),
    ("/v1/chat/completions", chat(stop=FOURS)),
    ("/v1/chat/completions", chat(user=f"cc{CARD}", metadata={"it": LINES})),
    ("/v1/messages", used({"it": [int(four) for four in FOURS]})),
    ("/v1/messages", used({"it": list(CARD)})),
    ("/v1/messages", used({"type": "Buffer", "data": list(CARD.encode())})),
    ("/v1/messages/count_tokens", used({"it": FOURS})),
    ("/v1/responses", response(thought(CARD[:9], CARD[9:]))),
    ("/v1/responses", response({"type": "message", "id": f"msg_a{CARD}", **HELLO})),
    ("/v1/responses", response(instructions="=\n".join((CARD[:7], CARD[7:])))),
    ("/v1/responses/input_tokens", response(thought("\u0301".join(CARD)))),
    ("/v1/completions", {"model": GPT_TARGET, "prompt": json.dumps(list(CARD.encode()))}),
    (
        f"/openai/deployments/{GPT_TARGET}/chat/completions?api-version=2024-10-21",
        {"messages": [{"role": "user", "content": "', '".join(FOURS)}]},
    ),
]


@pytest.mark.parametrize("is_engine_up", [True, False])
async def test_no_corner_of_any_door_hides_it(
    gateway: RunningGateway, upstreams: Upstreams, *, is_engine_up: bool
) -> None:
    if not is_engine_up:
        await upstreams.engine.stop()
    key = await gateway.issue_key()
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:
        for path, body in DOORS:
            async with http.post(gateway.url + path, json=body) as reply:
                status, said = reply.status, await reply.text()
            # Without the engine a count is ours, until a probe has failed.
            refused = {503, 529, 200} if "_tokens" in path else {503, 529}
            assert status in ({200} if is_engine_up else refused), (path, body, said)
            assert CARD not in said
            assert not upstreams.anthropic.calls, (path, body)
            assert not upstreams.openai.calls, (path, body)


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        ("My card is {} {}", "{} {}, the rest of it"),
        ("{} {}", "{} {}, and that is all"),
    ],
)
async def test_no_later_turn_says_the_rest_of_what_an_earlier_one_began(
    gateway: RunningGateway, upstreams: Upstreams, begun: str, rest: str
) -> None:
    key = await gateway.issue_key()
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:
        first = {"model": GPT_TARGET, "input": begun.format(*FOURS[:2])}
        async with http.post(f"{gateway.url}/v1/responses", json=first) as reply:
            assert reply.status == 200
            name = (await reply.json())["id"]
        calls = len(upstreams.openai.calls)
        more = {"previous_response_id": name, "input": rest.format(*FOURS[2:])}
        async with http.post(
            f"{gateway.url}/v1/responses", json={"model": GPT_TARGET, **more}
        ) as reply:
            assert reply.status == 200
    assert len(upstreams.openai.calls) == calls
    assert not upstreams.anthropic.calls


async def test_parts_that_stand_in_no_message_are_no_request(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key()
    halves = [{"type": "input_text", "text": text} for text in (CARD[:9], CARD[9:])]
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:
        body = {"model": GPT_TARGET, "input": halves}
        async with http.post(f"{gateway.url}/v1/responses", json=body) as reply:
            error = (await reply.json())["error"]

    assert (reply.status, error["param"]) == (400, "input[0].type")
    assert not upstreams.openai.calls


VECTORS = "text-embedding-3-small"
EMBEDDER = f'[targets."{VECTORS}"]\nprovider = "openai"\nmodel = "{VECTORS}"\n'
WHOLE: list[Any] = [CARD, "\n".join(FOURS), LINES, "\u200b".join(CARD), FOURS, [CARD[:8], CARD[8:]]]
HALVES: list[Any] = [[4242, 4242], [[1, 2, 3]], [ord(digit) for digit in CARD], ["text", [1, 2]]]


async def test_no_vector_is_made_of_it_outside(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> None:
    async with (
        RunningGateway(tmp_path, sqlite_url, upstreams, more=EMBEDDER) as gateway,
        aiohttp.ClientSession() as http,
    ):
        headers = {"authorization": f"Bearer {await gateway.issue_key()}"}
        fields: list[dict[str, Any]] = [
            *({"input": each} for each in (*WHOLE, *HALVES)),
            {"input": "Hello", "user": f"cc{CARD}"},
            {"input": "Hello", CARD: 1},
        ]
        for body in fields:
            sent = {"model": VECTORS, **body}
            async with http.post(
                f"{gateway.url}/v1/embeddings", json=sent, headers=headers
            ) as reply:
                assert reply.status == (400 if body["input"] in HALVES else 403), body
        assert not upstreams.openai.calls
        sent = {"model": VECTORS, "input": ["Hello", "again"]}
        async with http.post(f"{gateway.url}/v1/embeddings", json=sent, headers=headers):
            assert upstreams.openai.calls
