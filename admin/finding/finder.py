"""Finds the ways that fit the typed text, among what its reader may see; reads only, bounded."""

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

from admin.finding.receipts import ReceiptReader
from admin.finding.ways import (
    WAYS_MAX,
    Asked,
    Way,
    actions_for,
    is_batch_id,
    request_way,
    ways_of,
)
from admin.models.engine import AT as ENGINE_AT
from admin.models.engine import EngineDesk
from admin.policy_room.places import place_named
from admin.services import Services
from gateway.oversight.access import Permission, Person, allows
from gateway.store.batching.lists import BatchLists
from gateway.store.evidence.sink import AuditQuery
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.evidence.upstream_names import UpstreamNames
from gateway.store.identity.key_lists import KeyLists, KeySearch
from gateway.store.identity.team_lists import TeamLists
from gateway.store.policies.documents import PolicyStore


_P: Final = Permission
LOOKED_AT: Final = 200
_SAID: Final = {
    "key": ("open", "key", "rotate", "revoke", "revoked", "/", ","),
    "team": ("open", "team", "archive"),
    "person": ("open", "person", "disable"),
}
"""What is said of every object of a kind, or of what can be done with it."""
Gather = Callable[[Asked, Person, str], Awaitable[list[Way]]]


class Finder:
    """Objects of one organisation, and people where they may be seen."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._receipts = ReceiptReader(
            services.settings.path(services.settings.audit.directory),
            services.records,
            DatabaseAuditTrees(services.database),
        )
        self._teams = TeamLists(services.database, services.clock)
        self._lists = KeyLists(services.database, services.clock)
        self._batches = BatchLists(services.database, services.clock)
        self._upstream_names = UpstreamNames(services.database)
        self._policies = PolicyStore(services.database, services.clock)
        self._engine_desk = EngineDesk(services)

    async def find(self, question: Asked, person: Person, organisation: str) -> list[Way]:
        """At most WAYS_MAX, actions and requests first; none before anything was typed."""
        if not question.words:
            return []
        found = actions_for(question, person, organisation)
        if allows(person, _P.TRAFFIC_READ, organisation):
            found += request_way(question, organisation)
            found += await self._receipt(question, organisation)
            found += await self._batch(question, organisation)
            found += await self._file(question, organisation)
            found += await self._named_by_upstream(question, organisation)
        gathers: tuple[tuple[Permission, str | None, Gather], ...] = (
            (_P.KEYS_READ, organisation, self._keys),
            (_P.KEYS_READ, organisation, self._teams_found),
            (_P.POLICIES_READ, organisation, self._levels),
            (_P.PEOPLE_READ, None, self._people),
            (_P.SYSTEM_READ, None, self._engines),
        )
        for needs, where, gather in gathers:
            if len(found) < WAYS_MAX and allows(person, needs, where):
                found += await gather(question, person, organisation)
        return found[:WAYS_MAX]

    async def _receipt(self, question: Asked, organisation: str) -> list[Way]:
        request_id = await self._receipts.request_of(question.text, organisation)
        if request_id is None:
            return []
        href = f"/o/{organisation}/traffic/{quote(request_id, safe='')}"
        return [Way("request", f"Request {request_id}, by its receipt", href)]

    async def _batch(self, question: Asked, organisation: str) -> list[Way]:
        """By its whole id, as a caller has it, and as records of its lines do."""
        if not question.batch_id:
            return []
        batch = await self._batches.batch(organisation, question.batch_id)
        if batch is None:
            return []
        href = f"/o/{organisation}/batches/{quote(batch.id, safe='')}"
        return [Way("batch", batch.id, href, f"{batch.workspace} / {batch.project}")]

    async def _file(self, question: Asked, organisation: str) -> list[Way]:
        if not question.file_id:
            return []
        file = await self._batches.file(organisation, question.file_id)
        if file is None:
            return []
        href = f"/o/{organisation}/files/{quote(file.id, safe='')}"
        return [Way("file", file.id, href, f"{file.workspace} / {file.project}")]

    async def _named_by_upstream(self, question: Asked, organisation: str) -> list[Way]:
        """By what a vendor's ticket or log calls a call, a batch or a file."""
        if not question.upstream_name:
            return []
        found: list[Way] = []
        for ours in await self._upstream_names.lead_to(organisation, question.upstream_name):
            if not is_batch_id(ours):
                href = f"/o/{organisation}/traffic/{quote(ours, safe='')}"
                found.append(Way("request", f"Request {ours}, by its upstream's name", href))
            elif await self._batches.batch(organisation, ours) is not None:
                href = f"/o/{organisation}/batches/{quote(ours, safe='')}"
                found.append(Way("batch", f"Batch {ours}, by its vendor's name", href))
            else:
                found += await self._line_of(organisation, ours)
        return found

    async def _line_of(self, organisation: str, batch_id: str) -> list[Way]:
        """Of a batch that is forgotten the log has its lines: the newest of them."""
        query = AuditQuery(organisation=organisation, stage="outcome", batch=batch_id)
        newest = await self._services.records.newest(query, 1)
        ids = [each.projected.record.request_id for each in newest]
        return [
            Way(
                "request",
                f"Request {request_id}, a line of {batch_id}",
                f"/o/{organisation}/traffic/{quote(request_id, safe='')}",
                "the batch is forgotten",
            )
            for request_id in ids
        ]

    async def _keys(self, question: Asked, person: Person, organisation: str) -> list[Way]:
        found: list[Way] = []
        verbs = ("Rotate", "Revoke") if allows(person, _P.KEYS_ISSUE, organisation) else ()
        search = KeySearch(_named(question, "key"))
        part = await self._lists.page(organisation, search, (0, ""), LOOKED_AT)
        for key in part.rows:
            at = f"/o/{organisation}/keys/{key.key_id}"
            is_dead = key.revoked_us is not None
            found += ways_of(
                question,
                "key",
                key.name or key.key_id,
                at,
                said=(key.key_id,),
                verbs=() if is_dead else [(verb, f"{at}/{verb.lower()}") for verb in verbs],
                detail=f"{key.workspace} / {key.project}" + (", revoked" if is_dead else ""),
            )
            if len(found) >= WAYS_MAX:
                break
        return found

    async def _teams_found(self, question: Asked, person: Person, organisation: str) -> list[Way]:
        may_change = allows(person, _P.KEYS_ISSUE, organisation)
        found: list[Way] = []
        part = await self._teams.found(organisation, _named(question, "team"), LOOKED_AT)
        for team in part.rows:
            at = f"/o/{organisation}/teams/{quote(team.name, safe='')}"
            found += ways_of(
                question,
                "team",
                team.title or team.name,
                at,
                said=(team.name,),
                verbs=[("Archive", f"{at}/archive")] if may_change else (),
                detail=team.name if team.title else "",
            )
        return found

    async def _levels(self, question: Asked, _: Person, organisation: str) -> list[Way]:
        places = [place_named(organisation, name) for name in await self._policies.levels()]
        return [
            way
            for place in places
            if place is not None
            for way in ways_of(
                question, "policy", place.title, f"/o/{organisation}/policies/{place.slug}"
            )
        ]

    async def _people(self, question: Asked, person: Person, _: str) -> list[Way]:
        may_manage = allows(person, _P.PEOPLE_MANAGE)
        found: list[Way] = []
        words = _named(question, "person")
        part = await self._services.people_lists.page(words, 0, LOOKED_AT)
        for each in part.rows:
            at = f"/person/{quote(each.name, safe='')}"
            can_be_disabled = may_manage and not each.is_disabled and each.name != person.name
            found += ways_of(
                question,
                "person",
                each.title or each.name,
                at,
                said=(each.name,),
                verbs=[("Disable", f"{at}/disable")] if can_be_disabled else (),
                detail=each.name if each.title else "",
            )
        return found

    async def _engines(self, question: Asked, person: Person, _: str) -> list[Way]:
        may_drain = allows(person, _P.SYSTEM_CONFIGURE)
        found: list[Way] = []
        for line in (await self._engine_desk.read()).lines:
            can_be_drained = may_drain and line.is_member and line.drain is None
            drain = f"{ENGINE_AT}/drain?member={quote(line.member, safe='')}"
            found += ways_of(
                question,
                "engine",
                line.member,
                f"/models/providers/{quote(line.member, safe='')}",
                verbs=[("Drain", drain)] if can_be_drained else (),
                detail=("drained, " if line.drain else "") + f"of {line.provider}"
                if line.is_member
                else "",
            )
        return found


def _named(question: Asked, kind: str) -> tuple[str, ...]:
    """The words that an object's own name has to hold: not beginnings of what all are said to be.

    Whatever is found is held to every word again.
    """
    anyway = {word[:length] for word in _SAID[kind] for length in range(1, len(word) + 1)}
    return tuple(word for word in question.words if word not in anyway)
