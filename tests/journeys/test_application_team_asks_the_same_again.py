"""An application team asks what it asked before: where policy says so, nobody is asked again."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import msgspec
import openai
import pytest

from gateway.store.identity.keys import Place
from tests.faults.envelopes import STYLES, TERMINALS, Caller, Reply, Style, ask
from tests.running_gateway import CLAUDE_TARGET, DEMO, GPT_TARGET, RunningGateway, Upstreams
from tests.upstream_responses import openai_response, openai_response_events
from tests.upstreams import Answer, Fault, events_of, reply_of


pytestmark = pytest.mark.anyio

POLICY = """
name = "again"
version = 1
[defaults]
order = ["cheapest"]
cache_s = 3600
[[constraints]]
name = "never-for-cards"
when = 'data_class >= "S3"'
allow_only = { in_house = true }
no_cache = true
"""
VECTORS = "text-embedding-3-small"
EMBEDDER = f'[targets."{VECTORS}"]\nprovider = "openai"\nmodel = "{VECTORS}"\n'
BOTH_SHAPES = pytest.mark.parametrize("stream", [False, True])
BOTH_STYLES = pytest.mark.parametrize("style", STYLES)
MODELS = {"openai": GPT_TARGET, "anthropic": CLAUDE_TARGET}


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    (tmp_path / "policy.toml").write_text(POLICY)
    more = f'{EMBEDDER}[policy]\nfile = "{tmp_path / "policy.toml"}"'
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as running:
        yield running


@pytest.fixture
async def caller(gateway: RunningGateway, http: aiohttp.ClientSession) -> Caller:
    return Caller(gateway, http, await gateway.issue_key())


def calls(upstreams: Upstreams) -> int:
    return sum(len(each.calls) for each in (upstreams.engine, *upstreams.managed))


def without_comments(reply: Reply) -> bytes:
    """A stream's events; what stands in comments is of the one request."""
    return b"\n".join(line for line in reply.body.split(b"\n") if not line.startswith(b":"))


@BOTH_STYLES
@BOTH_SHAPES
async def test_the_same_request_is_answered_again_and_costs_nothing(
    style: Style, stream: bool, gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    body = ask(style, stream=stream, model=MODELS[style])

    first = await caller.post(style, body)
    again = await caller.post(style, body)

    assert (first.status, again.status) == (200, 200)
    assert calls(upstreams) == 1
    assert first.headers["x-gatewright-cache"] == "miss"
    assert (again.headers["x-gatewright-cache"], again.headers["age"]) == ("hit", "0")
    assert without_comments(again) == without_comments(first)
    assert again.headers["x-gatewright-target"] == MODELS[style]
    intent, outcome = await gateway.records(again.request_id)
    paid = (await gateway.records(first.request_id))[1]
    assert (intent.stage, outcome.status, outcome.attempts) == ("intent", "ok", ())
    assert (outcome.usage, outcome.cost_microusd) == (None, 0)
    assert paid.cost_microusd > 0
    assert outcome.detail["cache_of"] == first.request_id
    assert outcome.detail["cache_saved_microusd"] == str(paid.cost_microusd)


@BOTH_SHAPES
async def test_a_cut_answer_is_recorded_as_such_again_and_saves_nothing_upstream(
    stream: bool, gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    saved = b"x-gatewright-cache-saved-microusd"
    upstreams.openai.answer(Answer(stop="length", cache_read_tokens=5))
    body = ask("openai", stream=stream, model=GPT_TARGET)

    replies = [await caller.post("openai", body) for _ in range(2)]

    outcomes = [(await gateway.records(reply.request_id))[1] for reply in replies]
    assert [outcome.detail.get("cache") for outcome in outcomes] == [None, "hit"]
    assert [outcome.detail["stop_reason"] for outcome in outcomes] == ["length", "length"]
    told = [saved in reply.body + str(reply.headers).encode() for reply in replies]
    assert told == [True, False]


async def test_the_official_clients_read_an_answer_that_is_given_again(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    upstreams.openai.answer(Answer(text="one two three"))
    upstreams.anthropic.answer(Answer(text="one two three"))
    key = await gateway.issue_key()
    question: Any = [{"role": "user", "content": "Count."}]
    async with (
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as gpt,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as claude,
    ):
        for _ in range(2):
            chunks = await gpt.chat.completions.create(
                model=GPT_TARGET, messages=question, stream=True
            )
            said = [chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices]
            assert "".join(said) == "one two three"
            async with claude.messages.stream(
                model=CLAUDE_TARGET, max_tokens=50, messages=question
            ) as events:
                assert await events.get_final_text() == "one two three"

    assert calls(upstreams) == 2


async def test_another_project_and_another_request_get_answers_of_their_own(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    body = ask("openai", model=GPT_TARGET)
    await caller.post("openai", body)
    strangers = [Place("other", "research", "assistant"), Place("acme", "research", "other")]

    for place in strangers:
        reply = await caller.with_key(await gateway.issue_key(place)).post("openai", body)
        assert reply.headers["x-gatewright-cache"] == "miss"
    other = await caller.post("openai", body | {"temperature": 0.5})
    colleague = caller.with_key(await gateway.issue_key(DEMO))
    shared = await colleague.post("openai", body)

    assert other.headers["x-gatewright-cache"] == "miss"
    assert shared.headers["x-gatewright-cache"] == "hit"
    assert calls(upstreams) == 4


async def test_what_is_left_out_of_a_request_is_told_to_who_asked_it_and_to_nobody_else(
    caller: Caller, upstreams: Upstreams
) -> None:
    body = ask("anthropic", model=CLAUDE_TARGET)
    plain = caller.headers("anthropic")

    told = []
    for headers in (plain, plain | {"anthropic-beta": "not-known-2030-01-01"}) * 2:
        reply = await caller.post("anthropic", body, headers)
        told.append(
            (reply.headers["x-gatewright-cache"], reply.headers.get("x-gatewright-dropped"))
        )

    left_out = "anthropic-beta"
    assert told == [("miss", None), ("miss", left_out), ("hit", None), ("hit", left_out)]
    assert calls(upstreams) == 2


async def test_a_key_without_the_target_is_not_given_its_answer(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    body = ask("openai", model=GPT_TARGET)
    await caller.post("openai", body)
    bound = caller.with_key(await gateway.issue_key(models=[CLAUDE_TARGET]))

    refused = await bound.post("openai", body)

    assert refused.status in {403, 404}
    assert calls(upstreams) == 1


async def test_what_is_sensitive_or_somebodys_own_is_not_kept(
    caller: Caller, upstreams: Upstreams
) -> None:
    card = {"role": "user", "content": "My card is 4242 4242 4242 4242, is it valid?"}
    for body in (
        ask("openai", messages=[card]),
        ask("openai", user="customer-7"),
        ask("anthropic", metadata={"user_id": "customer-7"}),
    ):
        style: Style = "anthropic" if "metadata" in body else "openai"
        before = calls(upstreams)
        replies = [await caller.post(style, body) for _ in range(2)]
        assert [reply.status for reply in replies] == [200, 200]
        assert all("x-gatewright-cache" not in reply.headers for reply in replies)
        assert calls(upstreams) == before + 2


async def test_what_continues_an_end_users_answer_is_his_too(
    gateway: RunningGateway, http: aiohttp.ClientSession, upstreams: Upstreams
) -> None:
    headers = {"authorization": f"Bearer {await gateway.issue_key()}"}

    async def asked(**fields: object) -> tuple[str, str | None]:
        body = {"model": GPT_TARGET, "input": "And then?"} | fields
        url = f"{gateway.url}/v1/responses"
        async with http.post(url, json=body, headers=headers) as response:
            assert response.status == 200
            return (await response.json())["id"], response.headers.get("x-gatewright-cache")

    named, _ = await asked(user="customer-7")
    async with http.post(f"{gateway.url}/v1/conversations", json={}, headers=headers) as response:
        conversation = (await response.json())["id"]

    for _ in range(2):
        assert (await asked(previous_response_id=named))[1] is None
        assert (await asked(conversation=conversation))[1] is None
    assert [(await asked())[1] for _ in range(2)] == ["miss", "hit"]
    assert calls(upstreams) == 6


async def test_callers_decide_what_they_take_from_the_cache_and_leave_in_it(
    caller: Caller, upstreams: Upstreams
) -> None:
    body = ask("openai", model=GPT_TARGET)

    async def asked(control: str) -> tuple[str, int]:
        headers = caller.headers("openai") | {"cache-control": control}
        reply = await caller.post("openai", body, headers)
        return reply.headers["x-gatewright-cache"], calls(upstreams)

    assert await asked("no-store") == ("miss", 1)
    assert await asked("max-age=60") == ("miss", 2)
    assert await asked("max-age=60") == ("hit", 2)
    assert await asked("no-cache") == ("miss", 3)
    assert await asked("max-age=nonsense, , ;") == ("hit", 3)


@pytest.mark.parametrize("fault", ["mid_reset", "truncated", "error_event"])
async def test_a_stream_that_broke_is_not_kept(
    fault: Fault, caller: Caller, upstreams: Upstreams
) -> None:
    body = ask("anthropic", stream=True, model=CLAUDE_TARGET)
    upstreams.anthropic.answer(Answer(fault=fault))
    await caller.post("anthropic", body)
    upstreams.anthropic.answer(Answer())

    reply = await caller.post("anthropic", body)

    assert (reply.headers["x-gatewright-cache"], reply.is_cut) == ("miss", False)
    assert TERMINALS["anthropic"] in reply.body


async def test_a_refusal_and_an_answer_that_was_withheld_are_not_kept(
    caller: Caller, upstreams: Upstreams
) -> None:
    body = ask("anthropic", model=CLAUDE_TARGET)
    message = reply_of(Answer(), CLAUDE_TARGET, "anthropic_messages")
    upstreams.anthropic.answer(Answer(status=400))
    refused = await caller.post("anthropic", body)
    upstreams.anthropic.answer(
        Answer(body=msgspec.json.encode(message | {"stop_reason": "refusal"}))
    )
    withheld = await caller.post("anthropic", body)
    upstreams.anthropic.answer(Answer())

    reply = await caller.post("anthropic", body)

    assert (refused.status, withheld.status) == (400, 200)
    assert reply.headers["x-gatewright-cache"] == "miss"


@BOTH_SHAPES
@BOTH_STYLES
@pytest.mark.parametrize("reason", [None, "", "sensitive", "time_limit"])
async def test_an_answer_that_does_not_say_in_known_words_why_it_stopped_is_not_kept(
    reason: str | None, style: Style, stream: bool, caller: Caller, upstreams: Upstreams
) -> None:
    """It may have been cut off or withheld; a caller is given it once, and the next asked anew."""
    body = ask(style, stream=stream, model=MODELS[style])
    said: dict[str, Any] = {"role": "assistant", "content": "Hello."}
    if style == "openai":
        part = "delta" if stream else "message"
        choice = {"index": 0, part: said, "finish_reason": reason}
        upstreams.openai.answer(several([choice], stream=stream))
    else:
        whole = msgspec.json.encode(
            reply_of(Answer(), CLAUDE_TARGET, "anthropic_messages") | {"stop_reason": reason}
        )
        events = tuple(
            event.replace(b'"end_turn"', msgspec.json.encode(reason))
            for event in events_of(Answer(), {"model": CLAUDE_TARGET}, "anthropic_messages")
        )
        upstreams.anthropic.answer(Answer(events=events) if stream else Answer(body=whole))
    replies = [await caller.post(style, body) for _ in range(2)]
    assert [reply.status for reply in replies] == [200, 200]
    assert [reply.headers["x-gatewright-cache"] for reply in replies] == ["miss", "miss"]


@BOTH_SHAPES
@pytest.mark.parametrize(("text", "is_met"), [("No.", False), ('{"a": 1}', True)])
async def test_an_answer_in_another_format_than_was_asked_for_is_not_kept(
    text: str, is_met: bool, stream: bool, caller: Caller, upstreams: Upstreams
) -> None:
    upstreams.anthropic.answer(Answer(text=text))
    fields: dict[str, Any] = {"model": CLAUDE_TARGET, "response_format": {"type": "json_object"}}
    body = ask("openai", stream=stream, **fields)

    replies = [await caller.post("openai", body) for _ in range(2)]

    told = [reply.headers["x-gatewright-cache"] for reply in replies]
    assert told == ["miss", "hit" if is_met else "miss"]
    unmet = [b"x-gatewright-schema" in each.body + str(each.headers).encode() for each in replies]
    assert unmet == [not is_met] * 2


@BOTH_SHAPES
@pytest.mark.parametrize(
    ("status", "reason", "is_kept"),
    [
        ("completed", None, True),
        ("incomplete", "max_output_tokens", True),
        ("incomplete", "content_filter", False),
        ("incomplete", "max_tool_calls", False),
        ("in_progress", None, False),
        (None, None, False),
    ],
)
async def test_a_response_is_kept_where_it_ended_for_a_known_reason(
    status: str | None,
    reason: str | None,
    is_kept: bool,
    stream: bool,
    gateway: RunningGateway,
    http: aiohttp.ClientSession,
    upstreams: Upstreams,
) -> None:
    ended = openai_response(Answer(), GPT_TARGET) | {"status": status}
    ended["incomplete_details"] = {"reason": reason} if reason else None
    kind = "response.incomplete" if reason else "response.completed"
    *before, _ = openai_response_events(Answer(), {"model": GPT_TARGET})
    last = b"event: %b\ndata: %b\n\n" % (
        kind.encode(),
        msgspec.json.encode({"type": kind, "sequence_number": len(before), "response": ended}),
    )
    whole = Answer(body=msgspec.json.encode(ended))
    upstreams.openai.answer(Answer(events=(*before, last)) if stream else whole)
    body = {"model": GPT_TARGET, "input": "Good morning", "stream": stream, "store": False}
    headers = {"authorization": f"Bearer {await gateway.issue_key()}"}
    told = []
    for _ in range(2):
        url = f"{gateway.url}/v1/responses"
        async with http.post(url, json=body, headers=headers) as response:
            await response.read()
            told.append((response.status, response.headers["x-gatewright-cache"]))

    assert told == [(200, "miss"), (200, "hit" if is_kept else "miss")]


@BOTH_SHAPES
@pytest.mark.parametrize("is_refused", [False, True])
async def test_of_several_answers_all_are_kept_or_none(
    stream: bool, is_refused: bool, caller: Caller, upstreams: Upstreams
) -> None:
    """What was withheld of the second one is a mishap as well."""
    body = ask("openai", stream=stream, model=GPT_TARGET, n=2)
    said: dict[str, Any] = {"role": "assistant", "content": "Hello."}
    other: dict[str, Any] = {"role": "assistant", "content": None}
    other |= {"refusal": "I cannot say."} if is_refused else {}
    reason = "stop" if is_refused else "content_filter"
    for last, is_whole in (((other, reason), False), ((said, "stop"), True)):
        ends = [(said, "stop"), last]
        part = "delta" if stream else "message"
        choices = [
            {"index": at, part: each, "finish_reason": end} for at, (each, end) in enumerate(ends)
        ]
        upstreams.openai.answer(several(choices, stream=stream))
        replies = [await caller.post("openai", body) for _ in range(2)]
        assert [reply.status for reply in replies] == [200, 200]
        told = [reply.headers["x-gatewright-cache"] for reply in replies]
        assert told == ["miss", "hit" if is_whole else "miss"]


def several(choices: list[dict[str, Any]], *, stream: bool) -> Answer:
    """An answer of these choices."""
    kind = "chat.completion.chunk" if stream else "chat.completion"
    usage = {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    wire = {"id": "c", "object": kind, "created": 1, "model": "m"}
    if not stream:
        return Answer(body=msgspec.json.encode(wire | {"choices": choices, "usage": usage}))
    chunks = [wire | {"choices": [each]} for each in choices]
    chunks.append(wire | {"choices": [], "usage": usage})
    events = [b"data: %b\n\n" % msgspec.json.encode(each) for each in chunks]
    return Answer(events=(*events, b"data: [DONE]\n\n"))


async def test_vectors_are_given_again(gateway: RunningGateway, upstreams: Upstreams) -> None:
    vector = {"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}
    usage = {"prompt_tokens": 2, "total_tokens": 2}
    listed = {"object": "list", "model": VECTORS, "data": [vector], "usage": usage}
    upstreams.openai.answer(Answer(body=msgspec.json.encode(listed)))
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        vectors = [
            (
                await client.embeddings.create(
                    model=VECTORS, input=["a text"], encoding_format="float"
                )
            )
            .data[0]
            .embedding
            for _ in range(2)
        ]

    assert vectors == [[0.25, -0.5]] * 2
    assert calls(upstreams) == 1


OUTSIDE = """
[inspection]
tolerated_opaque = ["image", "unknown"]
[requests]
media_hosts = ["pictures.example.com"]
tool_server_hosts = ["tools.example.com"]
"""
PICTURE = {"type": "image_url", "image_url": {"url": "https://pictures.example.com/today.png"}}
SERVER = {"type": "mcp", "server_label": "deeds", "server_url": "https://tools.example.com/mcp"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
PLAIN_TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}


async def test_what_depends_on_more_than_was_sent_is_not_kept(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    """Another picture may lie there, and a deed that was done once is told of once."""
    (tmp_path / "policy.toml").write_text(POLICY)
    more = f'{OUTSIDE}[policy]\nfile = "{tmp_path / "policy.toml"}"'
    shown = [{"role": "user", "content": [PICTURE]}]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", ask("openai", model=GPT_TARGET, messages=shown)),
        ("/v1/responses", {"model": GPT_TARGET, "input": "Order it.", "tools": [SERVER]}),
        ("/v1/messages", ask("anthropic", model=CLAUDE_TARGET, tools=[SEARCH])),
        ("/v1/responses", {"model": GPT_TARGET, "input": "Order it.", "tools": [PLAIN_TOOL]}),
    ]
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        headers = {"authorization": f"Bearer {await gateway.issue_key()}"}
        told = []
        for path, body in [each for each in asked for _ in range(2)]:
            async with http.post(gateway.url + path, json=body, headers=headers) as response:
                told.append((response.status, response.headers.get("x-gatewright-cache")))

    nothing = (200, None)
    assert told == [*[nothing] * 6, (200, "miss"), (200, "hit")]
