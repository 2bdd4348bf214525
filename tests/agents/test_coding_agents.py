"""An agent is asked about a file, reads it because a model says so, and tells what stood in it."""

from pathlib import Path

import pytest

from tests.agents.agents import AGENTS, RUN_S, Place, ran
from tests.agents.scripted import CALL_ID, ScriptedUpstreams
from tests.running_gateway import CLAUDE_TARGET, ENGINE_TARGET, GPT_TARGET, RunningGateway


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(2 * RUN_S)]

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
TARGETS = {ENGINE_TARGET: CHAT, GPT_TARGET: RESPONSES, CLAUDE_TARGET: MESSAGES}
KNOWN = {"gpt-6-astra": CHAT, "gpt-6-sol": RESPONSES, "gpt-6-luna": MESSAGES}
"""Of models with these names Codex offers other tools, in other places of a request."""
RUNS = [
    *((name, target, path) for name in AGENTS for target, path in TARGETS.items()),
    *(("Codex", target, path) for target, path in KNOWN.items()),
]


@pytest.mark.parametrize(("name", "target", "path"), RUNS)
async def test_an_agent_reads_a_file_and_says_what_is_in_it(
    gateway: RunningGateway,
    upstreams: ScriptedUpstreams,
    tmp_path: Path,
    name: str,
    target: str,
    path: str,
) -> None:
    home, folder = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    folder.mkdir()
    folder.joinpath("note.txt").write_text("The bird is kingfisher-4711.\n")
    upstreams.forget(str(folder / "note.txt"))
    before = len(await gateway.records())
    place = Place(home, gateway.url, await gateway.issue_key(), target)

    ended = await ran(AGENTS[name], place, folder, "Which bird does note.txt name?")

    assert ended.status == 0, ended
    assert "The file says kingfisher-4711." in ended.printed, ended
    records = (await gateway.records())[before:]
    found = {each.data_class: dict(each.findings) for each in records}
    assert found.keys() <= {"S0", "S1"}, found
    intents = [each.request_id for each in records if each.stage == "intent"]
    outcomes = [each.request_id for each in records if each.stage == "outcome"]
    assert sorted(intents) == sorted(outcomes)
    assert {each.status for each in records if each.stage == "outcome"} == {"ok"}
    (upstream,) = [each for each in upstreams.scripted if each.turns]
    asked, told = upstream.turns
    assert {asked.path, told.path} == {path}
    assert CALL_ID not in asked.body.decode()
    assert told.body.decode().count(CALL_ID) == 2, "once in the call, once in its result"
    assert len(intents) == len(upstream.calls)
