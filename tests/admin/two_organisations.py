"""Two organisations with one of everything that an admin route can name by an id."""

import random
import string
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import select

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import DAY_US
from gateway.oversight.access import Grant
from gateway.oversight.key_scope import KeyScope
from gateway.projects import Project
from gateway.secrets.secret import Secret
from gateway.store.custody.incidents import Incident, IncidentStore
from gateway.store.custody.orders import Custody
from gateway.store.custody.reviews import Review, ReviewStore
from gateway.store.engine import Database
from gateway.store.erasure.cases import ErasureCases
from gateway.store.evidence.packing import EvidencePack, EvidencePacks
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.teams import TeamStore
from gateway.store.identity.views import ViewStore
from gateway.store.money.raises import BudgetRaises, RaiseWish
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.drafts import DraftTable
from gateway.store.policies.schedules import ScheduleTable
from gateway.store.schema.tables import metadata
from gateway.store.traffic.rollup import Rollup
from policies.text.loading import load_document
from tests.admin import seeding
from tests.admin.batches import seeding as batches
from tests.admin.listener import Listener
from tests.admin.profiling import profiles


OWN, FOREIGN = "acme", "umbrella"
VERSIONS = {OWN: 2, FOREIGN: 4}
"""The other one has versions of numbers that our own does not have."""
REQUESTS = {OWN: 3, FOREIGN: 9}
POLICY = 'name = "{name}"\nversion = 1\n[[preferences]]\nname = "cheap"\norder = ["cheapest"]\n'


class Known(Struct, frozen=True):
    """What there is in one organisation: the id of one of each kind, by the kind's name."""

    organisation: str
    ids: dict[str, str]
    said: str
    """What stands in its records, in nobody else's, and in no request."""

    def needles(self) -> set[str]:
        """What shows in a text that it speaks of this organisation: ids, words and its name."""
        long = {each for each in self.ids.values() if len(each) > 6 and ":" not in each}
        return long | {self.said, self.organisation}


class Furnisher:
    """Puts one of everything into an organisation."""

    def __init__(self, listener: Listener, organisation: str) -> None:
        self._listener = listener
        self._organisation = organisation
        self._word = f"ids-of-{organisation}"
        self._said = f"only-{organisation}-knows"
        self._ids = {"organisation": organisation, "number": str(VERSIONS[organisation])}
        self._ids["sequence"] = str(REQUESTS[organisation])

    async def furnish(self) -> Known:
        await self._people_and_keys()
        await self._traffic()
        async with self._listener.database() as database:
            await self._teams_and_scopes(database)
            await self._policies(database)
            await self._custody(database)
            await self._oversight(database)
        return Known(self._organisation, self._ids, self._said)

    async def _people_and_keys(self) -> None:
        listener, organisation, word = self._listener, self._organisation, self._word
        person = f"person-of-{organisation}"
        await seeding.person(listener, person, "platform_admin", organisation)
        place = {"organisation": organisation, "workspace": f"ws-{word}", "project": f"pr-{word}"}
        key = await seeding.issue(listener, f"{self._said} first", **place)
        spare = await seeding.issue(listener, f"{self._said} spare", models={"house"}, **place)
        for account in (f"key:{key}", f"org:{organisation}"):
            await seeding.limit(listener, account, 77_000_000, "month")
        self._ids |= {"person": person, "key_id": key, "spare": spare}
        self._ids |= {"workspace": place["workspace"], "project": place["project"]}
        self._ids |= {"account": f"key:{key}", "room": f"ws:{organisation}/{place['workspace']}"}

    async def _traffic(self) -> None:
        listener, organisation, ids = self._listener, self._organisation, self._ids
        place: dict[str, Any] = {"organisation": organisation, "workspace": ids["workspace"]}
        place |= {"project": ids["project"], "model_requested": self._word}
        count = REQUESTS[organisation]
        records = seeding.requests(listener, ids["key_id"], count, **place)
        records = [
            replace(each, request_id=f"req_{organisation}_{each.request_id[-1]}")
            for each in records
        ]
        await listener.record(*records)
        drift = await profiles(listener, self._word, organisation=organisation, said=self._said)
        ids |= {"request_id": records[0].request_id, "drift": drift.id, "scope": self._word}
        ids |= {"log": organisation}

    async def _teams_and_scopes(self, database: Database) -> None:
        organisation, ids, said = self._organisation, self._ids, self._said
        clock = self._listener.clock
        teams, team = TeamStore(database, clock), f"team-{organisation}"
        await teams.create(organisation, team, said, ids["person"])
        await teams.add_member(organisation, team, ids["person"])
        seen = KeyScope(("house",), None, (), "warn")
        proposal = await KeyScopes(database, clock).propose(
            *(organisation, ids["spare"], replace(seen, models=None)),
            seen=seen,
            actor=ids["person"],
            reason=said,
        )
        wish = RaiseWish(f"org:{organisation}", "month", 99_000_000, 0, said)
        raises = BudgetRaises(database, clock)
        larger = await raises.ask(organisation, wish, ids["person"], seen_microusd=77_000_000)
        place = Project(organisation, ids["workspace"], ids["project"])
        ids |= {
            "team": team,
            "proposal": proposal.id,
            "asked": larger.id,
            "batch": await batches.batch(self._listener, database, ids["key_id"], place=place),
            "file": await batches.file(self._listener, database, ids["key_id"], place=place),
        }

    async def _policies(self, database: Database) -> None:
        organisation, person, said = self._organisation, self._ids["person"], self._said
        clock = self._listener.clock
        store = PolicyStore(database, clock)
        level, below = f"org:{organisation}", self._ids["room"]
        document = load_document(POLICY.format(name=said))
        for _ in range(VERSIONS[organisation]):
            await store.draft(level, document, person, said)
        await store.act(level, 1, "approve", "somebody-else", reason=said)
        at_us = clock.utc_us() + DAY_US
        schedules = ScheduleTable(database, clock)
        await schedules.add(level, 1, "publish", at_us, person, reason=said)
        await store.draft(below, document, person, said)
        await DraftTable(database, clock).save(
            below, POLICY.format(name=said), person, revision=0, base=0
        )
        self._ids["level"] = f"ws:{self._ids['workspace']}"

    async def _custody(self, database: Database) -> None:
        organisation, person, said = self._organisation, self._ids["person"], self._said
        log = MemoryAuditLog()
        await log.start()
        custody = Custody(database, log, self._listener.clock)
        reveal = await custody.ask_reveal(
            person, organisation, self._ids["request_id"], reason=said, ticket=said, minutes=5
        )
        hold = await custody.set_hold(person, organisation, "", said)
        await custody.release_hold(person, hold.id)
        cases = ErasureCases(database, custody, self._listener.clock)
        case = await cases.open(person, organisation, "", "gdpr", said)
        self._ids |= {"reveal": reveal.id, "hold": hold.id, "case": case.id}

    async def _oversight(self, database: Database) -> None:
        organisation, person, said = self._organisation, self._ids["person"], self._said
        clock, now_us = self._listener.clock, self._listener.clock.utc_us()
        reviews, incidents = ReviewStore(database, clock), IncidentStore(database, clock)
        review, incident = reviews.new_id(), incidents.new_id()
        began_us = now_us - 9 * DAY_US
        times = (began_us, None, began_us)
        fields = (organisation, said, "audit", "", 7, person, person, *times)
        await reviews.make(Review(review, *fields))
        await incidents.open(
            Incident(
                *(incident, organisation, said, "loss", said, "", now_us - DAY_US, 0),
                *(now_us - DAY_US, "gdpr", person, now_us),
            )
        )
        settings = self._listener.settings
        packs = EvidencePacks(database, settings.path(settings.audit.pack_directory), clock)
        pack = EvidencePack(
            *(packs.new_id(), organisation, organisation, said, 0, now_us),
            with_policies=True,
            made_by=person,
            made_us=now_us,
            state="ready",
        )
        await packs.ask(pack)
        packs.path(pack).parent.mkdir(parents=True, exist_ok=True)
        packs.path(pack).write_text(said)
        await ViewStore(database, clock).keep(person, organisation, "audit", said, "status:failed")
        self._ids |= {"review": review, "incident": incident, "pack": pack.id}


async def furnished(listener: Listener) -> tuple[Known, Known]:
    """Our own organisation and the other one."""
    own = await Furnisher(listener, OWN).furnish()
    foreign = await Furnisher(listener, FOREIGN).furnish()
    async with listener.database() as database:
        # Otherwise the background does it while somebody looks for what was changed.
        await Rollup(database, listener.clock).catch_up()
    return own, foreign


def never(of: Known, seed: int) -> dict[str, str]:
    """Of each kind an id that never was one, of the same form: letters and digits drawn anew."""
    draw = random.Random(seed)
    found = {
        kind: "".join(_other(draw, each) if place > 3 else each for place, each in enumerate(value))
        for kind, value in of.ids.items()
    }
    found |= {"account": f"key:{found['key_id']}", "log": "nowhere", "number": "77"}
    found |= {"organisation": "nowhere", "sequence": "7777", "level": f"ws:{found['workspace']}"}
    return found


def _other(draw: random.Random, letter: str) -> str:
    if letter in string.hexdigits.lower():
        return draw.choice("0123456789abcdef")
    return draw.choice(string.ascii_lowercase) if letter.isalnum() else letter


async def employ(listener: Listener, name: str, password: str, grants: Sequence[Grant]) -> None:
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        await people.add(name, password=Secret(password))
        for grant in grants:
            await people.grant(name, grant)


async def rows_about(listener: Listener, known: Known) -> dict[str, list[str]]:
    """Every row of every table that is of an organisation, or names anything of it."""
    needles = known.needles() | {known.ids["key_id"], known.ids["spare"]}
    found: dict[str, list[str]] = {}
    async with listener.database() as database, database.reading() as connection:
        for name, table in metadata.tables.items():
            rows = map(repr, (await connection.execute(select(table))).all())
            found[name] = sorted(row for row in rows if any(each in row for each in needles))
    return {name: rows for name, rows in found.items() if rows}
