"""What every store of conversations promises, and what a project's list of items is like."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs
from sqlalchemy import insert, select

from gateway.clock import StoppedClock
from gateway.configuration.sections import ResponsesSettings
from gateway.configuration.settings import Limits
from gateway.continuing.conversing import AFTERWARDS_S, Conversations, Turn, said
from gateway.continuing.held_turns import RENEW_S
from gateway.continuing.items import input_items
from gateway.continuing.kept_answers import KeptAnswer
from gateway.continuing.kept_conversations import (
    TURN_LEASE_US,
    ConversationStore,
    Entry,
    KeptConversation,
    MemoryConversations,
    TakenTurn,
)
from gateway.errors import (
    BodyTooLarge,
    ConversationLocked,
    ConversationUnknown,
    Exhausted,
    FeatureUnsupported,
    NotReady,
)
from gateway.projects import Project
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.conversations import DatabaseConversations
from gateway.store.engine import Database, open_database
from gateway.store.kept_answers import DatabaseAnswers, kept_answers
from gateway.store.schema.custody import audit_holds
from gateway.store.sealing.resealing import Resealing
from gateway.store.sealing.sealed_kinds import KINDS
from gateway.types import Principal


PROJECT = Project("acme", "research", "assistant")
OTHER = Project("acme", "research", "other")
KEPT = KeptConversation("conv_1", PROJECT, "abcdefghijkl", "S1", 1, 1, 100)
LEASE_S = TURN_LEASE_US / 1e6


def entry(name: str, *, is_answer: bool = False) -> Entry:
    item = msgspec.json.encode({"role": "user", "content": name})
    return Entry(name, msgspec.Raw(item), is_answer)


def principal(project: Project = PROJECT) -> Principal:
    return Principal("key1", "a key", *project, (), None, ())


@pytest.fixture
def master() -> MasterKey:
    return MasterKey(Secret(secrets.token_bytes(32)))


@pytest.fixture(params=["memory", "database"])
async def store(
    request: pytest.FixtureRequest, database_url: str, master: MasterKey
) -> AsyncIterator[ConversationStore]:
    if request.param == "memory":
        yield MemoryConversations()
        return
    database = open_database(database_url)
    yield DatabaseConversations(database, master)
    await database.close()


@pytest.mark.anyio
async def test_what_is_made_is_found_by_its_project_only(store: ConversationStore) -> None:
    made = structs.replace(
        KEPT, metadata={"topic": "x"}, users=("ann",), entries=(entry("a"), entry("b"))
    )
    assert await store.make(made, 2)
    assert await store.make(structs.replace(made, conversation_id="conv_2"), 2)
    assert not await store.make(structs.replace(made, conversation_id="conv_3"), 2)
    assert await store.make(structs.replace(made, conversation_id="conv_3", project=OTHER), 2)

    assert await store.find(PROJECT, "conv_1", 99) == made
    assert await store.find(PROJECT, "conv_1", 100) is None
    assert await store.find(OTHER, "conv_1", 99) is None
    assert await store.find(PROJECT, "conv_3", 99) is None


@pytest.mark.anyio
async def test_a_change_goes_on_from_what_was_read_or_is_none(store: ConversationStore) -> None:
    await store.make(KEPT, 9)
    changed = structs.replace(KEPT, entries=(entry("a"),), data_class="S3", expires_us=200)
    assert await store.write(changed, 50)
    assert not await store.write(structs.replace(KEPT, entries=(entry("b"),)), 50)
    found = await store.find(PROJECT, "conv_1", 150)
    assert found == structs.replace(changed, revision=2)
    assert not await store.write(found, 200), "it is over"
    assert not await store.write(structs.replace(found, project=OTHER), 50)


@pytest.mark.anyio
async def test_one_turn_at_a_time_has_it(store: ConversationStore) -> None:
    await store.make(KEPT, 9)
    mine = structs.replace(KEPT, turn="req_1", turn_until_us=60)
    assert await store.take(mine, 50)
    found = await store.find(PROJECT, "conv_1", 50)
    assert found is not None
    assert (found.turn, found.turn_until_us, found.revision) == ("req_1", 60, 2)
    theirs = structs.replace(found, turn="req_2", turn_until_us=90)
    assert not await store.take(theirs, 59)
    assert await store.take(theirs, 60), "the first has ended in any case"
    await store.let_go(PROJECT, "conv_1", "req_1")
    assert (await store.find(PROJECT, "conv_1", 50)).turn == "req_2"  # type: ignore[union-attr]
    await store.let_go(PROJECT, "conv_1", "req_2")
    free = await store.find(PROJECT, "conv_1", 50)
    assert free is not None
    assert free.turn == ""
    assert not await store.write(theirs, 50), "who has seen the turn would write it back"


@pytest.mark.anyio
async def test_a_turn_is_renewed_by_whoever_has_it_alone(store: ConversationStore) -> None:
    await store.make(KEPT, 9)
    await store.make(structs.replace(KEPT, conversation_id="conv_2"), 9)
    await store.make(structs.replace(KEPT, project=OTHER), 9)
    mine = structs.replace(KEPT, turn="req_1", turn_until_us=60)
    assert await store.take(mine, 50)
    assert await store.take(structs.replace(mine, project=OTHER), 50)
    assert await store.take(structs.replace(mine, conversation_id="conv_2", turn="req_2"), 50)

    await store.renew([TakenTurn(name, PROJECT, "conv_1") for name in ("req_1", "req_2")], 70)
    await store.renew([TakenTurn("req_1", PROJECT, f"conv_{n}") for n in range(2, 300)], 90)
    found = await store.find(PROJECT, "conv_1", 50)
    assert found is not None
    assert (found.turn_until_us, found.revision) == (70, 2), "nobody has to read it again"
    for project, name in ((PROJECT, "conv_2"), (OTHER, "conv_1")):
        others = await store.find(project, name, 50)
        assert others is not None
        assert others.turn_until_us == 60
    assert await store.write(structs.replace(found, turn="", turn_until_us=0), 50)


@pytest.mark.anyio
async def test_a_turn_lasts_while_its_worker_renews_it_and_no_longer_than_a_request(
    store: ConversationStore,
) -> None:
    clock, limits = StoppedClock(), Limits()
    one, other = (Conversations(store, clock, ResponsesSettings(), limits) for _ in range(2))
    made = await one.create(principal(), (), {}, "S0")
    longest_s = limits.request_deadline_s + AFTERWARDS_S
    await one.begin("req_1", PROJECT, made.conversation_id, takes=True)
    for _ in range(int(longest_s / RENEW_S)):
        clock.advance(RENEW_S)
        await one.turns.renew()
        with pytest.raises(ConversationLocked):
            await other.begin("req_2", PROJECT, made.conversation_id, takes=True)
    for _ in range(5):
        clock.advance(RENEW_S)
        await one.turns.renew()
    assert (await other.begin("req_2", PROJECT, made.conversation_id, takes=True)).turn == "req_2"
    await one.turns.renew()
    clock.advance(LEASE_S)
    assert not (await other.find(principal(), made.conversation_id)).is_taken(clock.utc_us())


@pytest.mark.anyio
async def test_who_finds_it_locked_by_a_silent_worker_is_told_when_that_is_over(
    store: ConversationStore,
) -> None:
    """Clients that try twice, a second apart, would have given up by then."""
    clock = StoppedClock()
    one, other = (Conversations(store, clock, ResponsesSettings(), Limits()) for _ in range(2))
    made = await one.create(principal(), (), {}, "S0")
    await one.begin("req_1", PROJECT, made.conversation_id, takes=True)
    told = []
    for renews in (True, True, False, False, False):
        clock.advance(RENEW_S)
        if renews:
            await one.turns.renew()
        with pytest.raises(ConversationLocked) as locked:
            await other.begin("req_2", PROJECT, made.conversation_id, takes=True)
        told.append(locked.value.retry_after_s)
    assert told == [1.0, 1.0, 1.0, 10.0, 5.0]
    clock.advance(5.0)
    await other.begin("req_2", PROJECT, made.conversation_id, takes=True)


@pytest.mark.anyio
async def test_a_turn_of_a_clock_that_was_wrong_keeps_nobody_out(store: ConversationStore) -> None:
    """Its worker was killed, and never let go of it."""
    clock = StoppedClock()
    talks = Conversations(store, clock, ResponsesSettings(), Limits())
    made = await talks.create(principal(), (), {}, "S0")
    clock.jump(20 * 86_400.0)
    await talks.begin("req_1", PROJECT, made.conversation_id, takes=True)
    clock.jump(-20 * 86_400.0)

    assert (await talks.begin("req_2", PROJECT, made.conversation_id, takes=True)).turn == "req_2"
    with pytest.raises(ConversationLocked):
        await talks.begin("req_3", PROJECT, made.conversation_id, takes=True)
    item = msgspec.Raw(b'{"role":"user","content":"x"}')
    assert await talks.append(Turn("req_2", PROJECT, made.conversation_id, [item], [item], "S0"))
    assert not (await talks.find(principal(), made.conversation_id)).turn


@pytest.mark.anyio
async def test_what_is_forgotten_is_gone(store: ConversationStore) -> None:
    await store.make(KEPT, 9)
    assert not await store.forget(OTHER, "conv_1")
    assert await store.forget(PROJECT, "conv_1")
    assert not await store.forget(PROJECT, "conv_1")
    assert await store.find(PROJECT, "conv_1", 1) is None
    assert not await store.write(KEPT, 1)


async def held(database: Database) -> None:
    async with database.writing() as connection:
        texts = dict.fromkeys(("subject", "reason", "set_by", "release_by", "released_by"), "")
        row = {**texts, "id": "h1", "organisation": "acme", "set_us": 1}
        await connection.execute(insert(audit_holds), row)


@pytest.mark.anyio
async def test_a_hold_hides_what_is_deleted_and_keeps_it(
    database_url: str, master: MasterKey
) -> None:
    database = open_database(database_url)
    store = DatabaseConversations(database, master)
    await store.make(structs.replace(KEPT, entries=(entry("a"), entry("b"))), 9)
    await store.write(structs.replace(KEPT, entries=(entry("a"), entry("b"))).without("a"), 1)
    first = await store.find(PROJECT, "conv_1", 1)
    assert first is not None
    assert first.entries == (entry("b"),), "without a hold it is gone"
    await held(database)
    await store.write(first.without("b"), 1)
    found = await store.find(PROJECT, "conv_1", 1)
    assert found is not None
    assert (list(found.shown), [each.item_id for each in found.entries]) == ([], ["b"])
    assert await store.forget(PROJECT, "conv_1")
    assert await store.find(PROJECT, "conv_1", 1) is None
    assert not await store.forget(PROJECT, "conv_1")
    async with database.reading() as connection:
        assert (await connection.execute(select(kept_answers.c.id))).scalars().all() == ["conv_1"]
    await database.close()


@pytest.mark.anyio
async def test_answers_and_conversations_are_not_taken_for_each_other(
    database_url: str, master: MasterKey
) -> None:
    database = open_database(database_url)
    answers, store = DatabaseAnswers(database, master), DatabaseConversations(database, master)
    await store.make(KEPT, 9)
    await answers.keep(KeptAnswer("resp_1", PROJECT, "k", "", "S1", 1, 100, b"[]", b"{}"))
    assert await answers.find(PROJECT, "conv_1", 1) is None
    assert not await answers.forget(PROJECT, "conv_1")
    assert await store.find(PROJECT, "resp_1", 1) is None
    assert not await store.forget(PROJECT, "resp_1")
    assert await answers.forget_expired(100) == 2, "both go when their time is over"
    await database.close()


@pytest.mark.anyio
@pytest.mark.parametrize("column", ["data_class", "project", "sealed"])
async def test_a_row_that_was_changed_cannot_be_opened(
    database_url: str, master: MasterKey, column: str
) -> None:
    database = open_database(database_url)
    store = DatabaseConversations(database, master)
    await store.make(structs.replace(KEPT, entries=(entry("peculiar"),)), 9)
    async with database.reading() as connection:
        row = (await connection.execute(select(kept_answers))).one()
    assert "peculiar" not in str(row)
    changed = {"data_class": "S0", "project": "other", "sealed": bytes(60)}[column]
    async with database.writing() as connection:
        await connection.execute(kept_answers.update().values({column: changed}))
    with pytest.raises(NotReady):
        await store.find(OTHER if column == "project" else PROJECT, "conv_1", 1)
    await database.close()


@pytest.mark.anyio
async def test_another_master_key_takes_conversations_over(
    database_url: str, master: MasterKey
) -> None:
    database = open_database(database_url)
    made = structs.replace(KEPT, entries=(entry("a"),))
    await DatabaseConversations(database, master).make(made, 9)
    raw = Secret(secrets.token_bytes(32))
    (kind,) = (kind for kind in KINDS if kind.table is kept_answers)
    done = await Resealing(database, MasterKey(raw, [master]), StoppedClock()).of(kind)
    assert (done.resealed, done.closed) == (1, 0)
    store = DatabaseConversations(database, MasterKey(raw))
    assert await store.find(PROJECT, "conv_1", 1) == made
    with pytest.raises(NotReady):
        await DatabaseConversations(database, master).find(PROJECT, "conv_1", 1)
    await database.close()


@pytest.mark.anyio
async def test_limits_are_kept() -> None:
    clock = StoppedClock()

    def conversations(**changes: Any) -> Conversations:
        kept = structs.replace(ResponsesSettings(), **changes)
        limits = structs.replace(Limits(), body_bytes_max=200)
        return Conversations(MemoryConversations(), clock, kept, limits)

    with pytest.raises(FeatureUnsupported):
        await conversations(conversation_keep_days=0).create(principal(), (), {}, "S0")
    few = conversations(conversations_max=1)
    made = await few.create(principal(), (), {}, "S0")
    with pytest.raises(Exhausted):
        await few.create(principal(), (), {}, "S0")
    long = msgspec.Raw(msgspec.json.encode({"role": "user", "content": "x" * 200}))
    with pytest.raises(BodyTooLarge):
        await few.add(principal(), made.conversation_id, [long], "S0")
    clock.advance(29 * 86_400)
    await few.describe(principal(), made.conversation_id, {})
    clock.advance(29 * 86_400)
    await few.find(principal(), made.conversation_id)
    clock.advance(86_401)
    with pytest.raises(ConversationUnknown):
        await few.find(principal(), made.conversation_id)


Move = Literal["add", "delete", "describe", "begin", "end", "break", "late"]


class Step(Struct, frozen=True):
    move: Move
    worker: int
    number: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["add", "delete", "begin", "end", "end", "begin", "describe", "break"]),
        st.integers(0, 1),
        st.integers(0, 7),
    )
    | st.builds(Step, st.just("late"), st.integers(0, 1), st.just(0)),
    max_size=25,
)


class Talk:
    """One conversation at two workers, and beside it the plain list that it ought to be."""

    def __init__(self, stores: list[ConversationStore]) -> None:
        self.clock = StoppedClock()
        self.workers = [
            Conversations(store, self.clock, ResponsesSettings(), Limits()) for store in stores
        ]
        self.items: list[str] = []
        self.open: dict[str, int] = {}
        """Requests that are being answered, and the worker of each."""
        self.taken = ""
        self.count = 0
        self.name = ""

    def item(self) -> msgspec.Raw:
        self.count += 1
        return input_items({"input": msgspec.Raw(msgspec.json.encode(f"t{self.count}"))})[0]

    async def begin(self) -> None:
        made = await self.workers[0].create(principal(), [self.item()], {}, "S0")
        self.name, self.items = made.conversation_id, ["t1"]

    async def take(self, step: Step) -> None:
        worker = self.workers[step.worker]
        if step.move == "late":
            self.clock.advance(LEASE_S + 1)
            self.taken = ""
        elif step.move == "describe":
            await worker.describe(principal(), self.name, {"n": str(step.number)})
        elif step.move in ("add", "delete", "begin"):
            was_taken = self.taken
            try:
                await self.change(worker, step)
            except ConversationLocked:
                assert was_taken
            else:
                assert not was_taken or not (self.items or step.move != "delete")
        elif self.open:
            await self.finish(step)

    async def change(self, worker: Conversations, step: Step) -> None:
        if step.move == "add":
            item = self.item()
            await worker.add(principal(), self.name, [item], "S0")
            self.items.append(f"t{self.count}")
        elif step.move == "begin":
            request_id = f"req_{self.count}_{len(self.open)}_{step.worker}"
            found = await worker.begin(request_id, PROJECT, self.name, takes=True)
            assert texts(said(found)) == self.items, "a turn sees all that was before it"
            self.open[request_id], self.taken = step.worker, request_id
            self.count += 1
        elif self.items:
            at = step.number % len(self.items)
            found = await worker.find(principal(), self.name)
            await worker.remove(principal(), self.name, found.shown[at].item_id)
            del self.items[at]

    async def finish(self, step: Step) -> None:
        request_id = sorted(self.open)[step.number % len(self.open)]
        worker = self.workers[self.open.pop(request_id)]
        if step.move == "end":
            asked, answered = self.item(), self.item()
            await worker.append(Turn(request_id, PROJECT, self.name, [asked], [answered], "S0"))
            self.items += [f"t{self.count - 1}", f"t{self.count}"]
        await worker.let_go(request_id)
        self.taken = "" if self.taken == request_id else self.taken

    async def check(self) -> None:
        for worker in self.workers:
            found = await worker.find(principal(), self.name)
            assert texts([each.item for each in found.shown]) == self.items
            names = [each.item_id for each in found.entries]
            assert len(set(names)) == len(names)
            assert found.is_taken(self.clock.utc_us()) == bool(self.taken)


def texts(items: list[msgspec.Raw]) -> list[str]:
    return [msgspec.json.decode(item)["content"] for item in items]


@pytest.mark.long
@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(STEPS)
def test_two_workers_keep_one_list(database_url: str, master: MasterKey, steps: list[Step]) -> None:
    async def walk() -> None:
        databases = [open_database(database_url) for _ in range(2)]
        try:
            talk = Talk([DatabaseConversations(each, master) for each in databases])
            await talk.begin()
            for step in steps:
                await talk.take(step)
                await talk.check()
        finally:
            for database in databases:
                await database.close()

    asyncio.run(walk())


@pytest.mark.anyio
async def test_turns_that_want_it_at_once_get_it_one_after_the_other(
    database_url: str, master: MasterKey
) -> None:
    databases = [open_database(database_url) for _ in range(2)]
    talk = Talk([DatabaseConversations(each, master) for each in databases])
    await talk.begin()
    order: list[str] = []

    async def turn(number: int) -> None:
        worker, request_id = talk.workers[number % 2], f"req_{number}"
        found = None
        while found is None:
            with suppress(ConversationLocked):
                found = await worker.begin(request_id, PROJECT, talk.name, takes=True)
            await asyncio.sleep(0.001)
        order.append(request_id)
        assert len(found.entries) == 1 + 2 * (len(order) - 1), "each sees all before it"
        item = msgspec.Raw(msgspec.json.encode({"role": "user", "content": request_id}))
        await worker.append(Turn(request_id, PROJECT, talk.name, [item], [item], "S2", "ann"))
        await worker.let_go(request_id)

    await asyncio.gather(*map(turn, range(8)))
    found = await talk.workers[0].find(principal(), talk.name)
    assert texts([each.item for each in found.entries])[1:] == [
        name for each in order for name in (each, each)
    ]
    assert (found.data_class, found.users) == ("S2", ("ann",))
    for database in databases:
        await database.close()
