"""What an upstream calls a call stands beside its attempt, whole and streamed, good and refused."""

from secrets import token_hex
from typing import Any

import anthropic
import pytest

from gateway.audit.projecting.export import export_records, segment_rows
from gateway.types import Attempt
from tests.faults.envelopes import Caller, Style, ask
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer, Fault, RecordingUpstream


pytestmark = pytest.mark.anyio

HEADERS = {CLAUDE_TARGET: "request-id", GPT_TARGET: "x-request-id", ENGINE_TARGET: "x-request-id"}
EACH_TARGET = pytest.mark.parametrize("target", [*HEADERS])
EACH_STYLE = pytest.mark.parametrize("style", ["openai", "anthropic"])
EITHER_WAY = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def at(upstreams: Upstreams, target: str) -> RecordingUpstream:
    of_vendor = {CLAUDE_TARGET: upstreams.anthropic, GPT_TARGET: upstreams.openai}
    return of_vendor.get(target, upstreams.engine)


def named(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A name for one call, and the head in which its upstream says it."""
    upstream_id = f"req_{token_hex(12)}"
    return upstream_id, ((HEADERS[target], upstream_id),)


async def tried(
    caller: Caller, style: Style, target: str, hidden: str, *, stream: bool
) -> tuple[int, tuple[Attempt, ...]]:
    """The caller's status and the attempts on record; the caller hears nothing of `hidden`."""
    reply = await caller.post(style, ask(style, stream=stream, model=target))
    assert hidden not in f"{reply.headers} {reply.body!r}"
    outcome = (await caller.gateway.records(reply.request_id))[-1]
    assert outcome.stage == "outcome"
    return reply.status, outcome.attempts


@EACH_TARGET
@EACH_STYLE
@EITHER_WAY
async def test_an_answers_attempt_says_what_its_upstream_calls_it(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, stream: bool
) -> None:
    upstream_id, head = named(target)
    at(upstreams, target).answer_once(Answer(headers=head))
    status, (attempt,) = await tried(caller, style, target, upstream_id, stream=stream)
    assert (status, attempt.error, attempt.upstream_ids) == (200, "", (upstream_id,))
    _, (attempt,) = await tried(caller, style, target, upstream_id, stream=stream)
    assert attempt.upstream_ids == (), "the next one has none, on the same connection"


@EACH_TARGET
@EITHER_WAY
@pytest.mark.parametrize("status", [400, 401, 404, 500, 529])
async def test_a_refusal_says_so_too(
    caller: Caller, upstreams: Upstreams, target: str, stream: bool, status: int
) -> None:
    upstream_id, head = named(target)
    at(upstreams, target).answer_once(Answer(status=status, headers=head))
    told, (attempt,) = await tried(caller, "openai", target, upstream_id, stream=stream)
    assert told >= 400
    assert (attempt.status, attempt.upstream_ids) == (status, (upstream_id,))
    assert attempt.error


@EACH_TARGET
@pytest.mark.parametrize(
    ("fault", "stream"),
    [("bad_json", False), ("cut", False), ("bad_json", True), ("cut", True), ("error_event", True)],
)
async def test_an_answer_that_broke_says_so_too(
    caller: Caller, upstreams: Upstreams, target: str, fault: Fault, stream: bool
) -> None:
    upstream_id, head = named(target)
    at(upstreams, target).answer_once(Answer(fault=fault, headers=head))
    _, (attempt,) = await tried(caller, "openai", target, upstream_id, stream=stream)
    assert attempt.error
    assert attempt.upstream_ids == (upstream_id,)


async def test_each_of_several_attempts_has_its_own(caller: Caller, upstreams: Upstreams) -> None:
    first, head = named(ENGINE_TARGET)
    soon = ("retry-after-ms", "10")
    upstreams.engine.answer_once(Answer(status=429, headers=(*head, soon)))
    second, head = named(ENGINE_TARGET)
    upstreams.engine.answer_once(Answer(headers=head))
    status, attempts = await tried(caller, "openai", ENGINE_TARGET, second, stream=False)
    assert status == 200
    assert [each.upstream_ids for each in attempts] == [(first,), (second,)]


async def test_a_count_has_one_too_and_all_of_them_are_exported(
    caller: Caller, claude: anthropic.AsyncAnthropic, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    upstream_id, head = named(CLAUDE_TARGET)
    upstreams.anthropic.answer_once(Answer(headers=head))
    raw = await claude.messages.with_raw_response.count_tokens(
        model=CLAUDE_TARGET, messages=[{"role": "user", "content": "How old is the bridge?"}]
    )
    rows = segment_rows(gateway.audit_folder)
    lines: list[dict[str, Any]] = [each async for each in export_records(rows)]
    (line,) = [
        each
        for each in lines
        if (each["request_id"], each["stage"]) == (raw.headers["x-request-id"], "outcome")
    ]
    assert [each["upstream_ids"] for each in line["attempts"]] == [(upstream_id,)]


@EITHER_WAY
async def test_what_is_no_word_is_in_no_record(
    caller: Caller, gateway: RunningGateway, upstreams: Upstreams, stream: bool
) -> None:
    said = (
        ("x-request-id", "Ravi asked how old the bridge is"),
        ("request-id", "ravi@example.com"),
        ("apim-request-id", "a" * 30_000),
        ("x-amzn-requestid", gateway.upstream_key),
    )
    upstreams.openai.answer_once(Answer(headers=said))
    status, (attempt,) = await tried(caller, "openai", GPT_TARGET, "ravi@", stream=stream)
    assert (status, attempt.upstream_ids) == (200, ())
