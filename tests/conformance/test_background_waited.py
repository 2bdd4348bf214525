"""Answers of the background that waited for their turn: what holds then is asked once more."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from gateway.clock import SystemClock
from gateway.oversight.key_scope import scope_of
from gateway.rollout.versions import INSTALLATION
from gateway.routing.board import TargetBoard
from gateway.store.engine import open_database
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.policies.documents import PolicyStore
from policies.program import PolicyDocument
from tests.conformance.test_background import SAID, over
from tests.policies.worlds import document
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

MORE = "[inspection]\ndeadline_s = 5.0\n[responses]\nbackground_running_max = 1\n"
CHAIN: Any = {
    "name": "chain",
    "route": "chain",
    "targets": [CLAUDE_TARGET, GPT_TARGET],
    "order": ["cheap"],
}


def policy(**constraint: Any) -> PolicyDocument:
    return document({"name": "now"} | constraint, preferences=(CHAIN,))


class Queue:
    """A worker that makes one answer, for which a second one waits."""

    def __init__(self, gateway: RunningGateway, key: str, client: openai.AsyncOpenAI) -> None:
        self.gateway, self.key, self.client = gateway, key, client
        self.hold = asyncio.Event()

    async def publish(self, made: PolicyDocument) -> None:
        database = open_database(self.gateway.settings.database_url)
        policies = PolicyStore(database, SystemClock())
        version = await policies.draft(INSTALLATION, made, "Ann")
        await policies.act(INSTALLATION, version.number, "approve", "Bob")
        await policies.act(INSTALLATION, version.number, "publish", "Bob")
        await database.close()
        while True:
            level = self.gateway.plane.snapshots.policies.levels.get(INSTALLATION)
            if level is not None and level.live is not None and level.live.digest == made.digest:
                return
            await asyncio.sleep(0.01)

    async def waiting(self, upstreams: Upstreams, model: str) -> str:
        """The id of one that waits."""
        upstreams.engine.answer_once(Answer(hold=self.hold))
        asked: dict[str, Any] = {"input": "x", "background": True}
        await self.client.responses.create(model=ENGINE_TARGET, **asked)
        await upstreams.engine.called()
        made: Response = await self.client.responses.create(model=model, **asked)
        assert made.status == "queued"
        return made.id


@pytest.fixture
async def queue(tmp_path: Path, sqlite_url: str, upstreams: Upstreams) -> AsyncIterator[Queue]:
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=MORE) as gateway:
        key = await gateway.issue_key()
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
        ) as client:
            queue = Queue(gateway, key, client)
            yield queue
            queue.hold.set()


@pytest.mark.parametrize(
    ("constraint", "code"),
    [
        ({"allow_only": {"targets": [ENGINE_TARGET]}}, "no_target_available"),
        ({"deny": "closed"}, "policy_denied"),
        ({"pseudonymise": True}, "policy_denied"),
        ({"redact": True}, "policy_denied"),
        ({"audit_content": "none"}, "policy_denied"),
        ({"scan_output": "mask"}, "policy_denied"),
        ({"no_cache": True}, "policy_denied"),
    ],
)
async def test_what_policy_has_closed_since_is_not_sent(
    queue: Queue, upstreams: Upstreams, constraint: dict[str, Any], code: str
) -> None:
    answer_id = await queue.waiting(upstreams, GPT_TARGET)
    await queue.publish(policy(**constraint))
    queue.hold.set()
    failed = await over(queue.client, answer_id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.message
    assert not upstreams.openai.calls
    *_, outcome = [each for each in await queue.gateway.records() if each.stage == "outcome"]
    assert (outcome.status, outcome.error, outcome.attempts) == ("failed", code, ())
    live = queue.gateway.plane.snapshots.policies.levels[INSTALLATION].live
    assert live is not None
    assert outcome.detail["ruled_again"] == live.digest != outcome.policy_digest


async def test_it_goes_only_where_it_might_go_before_and_may_go_now(
    queue: Queue, upstreams: Upstreams
) -> None:
    await queue.publish(policy(cap_output_tokens=90))
    answer_id = await queue.waiting(upstreams, "auto:chain")
    both = [GPT_TARGET, ENGINE_TARGET]
    await queue.publish(policy(allow_only={"targets": both}, cap_output_tokens=40))
    queue.hold.set()
    assert (await over(queue.client, answer_id)).output_text == SAID
    assert not upstreams.anthropic.calls
    assert [call.json["max_output_tokens"] for call in upstreams.openai.calls] == [40]
    intent, outcome = (await queue.gateway.records())[-2:]
    assert (outcome.stage, outcome.target) == ("outcome", GPT_TARGET)
    assert outcome.cost_microusd == 11 * 2 + 7 * 10
    assert len(upstreams.engine.calls) == 1
    assert intent.policy_digest == outcome.policy_digest


async def test_what_policy_leaves_as_it_was_is_sent_as_it_was(
    queue: Queue, upstreams: Upstreams
) -> None:
    answer_id = await queue.waiting(upstreams, CLAUDE_TARGET)
    queue.hold.set()
    assert (await over(queue.client, answer_id)).output_text == SAID
    assert len(upstreams.anthropic.calls) == 1
    first, *_, outcome = [each for each in await queue.gateway.records() if each.stage == "outcome"]
    assert "ruled_again" not in first.detail, "it had not waited"
    assert outcome.detail["ruled_again"] == outcome.policy_digest


@pytest.mark.parametrize("change", ["retired", "narrowed", "revoked"])
async def test_a_target_that_is_gone_and_a_key_that_may_less_count(
    queue: Queue, upstreams: Upstreams, change: str
) -> None:
    answer_id = await queue.waiting(upstreams, GPT_TARGET)
    snapshots, key_id = queue.gateway.plane.snapshots, queue.key.split("_")[2]
    if change == "retired":
        board = snapshots.board
        left = {name: each for name, each in board.targets.items() if name != GPT_TARGET}
        snapshots.publish_board(TargetBoard(left, board.unavailable))
    elif change == "revoked":
        await queue.gateway.revoke_key(queue.key)
    else:
        database = open_database(queue.gateway.settings.database_url)
        wanted = scope_of({ENGINE_TARGET}, None, (), "warn")
        seen = scope_of(None, None, (), "warn")
        await KeyScopes(database, SystemClock()).narrow("acme", key_id, seen, wanted)
        await database.close()
        while snapshots.current().keys.records[key_id].principal.models is None:
            await asyncio.sleep(0.01)
    while change == "revoked" and snapshots.current().keys.live(key_id, SystemClock().utc_us()):
        await asyncio.sleep(0.01)
    queue.hold.set()
    async with openai.AsyncOpenAI(
        base_url=f"{queue.gateway.url}/v1", api_key=await queue.gateway.issue_key()
    ) as later:
        failed = await over(later, answer_id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert not upstreams.openai.calls
