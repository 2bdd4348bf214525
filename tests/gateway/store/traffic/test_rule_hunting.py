"""Which rules held: written beside each outcome, looked up where it was not, and found again."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from gateway.audit.entries import encode_record, entry_bytes
from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.audit.segments import segment_path
from gateway.clock import SystemClock
from gateway.oversight.homes import BY_LABEL
from gateway.oversight.searching import parse
from gateway.recording.recall import record_facts
from gateway.routing.decided_rules import DecidedRules, numbered
from gateway.routing.planning import decision_digest
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.policies.documents import PolicyStore
from gateway.store.schema.audit import audit_records, audit_rule_sets
from gateway.store.schema.policies import policy_documents
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.lists import TrafficReader
from gateway.store.traffic.rule_hunting import REST_TURNS, RuleHunt
from gateway.types import AuditRecord
from policies.decide import decide
from policies.examples import EXAMPLE_TARGETS, facts_from_example
from policies.text.loading import load_document
from tests.admin.traffic.world import BOARD, POLICY


pytestmark = pytest.mark.anyio
NOW_US = 1_795_000_000_000_000
HOME, NIGHT, SIMPLE, REST = "cards-stay-home", "no-frontier-at-night", "simple", "the-rest"
DOCUMENT = load_document(POLICY)


@dataclass
class World:
    database: Database
    policies: PolicyStore
    sink: DatabaseAuditSink
    offset: int = 0
    noted: DecidedRules = field(default_factory=DecidedRules)

    async def write(
        self, number: int, organisation: str = "acme", *, is_told: bool = True, **facts: object
    ) -> str:
        """Intent and outcome of a request; its id. Untold, this process did not decide it."""
        who = {"organisation": organisation, "workspace": "lab", "project": "bot", "hour_utc": 9}
        asked = facts_from_example(who | {"key_id": "k1"} | facts)
        decision = decide(DOCUMENT, asked)
        name = f"req_{organisation}_{number:06d}"
        base = AuditRecord(
            "intent",
            name,
            organisation,
            NOW_US + number * 1_000_000,
            workspace="lab",
            project="bot",
            key_id="k1",
            dialect=asked.dialect,
            model_requested=asked.model_requested,
            data_class=asked.data_class,
            decision=decision_digest(decision),
            policy_digest=DOCUMENT.digest,
            facts=record_facts(asked, BOARD, None, NOW_US),
        )
        ended = AuditRecord(
            "outcome",
            name,
            organisation,
            base.utc_us,
            workspace="lab",
            project="bot",
            status="ok" if number % 2 else "failed",
            decision=base.decision,
            policy_digest=DOCUMENT.digest,
        )
        batch = [
            ProjectedRecord("w1", 1, self.offset + at, entry_bytes(encode_record(each)[1]))
            for at, each in enumerate((base, ended))
        ]
        here = START if self.offset == 0 else (1, self.offset)
        self.offset += 2
        assert await self.sink.store(batch, "w1", here, (1, self.offset))
        if not is_told:
            async with self.database.writing() as connection:
                of_it = audit_records.c.request_id == name
                await connection.execute(update(audit_records).where(of_it).values(rules=None))
        return name

    async def ids(self, query: str, organisation: str = "acme") -> list[str]:
        search = Search(Source(organisation, "outcome"), parse(query), NOW_US + 10**12)
        reader = TrafficReader(self.database, BY_LABEL)
        return [row.request_id async for row in reader.rows(search)]

    @property
    def hunt(self) -> RuleHunt:
        return RuleHunt(self.database, self.sink, self.policies)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    database = open_database(database_url)
    policies = PolicyStore(database, SystemClock())
    await policies.keep(DOCUMENT)
    await policies.boards.keep(BOARD, EXAMPLE_TARGETS)
    yield World(database, policies, DatabaseAuditSink(database))
    await database.close()


@pytest.mark.either
async def test_requests_are_found_by_the_rules_that_held(world: World) -> None:
    plain = await world.write(1, complexity_tier="frontier")
    card = await world.write(2, data_class="S3", complexity_tier="frontier")
    easy = await world.write(3, complexity_tier="cheap")
    both = await world.write(4, data_class="S4", complexity_tier="cheap")
    assert await world.ids(f"rule:{HOME}") == [both, card]
    assert await world.ids(f"rule:{SIMPLE}") == [both, easy]
    assert await world.ids(f"rule:{HOME} rule:{SIMPLE}") == [both]
    assert await world.ids(f"rule:{HOME},{SIMPLE}") == [both, easy, card]
    assert await world.ids(f"-rule:{HOME}") == [easy, plain]
    assert await world.ids(f"rule:{HOME} status:ok") == []
    assert await world.ids(f"rule:{SIMPLE} status:ok") == [easy]
    assert await world.ids("rule:cards-*") == [both, card]
    assert await world.ids(f"rule:{NIGHT}") == []
    assert await world.ids("rule:never-heard-of") == []


@pytest.mark.either
async def test_rules_of_one_organisation_find_nothing_of_another(world: World) -> None:
    card = await world.write(1, data_class="S3", complexity_tier="mid")
    theirs = await world.write(2, "umbrella", data_class="S4", complexity_tier="cheap")
    assert await world.ids(f"rule:{HOME}") == [card]
    assert await world.ids(f"rule:{HOME}", "umbrella") == [theirs]
    async with world.database.reading() as connection:
        query = select(audit_rule_sets.c.organisation, audit_rule_sets.c.rule)
        sets = {tuple(row) for row in await connection.execute(query)}
    assert ("acme", SIMPLE) not in sets
    assert ("umbrella", SIMPLE) in sets


@pytest.mark.either
async def test_what_a_row_does_not_say_is_looked_up_newest_first(world: World) -> None:
    old = await world.write(1, is_told=False, data_class="S3", complexity_tier="frontier")
    later = await world.write(2, is_told=False, data_class="S4", complexity_tier="frontier")
    told = await world.write(3, data_class="S3", complexity_tier="frontier")
    reader = TrafficReader(world.database, BY_LABEL)
    assert await world.ids(f"rule:{HOME}") == [told]
    assert await world.ids(f"-rule:{REST}") == [], "of those nothing is said"
    assert await reader.unruled_us("acme") == NOW_US + 2_000_000
    assert await world.hunt.look("acme", 1) == 1
    assert await world.ids(f"rule:{HOME}") == [told, later]
    assert await reader.unruled_us("acme") == NOW_US + 1_000_000
    await world.hunt.tend()
    assert await world.ids(f"rule:{HOME}") == [told, later, old]
    assert await reader.unruled_us("acme") is None
    await world.hunt.tend()


@pytest.mark.either
async def test_each_organisation_has_its_turn(world: World) -> None:
    for name in ("acme", "umbrella"):
        await world.write(1, name, is_told=False)
    hunt, reader = world.hunt, TrafficReader(world.database, BY_LABEL)
    await hunt.tend()
    assert [await reader.unruled_us(name) is None for name in ("acme", "umbrella")] == [True, False]
    await hunt.tend()
    assert await reader.unruled_us("umbrella") is None


async def test_a_process_that_did_not_decide_looks_it_up_in_what_was_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a start: neither the digest nor its rules are known."""
    for module in ("gateway.store.evidence.rule_sets", "gateway.store.traffic.rule_hunting"):
        monkeypatch.setattr(f"{module}.DECIDED_RULES", world.noted)
    card = await world.write(1, data_class="S3")
    assert await world.ids(f"rule:{HOME}") == []
    assert await world.hunt.look("acme") == 1
    assert await world.ids(f"rule:{HOME}") == [card]


async def test_a_decision_that_comes_out_otherwise_is_not_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.traffic.rule_hunting.DECIDED_RULES", world.noted)
    await world.write(1, is_told=False, data_class="S3")
    monkeypatch.setattr("gateway.store.traffic.rule_hunting.decision_digest", lambda _: "other")
    assert await world.hunt.look("acme") == 1
    assert await world.ids(f"rule:{HOME}") == []
    assert await world.ids(f"-rule:{REST}") == []
    assert await TrafficReader(world.database, BY_LABEL).unruled_us("acme") is None, (
        "it is not asked again"
    )


async def test_a_pattern_that_fits_very_many_sets_is_looked_for_among_the_newest(
    world: World,
) -> None:
    card = await world.write(1, data_class="S3", complexity_tier="frontier")
    async with world.database.writing() as connection:
        many = [
            {"organisation": "acme", "rule": f"cards-{n}", "number": numbered((f"cards-{n}",))[0]}
            for n in range(70)
        ]
        await connection.execute(audit_rule_sets.insert(), many)
    assert await world.ids("rule:cards-*") == [card]


def test_what_is_asked_for_stays_known_and_what_is_not_is_forgotten() -> None:
    kept = DecidedRules(kept_max=2)
    decision = decide(DOCUMENT, facts_from_example({"data_class": "S3"}))
    for number in range(9):
        kept.note(f"digest-{number}", decision)
        assert kept.of("digest-0") is not None
    assert kept.of("digest-1") is None
    assert kept.of("digest-8") == numbered((HOME, SIMPLE))
    assert kept.of("digest-8").number == numbered((HOME, SIMPLE)).number  # type: ignore[union-attr]


async def test_a_document_that_is_not_read_any_more_stops_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.traffic.rule_hunting.DECIDED_RULES", world.noted)
    await world.write(1, is_told=False, data_class="S3")
    async with world.database.writing() as connection:
        await connection.execute(
            update(policy_documents).values(body='name = "old"\nversion = "x"')
        )
    policies = PolicyStore(world.database, SystemClock())
    await RuleHunt(world.database, world.sink, policies).tend()
    assert await TrafficReader(world.database, BY_LABEL).unruled_us("acme") is None


async def test_what_cannot_be_read_for_a_moment_is_asked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It must not pass for what nobody can tell any more."""
    monkeypatch.setattr("gateway.store.traffic.rule_hunting.DECIDED_RULES", world.noted)
    sink = DatabaseAuditSink(world.database, tmp_path)
    await replace(world, sink=sink).write(1, is_told=False, data_class="S3")
    async with world.database.writing() as connection:
        await connection.execute(update(audit_records).values(raw=None))
    place = segment_path(tmp_path / "w1", 1)
    place.mkdir(parents=True)  # Read, it is an error that no missing file is.
    with pytest.raises(IsADirectoryError):
        await RuleHunt(world.database, sink, world.policies).tend()
    assert await TrafficReader(world.database, BY_LABEL).unruled_us("acme") is not None
    place.rmdir()
    await RuleHunt(world.database, sink, world.policies).tend()
    assert await TrafficReader(world.database, BY_LABEL).unruled_us("acme") is None


async def test_after_all_was_known_it_is_not_asked_at_every_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hunt, asked = world.hunt, 0
    look = hunt._next

    async def counted() -> str | None:
        nonlocal asked
        asked += 1
        return await look()

    monkeypatch.setattr(hunt, "_next", counted)
    for _ in range(REST_TURNS + 1):
        await hunt.tend()
    assert asked == 1
    await world.write(1, is_told=False)
    await hunt.tend()
    assert asked == 2
    assert await TrafficReader(world.database, BY_LABEL).unruled_us("acme") is None
