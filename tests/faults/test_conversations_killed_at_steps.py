"""SIGKILL at each step of a turn: its conversation is soon free again, and complete.

The question and the answer of the killed turn are in it once or not at all, each intent has its
end, and no spending is forgotten.
"""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import openai
import pytest

from gateway.configuration.reading import load_settings
from tests.faults.served import KILLED
from tests.faults.test_batches_killed_at_steps import until_all_ended, until_settled
from tests.faults.test_killed_while_parked import Books
from tests.faults.test_kills import configured, issued, serving
from tests.free_ports import free_port
from tests.running_gateway import BRISK_PROCESS, CLAUDE_TARGET, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(120)]

SHORT_LEASE = f"""{BRISK_PROCESS}
import gateway.continuing.held_turns
gateway.continuing.held_turns.TURN_LEASE_US = 2_000_000
"""
AUDIT = "gateway.audit.second:TwoDeviceLog.append"
STORE = "gateway.store"
STEPS = {
    "before it is taken": f"killed('{STORE}.conversations:DatabaseConversations.take')",
    "taken": f"killed('{STORE}.conversations:DatabaseConversations.take', after=True)",
    "before the intent": f"killed('{AUDIT}', only=lambda _, record, *__: record.stage == 'intent')",
    "the intent is written": ("killed('gateway.intake:Intake._admit', after=True)"),
    "before the outcome": "killed('gateway.conclusion:Conclusion.answered')",
    "the outcome is written": "killed('gateway.continuing.threads:Threads.keep')",
    "its turn is added": (
        "killed('gateway.continuing.conversing:Conversations.append', after=True)"
    ),
    "its answer is kept": f"killed('{STORE}.kept_answers:DatabaseAnswers.keep', after=True)",
    "before it is let go": "killed('gateway.continuing.held_turns:HeldTurns.let_go')",
}
IN_MID_STREAM = {
    "in mid-stream": (
        "killed('gateway.relay:Relay._next', only=lambda *_, at=iter(range(99)): next(at) == 1)"
    )
}
ADDED = {"its turn is added", "its answer is kept", "before it is let go"}
UNPAID = {"before it is taken", "taken", "before the intent"}
EVERY_STEP = "GATEWRIGHT_FAULT_EVERY_STEP" in os.environ
TRIED = list(STEPS) if EVERY_STEP else ["its turn is added"]
STREAMED = [*TRIED, *IN_MID_STREAM] if EVERY_STEP else [*IN_MID_STREAM]


@pytest.mark.parametrize(
    ("step", "stream"), [(each, False) for each in TRIED] + [(each, True) for each in STREAMED]
)
async def test_a_conversation_is_free_and_whole_after_a_killed_turn(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams, step: str, stream: bool
) -> None:
    port = free_port()
    config = await configured(tmp_path, database_url, own_upstreams, port)
    settings = load_settings(config)
    key, url, books = await issued(settings), f"http://127.0.0.1:{port}", Books(settings)
    await books.limit()
    own_upstreams.anthropic.answer(Answer(gap_s=0.01))
    dies = KILLED + (STEPS | IN_MID_STREAM)[step]
    speaking = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
    async with speaking as client:
        async with serving(config, url, SHORT_LEASE + dies) as process:
            talk = await client.conversations.create(
                items=[{"type": "message", "role": "user", "content": "before"}]
            )
            with pytest.raises(openai.APIError):
                await ask(client, talk.id, "killed", stream=stream)
            assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
        async with serving(config, url, SHORT_LEASE):
            async with asyncio.timeout(60):
                while not await answered(client, talk.id):
                    await asyncio.sleep(0.1)
            items = (await client.conversations.items.list(talk.id, order="asc")).data
            records = await until_all_ended(settings.path(settings.audit.directory))
            total = await until_settled(books)
    await books.database.close()

    texts = Counter(item.to_dict()["content"][0]["text"] for item in items)  # type: ignore[index]
    said = texts.pop("Hello from the upstream.")
    is_added = step in ADDED
    assert texts == {"before": 1, "afterwards": 1} | ({"killed": 1} if is_added else {})
    assert said == 1 + is_added
    ends = {each.request_id: each for each in records if each.stage == "outcome"}
    crashed = [each for each in ends.values() if each.error == "worker_crashed"]
    assert len(crashed) == (step not in UNPAID | ADDED | {"the outcome is written"})
    # What was set aside when it was killed may count as spent; nothing is spent unseen.
    assert total >= sum(each.cost_microusd for each in ends.values()) > 0


async def ask(client: openai.AsyncOpenAI, talk: str, text: str, *, stream: bool = False) -> None:
    given = {"model": CLAUDE_TARGET, "input": text, "conversation": talk}
    made = await client.responses.create(**given, stream=stream)  # type: ignore[call-overload]
    if stream:
        async for event in made:
            assert event.type != "error"


async def answered(client: openai.AsyncOpenAI, talk: str) -> bool:
    """Whether nobody has it; it is answered then."""
    try:
        await ask(client, talk, "afterwards")
    except openai.ConflictError:
        return False
    return True
