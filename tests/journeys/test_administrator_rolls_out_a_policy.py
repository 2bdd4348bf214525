"""An administrator drafts, weighs and rolls out a policy, and back; who asked can ask why."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.store.identity.keys import Place
from tests.cli.operator import Ended, Operator
from tests.identifiers import aadhaar
from tests.running_gateway import (
    CHEAP_CLAUDE_TARGET,
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

LIVE = f"""
name = "live"
version = 1
[[preferences]]
name = "claude"
targets = ["{CLAUDE_TARGET}"]
"""
CLOSED = """
name = "x"
version = 1
[[constraints]]
name = "c"
forbid = { in_house = true }
[[constraints]]
name = "d"
allow_only = { in_house = true }
"""
NOBODY = """
name = "x"
version = 1
[[preferences]]
name = "p"
targets = ["nobody"]
"""
HOME = """
name: home
version: 1
constraints:
  - name: red-team-stays-home
    when: headers.x_team == "red" or data_class >= "S3"
    allow_only: {in_house: true}
preferences:
  - name: claude
    targets: [claude-opus-5-5]
tests:
  - name: sensitive data stays
    facts: {data_class: S4}
    expect: {excluded: [managed-mid]}
"""


async def ask(
    http: aiohttp.ClientSession, gateway: RunningGateway, key: str, text: str = "Hello", **more: str
) -> aiohttp.ClientResponse:
    body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
    headers = {"x-api-key": key, **more}
    async with http.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers) as reply:
        await reply.read()
        return reply


async def why(
    http: aiohttp.ClientSession, gateway: RunningGateway, key: str, request_id: str
) -> tuple[int, dict[str, Any]]:
    """The explanation of a decision, as soon as it is projected."""
    status, found = 0, {}
    for _ in range(100):
        url = f"{gateway.url}/v1/decisions/{request_id}"
        async with http.get(url, headers={"x-api-key": key}) as reply:
            status, found = reply.status, await reply.json()
        if status == 200:
            break
        await asyncio.sleep(0.1)
    return status, found


class Desk:
    """The administrator's: types commands, and waits until the gateway obeys."""

    def __init__(
        self, operator: Operator, gateway: RunningGateway, http: aiohttp.ClientSession
    ) -> None:
        self.operator, self.gateway, self.http = operator, gateway, http
        self.key = ""

    async def types(self, *words: str | Path) -> Ended:
        if "--by" in words:
            # Each has an account of their own at the machine: one user is one person.
            self.operator.becomes(f"u-{words[words.index('--by') + 1]}".lower())
        more = ("--config", self.gateway.config_file)
        return await asyncio.to_thread(self.operator.types, "policy", *words, *more)

    async def does(self, *words: str | Path) -> list[dict[str, Any]]:
        ended = await self.types(*words)
        assert ended.status == 0, ended.errors
        return [json.loads(line) for line in ended.output.splitlines() if line.startswith("{")]

    async def goes_live(self, file: Path, number: str) -> None:
        await self.does("draft", file, "--by", "Ann")
        await self.does("approve", number, "--by", "Bob")
        await self.does("publish", number, "--by", "Bob")

    async def until_served_by(self, target: str, text: str = "Hello") -> str:
        self.key = self.key or await self.gateway.issue_key()
        async with asyncio.timeout(20):
            while True:
                reply = await ask(self.http, self.gateway, self.key, text)
                if reply.headers["x-gatewright-target"] == target:
                    return reply.headers["x-request-id"]
                await asyncio.sleep(0.02)


@pytest.fixture
def desk(
    gateway: RunningGateway,
    http: aiohttp.ClientSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Desk:
    tmp_path.joinpath("live.toml").write_text(LIVE)
    tmp_path.joinpath("home.yaml").write_text(HOME)
    return Desk(Operator(tmp_path, monkeypatch, capsys), gateway, http)


async def test_from_draft_to_live_and_back(desk: Desk, tmp_path: Path) -> None:
    await desk.does("draft", tmp_path / "live.toml", "--by", "Ann")
    refused = await desk.types("approve", "1", "--by", "ann")
    assert (refused.status, "somebody else" in refused.errors) == (2, True)
    await desk.does("approve", "1", "--by", "Bob")
    await desk.does("publish", "1", "--by", "Bob")
    await desk.until_served_by(CLAUDE_TARGET)

    await desk.does("draft", tmp_path / "home.yaml", "--by", "Ann", "--note", "stay home")
    await desk.does("approve", "2", "--by", "Bob")
    await desk.does("shadow", "2", "--by", "Bob")
    await desk.does("canary", "2", "--by", "Bob", "--percent", "100")
    # The live document has no rule for sensitive data; the canary has one.
    await desk.until_served_by(ENGINE_TARGET, f"number {aadhaar(2)}")
    await desk.does("publish", "2", "--by", "Bob")
    await desk.does("rollback", "--by", "Bob", "--reason", "a drill")
    await desk.until_served_by(CLAUDE_TARGET, f"number {aadhaar(3)}")

    listed = await desk.does("versions")
    states = [(each["number"], each["state"]) for each in listed]
    assert states == [(3, "live"), (2, "retired"), (1, "retired")]
    done = await desk.does("history")
    assert [each["action"] for each in done][-2:] == ["publish", "roll_back"]
    assert (await desk.does("show", "3"))[0]["name"] == "live"
    records = await desk.gateway.records()
    assert len({record.policy_digest for record in records if record.policy_digest}) >= 2


async def test_a_draft_is_weighed_on_what_was_recorded(desk: Desk, tmp_path: Path) -> None:
    await desk.goes_live(tmp_path / "live.toml", "1")
    await desk.until_served_by(CLAUDE_TARGET)
    last = await desk.until_served_by(CLAUDE_TARGET, f"number {aadhaar(1)}")
    await why(desk.http, desk.gateway, desk.key, last)  # Until it is projected.

    replayed = await desk.types("replay", tmp_path / "home.yaml", "--since", "1h")
    assert "newly in-house: 1" in replayed.output
    same, asked = replayed.output.split("reproduced: ")[1].split("\n")[0].split(" of ")
    assert int(same) == int(asked) > 1
    await desk.does("draft", tmp_path / "home.yaml", "--by", "Ann")
    said = (await desk.types("diff", "1", "2")).output
    assert "constraint *red-team-stays-home* was added" in said
    assert (await desk.types("replay", tmp_path / "home.yaml", "--since", "soon")).status == 2
    draft = (tmp_path / "home.yaml", "--since", "1h", "--level")
    assert "newly in-house: 1" in (await desk.types("replay", *draft, "org:acme")).output
    assert "requests: 0" in (await desk.types("replay", *draft, "org:other")).output


async def test_who_asked_can_ask_why_and_nobody_else(desk: Desk, tmp_path: Path) -> None:
    gateway, http = desk.gateway, desk.http
    await desk.goes_live(tmp_path / "live.toml", "1")
    request_id = await desk.until_served_by(CLAUDE_TARGET)

    status, told = await why(http, gateway, desk.key, request_id)
    assert (status, told["object"]) == (200, "decision")
    assert told["sentence"] == f"Sent to {CLAUDE_TARGET} because *claude* applies to every request."
    assert told["explanation"]["targets"][0]["name"] == ENGINE_TARGET
    stranger = await gateway.issue_key(Place("acme", "research", "another"))
    url = f"{gateway.url}/v1/decisions/{request_id}"
    async with http.get(url, headers={"x-api-key": stranger}) as reply:
        assert reply.status == 404
    async with http.get(url) as reply:
        assert reply.status == 401


async def test_what_documents_of_several_levels_decided_can_be_asked_and_replayed(
    desk: Desk, tmp_path: Path
) -> None:
    at = ("--level", "org:acme")
    await desk.does("draft", tmp_path / "live.toml", "--by", "Ann", *at)
    await desk.does("approve", "1", "--by", "Bob", *at)
    await desk.does("publish", "1", "--by", "Bob", *at)
    live = await desk.until_served_by(CLAUDE_TARGET)
    other = LIVE.replace(CLAUDE_TARGET, GPT_TARGET).replace('"claude"', '"gpt"')
    tmp_path.joinpath("other.toml").write_text(other)
    await desk.does("draft", tmp_path / "other.toml", "--by", "Ann", *at)
    await desk.does("approve", "2", "--by", "Bob", *at)
    await desk.does("canary", "2", "--by", "Bob", "--percent", "100", *at)
    tried = await desk.until_served_by(GPT_TARGET)
    await desk.does("rollback", "--by", "Bob", "--reason", "a drill", *at)

    for request_id, rule in ((live, "claude"), (tried, "gpt")):
        status, told = await why(desk.http, desk.gateway, desk.key, request_id)
        assert status == 200
        assert rule in {each["name"] for each in told["explanation"]["rules"]}
    replayed = await desk.types("replay", tmp_path / "home.yaml", "--since", "1h", *at)
    same, asked = replayed.output.split("reproduced: ")[1].split("\n")[0].split(" of ")
    assert int(same) == int(asked) > 1


async def test_a_header_that_policy_may_see_decides_and_is_recorded(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    policy = tmp_path / "home.yaml"
    policy.write_text(HOME)
    more = f'[policy]\nfile = "{policy}"\nheaders = ["x-team"]\n'
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        key = await gateway.issue_key()
        plain = await ask(http, gateway, key, **{"x-other": "red"})
        red = await ask(http, gateway, key, **{"x-team": "red"})
        status, told = await why(http, gateway, key, red.headers["x-request-id"])

    assert plain.headers["x-gatewright-target"] == CLAUDE_TARGET
    assert red.headers["x-gatewright-target"] == ENGINE_TARGET
    assert status == 200
    assert "headers.x_team = red" in told["sentence"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NOBODY, "no target of the catalogue is named 'nobody'"),
        (CLOSED, "every target is closed for every request by: c, d"),
        (HOME.replace("excluded: [managed-mid]", "excluded: [in-house]"), "FAIL"),
        (
            HOME.replace("headers.x_team ==", "headers.x_team >"),
            "line 5, column 5: constraints[0].when",
        ),
    ],
)
async def test_a_document_that_is_wrong_is_refused_and_nothing_changes(
    desk: Desk, tmp_path: Path, text: str, expected: str
) -> None:
    before = desk.gateway.plane.snapshots.current().digest
    tmp_path.joinpath("bad.toml").write_text(text)
    ended = await desk.types("draft", tmp_path / "bad.toml", "--by", "Ann")
    assert ended.status == 2
    assert expected in ended.errors
    assert desk.gateway.plane.snapshots.current().digest == before
    assert await desk.does("versions") == []


FASTEST = """
name = "fastest"
version = 1
[[constraints]]
name = "managed"
forbid = { in_house = true }
[[preferences]]
name = "quick"
order = ["fastest", "cheapest"]
"""


async def test_the_fastest_target_is_the_one_that_answered_soonest_lately(
    desk: Desk, upstreams: Upstreams, tmp_path: Path
) -> None:
    tmp_path.joinpath("fastest.toml").write_text(FASTEST)
    await desk.goes_live(tmp_path / "fastest.toml", "1")
    cheapest = CHEAP_CLAUDE_TARGET
    await desk.until_served_by(cheapest)  # Nothing has been measured yet.
    for target, delay_s in ((GPT_TARGET, 0.0), (CLAUDE_TARGET, 0.0), (cheapest, 0.8)):
        upstream = upstreams.openai if target == GPT_TARGET else upstreams.anthropic
        for _ in range(3):
            hold = asyncio.Event()
            upstream.answer(Answer(hold=hold))
            asyncio.get_running_loop().call_later(delay_s, hold.set)
            await ask_for(desk, target)
        upstream.answer(Answer())
    assert await until_not_served_by(desk, cheapest) in {GPT_TARGET, CLAUDE_TARGET}


async def ask_for(desk: Desk, target: str) -> None:
    desk.key = desk.key or await desk.gateway.issue_key()
    body = {"model": target, "messages": [{"role": "user", "content": "Hello"}]}
    url, headers = f"{desk.gateway.url}/v1/chat/completions", {"x-api-key": desk.key}
    async with desk.http.post(url, json=body, headers=headers) as reply:
        assert reply.status == 200


async def until_not_served_by(desk: Desk, target: str) -> str:
    async with asyncio.timeout(20):
        while True:
            reply = await ask(desk.http, desk.gateway, desk.key)
            served = reply.headers.get("x-gatewright-target", target)
            if served not in {target, ENGINE_TARGET}:
                return served
            await asyncio.sleep(0.05)


WARM = f"""
name = "warm"
version = 1
[[constraints]]
name = "managed"
forbid = {{ in_house = true }}
[[preferences]]
name = "gpt-first"
targets = ["{GPT_TARGET}"]
stay_warm = true
"""


async def test_a_conversation_stays_where_it_is_cached_while_that_is_cheaper(
    desk: Desk, upstreams: Upstreams, tmp_path: Path
) -> None:
    tmp_path.joinpath("warm.toml").write_text(WARM)
    await desk.goes_live(tmp_path / "warm.toml", "1")
    await desk.until_served_by(GPT_TARGET)
    upstreams.anthropic.answer(Answer(input_tokens=60_000))
    question = {"role": "user", "content": "a long text of many words " * 4_000}
    begun = await say(desk, CLAUDE_TARGET, [question])
    assert begun == CLAUDE_TARGET, "as requested"

    more = [{"role": "assistant", "content": "Read."}, {"role": "user", "content": "And now?"}]
    assert await say(desk, "auto", [question, *more]) == CLAUDE_TARGET
    assert await say(desk, "auto", [{**question, "content": "Hi"}, *more]) == GPT_TARGET
    records = await desk.gateway.records()
    intent = next(each for each in reversed(records) if each.facts and each.facts.warm_target)
    status, told = await why(desk.http, desk.gateway, desk.key, intent.request_id)
    assert status == 200
    assert "which has read 60000 tokens of it lately" in told["sentence"]


async def say(desk: Desk, model: str, messages: list[dict[str, str]]) -> str:
    """Who answered."""
    body = {"model": model, "messages": messages, "max_tokens": 50}
    url, headers = f"{desk.gateway.url}/v1/chat/completions", {"x-api-key": desk.key}
    async with desk.http.post(url, json=body, headers=headers) as reply:
        assert reply.status == 200, await reply.text()
        return reply.headers["x-gatewright-target"]
