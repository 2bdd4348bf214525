"""A thousand publishes under load, and workers that miss them: one snapshot, or no service."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from gateway.errors import NotReady
from gateway.rollout.versions import INSTALLATION, Level
from gateway.types import AuditRecord
from policies.program import PolicyDocument
from tests.faults.envelopes import PATHS, Caller, ask
from tests.policies.worlds import document
from tests.running_gateway import CLAUDE_TARGET, ENGINE_TARGET, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either]

PUBLISHES = 1_000
CALLERS = 12
CAPS = {ENGINE_TARGET: 11, CLAUDE_TARGET: 22}


def sends_to(target: str) -> PolicyDocument:
    """A document that leaves its mark twice: in who answers, and in how long the answer may be."""
    only = {"allow_only": {"targets": [target]}}
    return document({"name": "only", "cap_output_tokens": CAPS[target], **only})


async def publish_often(gateway: RunningGateway, documents: list[PolicyDocument]) -> None:
    """On the gateway's own loop, between two turns of its requests."""
    snapshots = gateway.plane.snapshots
    for number in range(PUBLISHES):
        level = Level(live=documents[number % len(documents)])
        snapshots.publish(snapshots.current().keys, {INSTALLATION: level})
        await asyncio.sleep(0.002)


async def test_every_request_is_under_exactly_one_snapshot_while_a_thousand_are_published(
    caller: Caller, upstreams: Upstreams
) -> None:
    gateway = caller.gateway
    documents = {target: sends_to(target) for target in CAPS}
    decisions: dict[str, str] = {}
    publishing = asyncio.ensure_future(
        gateway.does(publish_often(gateway, list(documents.values())))
    )

    async def keep_asking() -> None:
        while not publishing.done():
            reply = await caller.post("openai", ask("openai", model="auto", max_tokens=50))
            assert reply.status == 200
            decisions[reply.request_id] = reply.headers["x-gatewright-decision"]

    try:
        await asyncio.gather(*(keep_asking() for _ in range(CALLERS)))
        await publishing
    finally:
        snapshots = gateway.plane.snapshots
        await gateway.does(reset(gateway))
    assert snapshots.policies.levels == {}

    records = [each for each in await gateway.records() if each.request_id in decisions]
    by_digest = {made.digest: target for target, made in documents.items()}
    known = {each.snapshot: each.policy_digest for each in records if each.stage == "intent"}
    first_policy = set(known.values()) - by_digest.keys()
    assert len(first_policy) <= 1, "requests before the first publish"
    checked = 0
    for record in records:
        if record.policy_digest in first_policy or record.stage != "intent":
            continue
        check_is_of_one_snapshot(record, by_digest, known, decisions)
        checked += 1
    assert checked >= 30
    for upstream, target in (
        (upstreams.engine, ENGINE_TARGET),
        (upstreams.anthropic, CLAUDE_TARGET),
    ):
        caps = [call.json["max_tokens"] for call in upstream.calls]
        assert set(caps) <= {CAPS[target], 50}
        assert caps.count(CAPS[target]) >= 5, "both documents governed often"


async def reset(gateway: RunningGateway) -> None:
    gateway.plane.snapshots.publish(gateway.plane.snapshots.current().keys, {})


def check_is_of_one_snapshot(
    record: AuditRecord, by_digest: dict[str, str], known: dict[str, str], decisions: dict[str, str]
) -> None:
    target = by_digest[record.policy_digest]
    assert record.candidates[0] == target
    assert known[record.snapshot] == record.policy_digest
    assert record.decision == decisions[record.request_id]


@pytest.fixture
async def own_gateway(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> RunningGateway:
    return RunningGateway(tmp_path, database_url, own_upstreams)


async def until(caller: Caller, status: int) -> None:
    async with asyncio.timeout(20):
        while (await caller.post("openai", ask("openai"))).status != status:
            await asyncio.sleep(0.01)


async def test_a_worker_that_hears_no_bell_still_hears_that_a_key_is_dead(
    own_gateway: RunningGateway, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_bell(*_: object) -> None:
        """Whatever the database calls out, nobody listens."""

    monkeypatch.setattr("gateway.store.revisions.RevisionWatcher._hang_bell", no_bell)
    async with own_gateway as gateway:
        key = await gateway.issue_key()
        caller = Caller(gateway, http, key)
        await until(caller, 200)
        await gateway.revoke_key(key)
        await until(caller, 401)


async def test_a_worker_cut_off_from_its_database_refuses_and_comes_back(
    own_gateway: RunningGateway,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with own_gateway as gateway:
        key = await gateway.issue_key()
        caller = Caller(gateway, http, key)
        await until(caller, 200)

        async def no_answer(_: object) -> int:
            raise NotReady("The database does not answer.")

        with monkeypatch.context() as cut:
            cut.setattr("gateway.store.revisions.RevisionWatcher._read", no_answer)
            # Only meanwhile: a busy machine confirms nothing for as long by itself.
            cut.setattr("gateway.snapshot.STALE_AFTER_S", 1.0)
            await until(caller, 503)
            refused = await caller.post("openai", ask("openai"))
            assert refused.tree["error"]["code"] == "not_ready"
            own_upstreams.engine.forget()
            async with http.get(f"{gateway.url}/health/ready") as ready:
                assert ready.status == 503
            async with http.post(f"{gateway.url}{PATHS['anthropic']}", data=b"{}") as stranger:
                assert stranger.status == 529
            assert not own_upstreams.engine.calls
        await until(caller, 200)
