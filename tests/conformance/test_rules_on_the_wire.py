"""Rules of translation that only a whole gateway can keep: over HTTP, with recording upstreams."""

import asyncio
import hashlib
from typing import Any

import anthropic
import msgspec
import openai
import pytest
from anthropic import beta_async_tool

from gateway.store.identity.keys import Place
from gateway.types import Translation
from tests.faults.envelopes import STYLES, Caller, Style, ask, check_error, only_outcome, untouched
from tests.running_gateway import CLAUDE_TARGET, DEMO, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

SETTINGS = """
[requests]
media_hosts = ["images.example.com"]
[inspection]
deadline_s = 5.0
tolerated_opaque = ["image"]
"""
OTHER_ORGANISATION = Place("rival", "research", "assistant")
URLS = [
    "http://images.example.com/a.png",
    "https://images.example.com.evil.test/a.png",
    "https://images.example.com@evil.test/a.png",
    "https://evil.test/https://images.example.com/",
    "https://IMAGES.example.com/a.png",
    "https://images.example.com:8443/a.png",
    "https://images.example.com\\@evil.test/",
    "file:///etc/passwd",
    "//images.example.com/a.png",
    "",
]


def image(style: Style, url: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    if style == "anthropic":
        part = {"type": "image", "source": {"type": "url", "url": url}}
    return {"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}


async def translating(gateway: RunningGateway, translation: Translation) -> str:
    return await gateway.issue_key(DEMO, translation=translation)


USER: Any = {"role": "user", "content": "Good morning"}
SEALED: Any = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
UNREADABLE = Answer(
    status=400,
    body=b'{"error":{"message":"It could not be verified.","code":"invalid_encrypted_content"}}',
)


@pytest.mark.parametrize("times", [1, 2])
async def test_rule_30_reasoning_that_an_upstream_cannot_read_is_left_out_once(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams, times: int
) -> None:
    upstreams.openai.answer_once(*[UNREADABLE] * times)
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=0
    ) as gpt:
        asking = gpt.responses.with_raw_response.create(
            model=GPT_TARGET, input=[USER, SEALED, USER], max_output_tokens=50
        )
        if times == 1:
            headers = (await asking).headers
            assert headers["x-gatewright-dropped"] == "input.reasoning"
        else:
            with pytest.raises(openai.BadRequestError) as caught:
                await asking
            headers = caught.value.response.headers

    first, second = (call.json["input"] for call in upstreams.openai.calls)
    assert (first, second) == ([USER, SEALED, USER], [USER, USER])
    outcome = (await gateway.records(headers["x-request-id"]))[-1]
    assert [each.status for each in outcome.attempts] == [400, 400 if times == 2 else 200]


async def test_rule_30_a_strict_key_hears_that_its_reasoning_cannot_be_read(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    upstreams.openai.answer_once(UNREADABLE)
    key = await translating(gateway, "strict")
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as gpt:
        with pytest.raises(openai.BadRequestError) as caught:
            await gpt.responses.create(
                model=GPT_TARGET, input=[USER, SEALED, USER], max_output_tokens=50
            )

    assert caught.value.code == "invalid_encrypted_content"
    assert len(upstreams.openai.calls) == 1


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("url", URLS)
async def test_nothing_in_a_request_names_a_place_to_fetch_from(
    caller: Caller, upstreams: Upstreams, style: Style, url: str
) -> None:
    body = ask(style, model=CLAUDE_TARGET, messages=[image(style, url)])

    reply = await caller.post(style, body)

    check_error(reply, style, "unsupported_parameter")
    assert url == "" or url not in reply.body.decode()
    assert untouched(upstreams)


@pytest.mark.parametrize("style", STYLES)
async def test_a_host_that_an_administrator_named_may_be_fetched_from(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    url = "https://images.example.com/a.png?size=1"
    body = ask(style, model=CLAUDE_TARGET, messages=[image(style, url)])

    assert (await caller.post(style, body)).status == 200
    assert url.encode() in upstreams.anthropic.calls[0].body


async def test_a_tool_server_is_refused_before_anything_is_sent(
    caller: Caller, upstreams: Upstreams
) -> None:
    server = {"type": "url", "url": "https://images.example.com/mcp", "name": "x"}
    body = ask("anthropic", model=CLAUDE_TARGET, mcp_servers=[server])

    await caller.refused("anthropic", body, "unsupported_parameter")

    assert untouched(upstreams)


async def test_rule_21_who_names_no_limit_gets_a_moderate_one_and_reserves_no_more(
    caller: Caller, upstreams: Upstreams
) -> None:
    body = ask("openai", model=CLAUDE_TARGET)
    del body["max_tokens"]
    reply = await caller.post("openai", body)

    assert upstreams.anthropic.calls[0].json["max_tokens"] == 16_384
    intent = (await caller.gateway.records(reply.request_id))[0]
    assert intent.reserved_microusd < 16_384 * 20 + 10_000


@pytest.mark.parametrize("translation", ["strict", "warn", "lenient"])
async def test_what_a_dialect_has_no_word_for_is_refused_named_or_recorded_as_the_key_says(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams, translation: Translation
) -> None:
    caller = caller.with_key(await translating(gateway, translation))
    reply = await caller.post("openai", ask("openai", model=CLAUDE_TARGET, seed=7))

    if translation == "strict":
        check_error(reply, "openai", "unsupported_parameter")
        assert reply.tree["error"]["param"] == "seed"
        assert untouched(upstreams)
        return
    assert reply.status == 200
    assert reply.headers.get("x-gatewright-dropped") == ("seed" if translation == "warn" else None)
    outcome = await only_outcome(gateway, reply.request_id, "ok", "")
    assert outcome.dropped == ("seed",)


async def test_a_request_that_no_target_can_be_asked_is_refused_before_money_is_reserved(
    caller: Caller, upstreams: Upstreams
) -> None:
    await caller.refused("openai", ask("openai", model=CLAUDE_TARGET, n=2), "unsupported_parameter")

    assert untouched(upstreams)


async def test_rule_51_the_callers_pinned_version_reaches_an_upstream_of_its_dialect(
    caller: Caller, upstreams: Upstreams
) -> None:
    headers = {
        **caller.headers("anthropic"),
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "context-1m-2025-08-07,message-threads-2026-08-12",
    }
    body = ask("anthropic", model=CLAUDE_TARGET)
    reply = await caller.post("anthropic", body, headers)
    await caller.post("anthropic", body)

    first, second = (call.headers for call in upstreams.anthropic.calls)
    assert first["anthropic-version"] == "2023-06-01"
    assert first["anthropic-beta"] == "context-1m-2025-08-07"
    assert reply.headers["x-gatewright-dropped"] == "anthropic-beta"
    assert second["anthropic-version"] == "2026-10-21"
    assert "anthropic-beta" not in second


async def test_rule_51_what_a_coding_agent_turns_on_reaches_claude_with_its_fields(
    caller: Caller, upstreams: Upstreams
) -> None:
    """A field whose feature was left out of the header would be refused: "Extra inputs …"."""
    betas = [
        *("claude-code-20250219", "interleaved-thinking-2025-05-14", "effort-2025-11-24"),
        *("thinking-token-count-2026-05-13", "context-management-2025-06-27"),
        *("mid-conversation-system-2026-04-07", "structured-outputs-2025-12-15"),
        "thinking-binding-controls-2026-08-01",
    ]
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    bound = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    reply = await caller.post(
        "anthropic",
        ask("anthropic", model=CLAUDE_TARGET, context_management=edits, thinking=bound),
        {**caller.headers("anthropic"), "anthropic-beta": ",".join(betas)},
    )

    (call,) = upstreams.anthropic.calls
    assert call.headers["anthropic-beta"].split(",") == betas
    assert (call.json["context_management"], call.json["thinking"]) == (edits, bound)
    assert "x-gatewright-dropped" not in reply.headers


async def test_rule_51_a_request_names_no_models_for_the_upstream_to_fall_back_to(
    caller: Caller, upstreams: Upstreams
) -> None:
    reply = await caller.post(
        "anthropic",
        ask("anthropic", model=CLAUDE_TARGET, fallbacks=[{"model": "claude-elsewhere"}]),
        {**caller.headers("anthropic"), "anthropic-beta": "server-side-fallback-2026-07-01"},
    )

    (call,) = upstreams.anthropic.calls
    assert "fallbacks" not in call.json
    assert "anthropic-beta" not in call.headers
    assert reply.headers["x-gatewright-dropped"] == "anthropic-beta, fallbacks"


async def test_rule_56_the_official_tool_runner_works_through_a_gateway_that_holds_no_threads(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams
) -> None:
    @beta_async_tool
    async def weather(city: str) -> str:
        """Say the weather of a city."""
        return f"It is dry in {city}."

    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bonn"}}
    shell = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    usage = {"input_tokens": 5, "output_tokens": 5}
    first = shell | {"content": [use], "stop_reason": "tool_use", "usage": usage}
    upstreams.anthropic.answer_once(
        Answer(body=msgspec.json.encode(first | {"stop_sequence": None})), Answer(text="Dry.")
    )
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=shared_key) as client:
        runner = client.beta.messages.tool_runner(
            model=CLAUDE_TARGET,
            max_tokens=100,
            tools=[weather],
            messages=[{"role": "user", "content": "Bonn?"}],
        )
        final = await runner.until_done()

    assert final.content[0].type == "text"
    roles = [turn["role"] for turn in upstreams.anthropic.calls[-1].json["messages"]]  # type: ignore[attr-defined]
    assert roles == ["user", "assistant", "user"]
    assert all(b'"thread"' not in call.body for call in upstreams.anthropic.calls)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("stream", [False, True])
async def test_rule_50_a_refusal_brings_what_its_upstream_says_of_its_limits(
    caller: Caller, upstreams: Upstreams, style: Style, stream: bool
) -> None:
    said = (
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "6m0s"),
        ("anthropic-ratelimit-tokens-reset", "2026-11-21T10:00:00Z"),
        ("x-ratelimit-limit-tokens", "<script>"),
        ("x-ratelimit-bucket", "internal"),
    )
    # Longer than a gateway waits by itself.
    upstreams.openai.answer(Answer(status=429, retry_after_s=90, headers=said))
    refused = await caller.post(style, ask(style, model=GPT_TARGET, stream=stream))
    assert refused.status == 429
    assert refused.headers["retry-after"] == "90"
    told = {name: value for name, value in refused.headers.items() if "ratelimit" in name}
    assert told == dict(said[:3])

    upstreams.anthropic.answer(Answer(headers=said))
    served = await caller.post(style, ask(style, model=CLAUDE_TARGET, stream=stream))
    assert not any("ratelimit" in name for name in served.headers)


async def test_rule_25_an_upstream_of_another_dialect_learns_no_end_users_name(
    caller: Caller, upstreams: Upstreams
) -> None:
    told = []
    for key in (caller.key, caller.key, await caller.gateway.issue_key(OTHER_ORGANISATION)):
        body = ask("openai", model=CLAUDE_TARGET, user="ann.lee")
        assert (await caller.with_key(key).post("openai", body)).status == 200
        told.append(upstreams.anthropic.calls[-1].json["metadata"])

    assert all(b"ann" not in call.body for call in upstreams.anthropic.calls)
    assert told[0] == told[1] != told[2]
    assert told[0] != {"user_id": hashlib.sha256(b"ann.lee").hexdigest()}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("said", "is_met"), [('{"age": 5}', True), ('{"age": -5}', False)])
async def test_rule_34_the_caller_and_the_record_learn_that_an_answer_is_not_as_asked(
    caller: Caller, upstreams: Upstreams, said: str, is_met: bool, stream: bool
) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}}
    form = {"type": "json_schema", "json_schema": {"name": "fact", "schema": schema}}
    upstreams.anthropic.answer(Answer(text=said))
    body = ask("openai", model=CLAUDE_TARGET, response_format=form, stream=stream)
    reply = await caller.post("openai", body)

    told = reply.body.decode() if stream else reply.headers.get("x-gatewright-schema", "")
    assert ("unmet at $.age" in told) != is_met
    outcome = await only_outcome(caller.gateway, reply.request_id, "ok", "")
    assert ("response_format.unmet" in outcome.dropped) != is_met


async def test_rule_63_a_plain_call_is_cancelled_upstream_when_its_caller_leaves(
    caller: Caller, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.anthropic.answer(Answer(hold=hold))
    asking = asyncio.create_task(caller.post("openai", ask("openai", model=CLAUDE_TARGET)))
    await upstreams.anthropic.called()
    asking.cancel()

    await upstreams.anthropic.aborted()


@pytest.mark.parametrize("style", STYLES)
async def test_rule_49_an_error_before_content_falls_back_and_one_after_it_never_does(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    """The in-house engine is first for this route, and a managed target behind it."""
    body = ask(style, model="auto", stream=True)
    upstreams.engine.answer_once(Answer(status=500))
    reply = await caller.post(style, body)
    assert reply.headers["x-gatewright-target"] != "house-model"
    assert reply.body.rstrip().endswith((b"[DONE]", b'{"type":"message_stop"}'))

    for upstream in upstreams.managed:
        upstream.forget()
    upstreams.engine.answer_once(Answer(text="one two three four", fault="cut", gap_s=0.02))
    broken = await caller.post(style, body)
    assert b"one" in broken.body
    assert not any(upstream.calls for upstream in upstreams.managed)


@pytest.mark.parametrize("style", STYLES)
async def test_rule_52_a_long_conversation_is_cached_unless_its_caller_marked_it(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    long = "The bridge was built by masons. " * 300
    turns = [
        {"role": "user", "content": long},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "How old is it?"},
    ]
    upstreams.anthropic.answer(Answer(input_tokens=3000, cache_read_tokens=2000))
    reply = await caller.post(style, ask(style, model=CLAUDE_TARGET, messages=turns))
    assert upstreams.anthropic.calls[-1].json["cache_control"] == {"type": "ephemeral"}
    assert int(reply.headers["x-gatewright-cache-saved-microusd"]) > 0

    part = {"type": "text", "text": long, "cache_control": {"type": "ephemeral"}}
    marked = [{"role": "user", "content": [part]}, *turns[1:]]
    for messages in (marked, turns[:1]):
        await caller.post(style, ask(style, model=CLAUDE_TARGET, messages=messages))
        assert "cache_control" not in upstreams.anthropic.calls[-1].json
