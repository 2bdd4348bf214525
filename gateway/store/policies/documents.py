"""Policy documents, their versions and what was done to them.

Every change is one transaction that also raises the revision: each worker swaps its complete
snapshot within a second, and no request ever sees half of a change.
"""

from typing import Any

import msgspec
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.configuration.guarding import GuardRules
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.rollout.seen import require_canary, require_live
from gateway.rollout.versions import (
    ALONE,
    Action,
    Level,
    PolicyEvent,
    PolicyVersion,
    State,
    Trial,
    canary_began,
    former_of,
    step,
)
from gateway.store.engine import Database
from gateway.store.policies.boards import TargetBoards
from gateway.store.policies.canary_figures import CanaryFigures, forget_figures
from gateway.store.policies.drafts import end_draft
from gateway.store.policies.schedules import PERCENT, ScheduleTable, acting_of, call_off, note
from gateway.store.policies.version_lists import VersionLists, event_of, version_of
from gateway.store.revisions import bump
from gateway.store.schema.policies import (
    policy_documents,
    policy_events,
    policy_texts,
    policy_versions,
)
from gateway.store.speech import insert_into
from policies.document import canonical_json
from policies.program import PolicyDocument
from policies.text.loading import load_document


ACTING: tuple[State, ...] = ("live", "canary", "shadow")
PERCENT_MAX = 100.0
_TRIALS: tuple[State, ...] = ("canary", "shadow")
_V = policy_versions.c
_SETTLES: frozenset[Action] = frozenset({"reject", "publish", "stop", "withdraw"})
"""Actions that make a schedule of the version obsolete: it is called off."""

NONE_BEFORE = (
    "there is no version that was live before: have the document that is to hold drafted, approved"
    " and published"
)


class PolicyStore:
    """Reads and changes policy versions; the rules of the change are in `gateway.rollout`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._documents: dict[str, PolicyDocument] = {}
        self.boards = TargetBoards(database, clock)
        self.figures = CanaryFigures(database, clock)
        self.schedules = ScheduleTable(database, clock)
        self.lists = VersionLists(database)

    async def keep(self, document: PolicyDocument) -> None:
        """Keep a document, so that decisions under it can be explained later."""
        async with self._database.writing() as connection:
            await self._keep(connection, document)

    async def document(self, digest: str) -> PolicyDocument | None:
        """A document that was kept; None for an unknown digest."""
        known = self._documents.get(digest)
        if known is None:
            async with self._database.reading() as connection:
                query = select(policy_documents.c.body).where(policy_documents.c.digest == digest)
                body = (await connection.execute(query)).scalar_one_or_none()
            if body is None:
                return None
            known = self._documents[digest] = load_document(body)
        return known

    async def draft(
        self,
        level: str,
        document: PolicyDocument,
        author: str,
        note: str = "",
        *,
        text: str = "",
        revision: int | None = None,
        guard: GuardRules | None = None,
    ) -> PolicyVersion:
        """Store a new version of a level. The document must have passed its checks.

        `text` is the document as somebody wrote it, with comments; it is kept beside the version.
        As a canary it is held to the limits of `guard`, or without them the installation's own.
        With a `revision` the level's draft becomes the version: it is gone afterwards.

        Raises:
            DraftChanged: the draft has another revision now.
        """
        kept = msgspec.json.encode(guard).decode() if guard else ""
        async with self._database.writing() as connection:
            await bump(connection)  # First, so that other writers wait.
            if revision is not None:
                await end_draft(connection, level, revision)
            await self._keep(connection, document)
            digest = document.digest
            new = await self._add(connection, level, digest, author, note, "draft", guard=kept)
            await self._keep_text(connection, level, new.number, text)
            await self._note(connection, level, new.number, new.author, "draft", note)
            return msgspec.structs.replace(new, guard=guard)

    async def act(
        self,
        level: str,
        number: int,
        action: Action,
        actor: str,
        *,
        percent: float = 0.0,
        reason: str = "",
        live: int | None = None,
        canary: int | None = None,
    ) -> PolicyVersion:
        """Take a version one step further; `live` and `canary` as `require_live` has them.

        Raises:
            ChangedMeanwhile: the live version or the canary is not the one that was seen.
            Forbidden: the author approves.
            RequestInvalid: there is no such version, or the action does not fit its state.
        """
        if action == "canary" and not 0 < percent <= PERCENT_MAX:
            raise RequestInvalid(PERCENT, parameter="percent")
        async with self._database.writing() as connection:
            await bump(connection)
            acting = await acting_of(connection, level)
            require_live(acting.get("live", 0), live)
            require_canary(acting.get("canary", 0), canary)
            version = await self.version_within(connection, level, number)
            return await self.act_within(
                connection, version, action, actor, percent=percent, reason=reason
            )

    async def end_trial(
        self, trial: Trial, action: Action, actor: str, reason: str
    ) -> PolicyVersion:
        """Act on a canary alone; raises ChangedMeanwhile if this trial of it is over."""
        async with self._database.writing() as connection:
            await bump(connection)
            version = await self.version_within(connection, trial.level, trial.number)
            began = canary_began(await self._events(connection, trial.level))
            if version.state != "canary" or began != trial.began:
                raise ChangedMeanwhile("this trial is over")
            return await self.act_within(connection, version, action, actor, reason=reason)

    async def act_within(
        self,
        connection: AsyncConnection,
        version: PolicyVersion,
        action: Action,
        actor: str,
        *,
        percent: float = 0.0,
        reason: str = "",
    ) -> PolicyVersion:
        """Like `act`, as part of a transaction that has raised the revision."""
        level, number = version.level, version.number
        state = step(version, action, actor)
        if action == "canary" and version.state != "canary":
            await forget_figures(connection, level, number)
        if action in _SETTLES:
            said = f"{action} by {actor}"
            await call_off(connection, level, number, self._clock.utc_us(), actor, said)
        changes: dict[str, Any] = {"state": state, "percent": percent}
        if action == "approve":
            changes["approver"] = actor
        await self._replace_predecessor(connection, level, number, state, actor)
        if state == "live":
            await self._end_trials(connection, level, number, actor)
        await self._change(connection, level, number, changes)
        await self._note(connection, level, number, actor, action, reason)
        return await self.version_within(connection, level, number)

    async def roll_back(
        self,
        level: str,
        actor: str,
        *,
        to: int | None = None,
        reason: str = "",
        live: int | None = None,
        canary: int | None = None,
    ) -> PolicyVersion:
        """Publish a new version equal to an old one, which had been approved and live before.

        Without `to` the previous live version comes back. If the level had none of its own before
        its first one, the live version is retired and returned. Trials end and stay approved.
        `ChangedMeanwhile` as in `act`.
        """
        async with self._database.writing() as connection:
            await bump(connection)
            acting = await acting_of(connection, level)
            require_live(acting.get("live", 0), live)
            require_canary(acting.get("canary", 0), canary)
            number = former_of(await self._events(connection, level)) if to is None else to
            if not number:
                return await self._retire(connection, level, actor, reason)
            old = await self.version_within(connection, level, number)
            if old.state != "retired":
                raise RequestInvalid(f"version {number} is none that was live before")
            note = f"version {old.number} again"
            new = await self._add(connection, level, old.digest, old.author, note, "approved")
            written = select(policy_texts.c.text).where(
                policy_texts.c.level == level, policy_texts.c.number == old.number
            )
            text = (await connection.execute(written)).scalar_one_or_none() or ""
            await self._keep_text(connection, level, new.number, text)
            await self._replace_predecessor(connection, level, new.number, "live", actor)
            await self._end_trials(connection, level, new.number, actor)
            changes = {"state": "live", "approver": old.approver}
            await self._change(connection, level, new.number, changes)
            await self._note(connection, level, new.number, actor, "roll_back", reason or note)
            return await self.version_within(connection, level, new.number)

    async def versions(self, level: str | None = None) -> list[PolicyVersion]:
        """All versions, by level, newest first."""
        query = select(policy_versions).order_by(_V.level, _V.number.desc())
        if level is not None:
            query = query.where(_V.level == level)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [version_of(row) for row in rows]

    async def version(self, level: str, number: int) -> PolicyVersion:
        """A version; raises RequestInvalid if it does not exist."""
        async with self._database.reading() as connection:
            return await self.version_within(connection, level, number)

    async def history(self, level: str) -> list[PolicyEvent]:
        """The events of a level, in order."""
        async with self._database.reading() as connection:
            return await self._events(connection, level)

    async def levels(self) -> dict[str, Level]:
        """The documents in effect on every level, as one reading transaction sees them."""
        query = select(policy_versions).where(_V.state.in_(ACTING))
        async with self._database.reading() as connection:
            rows = [version_of(row) for row in (await connection.execute(query)).mappings()]
            tried = [each.level for each in rows if each.state == "canary"]
            begun = {name: canary_began(await self._events(connection, name)) for name in tried}
        found: dict[str, Level] = {}
        for version in rows:
            document = await self.document(version.digest)
            assert document is not None  # A foreign key.
            level = found.get(version.level, Level())
            changes: dict[str, Any] = {version.state: document}
            if version.state == "canary":
                changes |= {"canary_number": version.number, "percent": version.percent}
                changes |= {"guard": version.guard, "canary_began": begun[version.level]}
            found[version.level] = msgspec.structs.replace(level, **changes)
        return found

    @staticmethod
    async def _events(connection: AsyncConnection, level: str) -> list[PolicyEvent]:
        columns = policy_events.c
        query = select(policy_events).where(columns.level == level).order_by(columns.place)
        return [event_of(row) for row in (await connection.execute(query)).mappings()]

    async def _retire(
        self, connection: AsyncConnection, level: str, actor: str, reason: str
    ) -> PolicyVersion:
        """Take the first version that was ever live out of force."""
        number = await self._live_within(connection, level)
        if not number:
            raise RequestInvalid(NONE_BEFORE)
        await self._end_trials(connection, level, number, actor, "went out of force")
        await self._change(connection, level, number, {"state": "retired"})
        await self._note(connection, level, number, actor, "retire", reason)
        return await self.version_within(connection, level, number)

    async def _keep(self, connection: AsyncConnection, document: PolicyDocument) -> None:
        self._documents[document.digest] = document
        row = {
            "digest": document.digest,
            "name": document.name,
            "body": canonical_json(document.body).decode(),
            "created_us": self._clock.utc_us(),
        }
        new = insert_into(self._database.kind, policy_documents).values(row)
        # Workers that start together store the same document at the same moment.
        await connection.execute(new.on_conflict_do_nothing())

    @staticmethod
    async def _keep_text(connection: AsyncConnection, level: str, number: int, text: str) -> None:
        if text:
            row = {"level": level, "number": number, "text": text}
            await connection.execute(insert(policy_texts), row)

    async def _add(
        self,
        connection: AsyncConnection,
        level: str,
        digest: str,
        author: str,
        note: str,
        state: State,
        *,
        guard: str = "",
    ) -> PolicyVersion:
        if not author.strip():
            raise RequestInvalid("a policy has an author")
        newest = select(func.max(_V.number)).where(_V.level == level)
        number = ((await connection.execute(newest)).scalar_one_or_none() or 0) + 1
        now_us = self._clock.utc_us()
        version = PolicyVersion(level, number, digest, state, author.strip()[:200], now_us, note)
        row = msgspec.structs.asdict(version) | {"changed_us": now_us, "guard": guard}
        await connection.execute(insert(policy_versions), row)
        return version

    async def _replace_predecessor(
        self,
        connection: AsyncConnection,
        level: str,
        number: int,
        state: State,
        actor: str,
        does: str = "",
    ) -> None:
        """Move out the version that `number` replaces in a state; a trial's history says why.

        `does` says what `number` does that ends it; empty if it takes its place.
        """
        if state not in ALONE:
            return
        following: dict[str, Any] = {"state": ALONE[state], "percent": 0.0}
        following["changed_us"] = self._clock.utc_us()
        others = (_V.level == level) & (_V.state == state) & (_V.number != number)
        if state != "live":
            ended = (await connection.execute(select(_V.number).where(others))).scalars().all()
            said = f"version {number} {does or f'became the {state}'}"
            for each in ended:
                await self._note(connection, level, each, actor, "stop", said)
        await connection.execute(update(policy_versions).where(others).values(**following))

    async def _end_trials(
        self,
        connection: AsyncConnection,
        level: str,
        number: int,
        actor: str,
        does: str = "went live",
    ) -> None:
        """End all trials: they ran against the former live version and must be repeated."""
        for state in _TRIALS:
            await self._replace_predecessor(connection, level, number, state, actor, does)

    async def _change(
        self, connection: AsyncConnection, level: str, number: int, changes: dict[str, Any]
    ) -> None:
        changes["changed_us"] = self._clock.utc_us()
        here = (_V.level == level) & (_V.number == number)
        await connection.execute(update(policy_versions).where(here).values(**changes))

    async def _note(
        self,
        connection: AsyncConnection,
        level: str,
        number: int,
        actor: str,
        action: str,
        reason: str,
    ) -> None:
        now_us = self._clock.utc_us()
        await note(connection, level, number, now_us, (actor, action, reason))

    @staticmethod
    async def _live_within(connection: AsyncConnection, level: str) -> int:
        """The number of a level's live version; 0 for none."""
        query = select(_V.number).where(_V.level == level, _V.state == "live")
        return (await connection.execute(query)).scalar_one_or_none() or 0

    async def version_within(
        self, connection: AsyncConnection, level: str, number: int
    ) -> PolicyVersion:
        """A version as a transaction sees it; raises RequestInvalid when there is none."""
        here = (_V.level == level) & (_V.number == number)
        query = select(policy_versions).where(here)
        row = (await connection.execute(query)).mappings().first()
        if row is None:
            raise RequestInvalid(f"there is no version {number} of this level")
        return version_of(row)
