"""Policy work over the web: every step is recorded with the signed-in person.

The steps are those of `gatewright policy …` and their records have the same names. Whoever wrote a
version does not approve it; what concerns the whole installation takes a role held everywhere.
"""

import asyncio
from hashlib import sha256
from typing import Final, get_args

import msgspec
from litestar.exceptions import NotFoundException, PermissionDeniedException
from msgspec import Struct

from admin.policy_room.places import Place, may
from admin.policy_room.reader import PolicyReader
from classifiers.pii.labels import LABELS
from gateway.configuration.guarding import GuardRules, require_seen, wider
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission, Person
from gateway.oversight.deeds import Deeds
from gateway.rollout.seen import Seen, require_canary, require_live
from gateway.rollout.versions import Action, PolicyVersion
from gateway.store.policies.drafts import PolicyDraft
from gateway.store.policies.schedules import Schedule
from policies.checking.check import CheckReport, check
from policies.text.writing import document_text


VERDICTS: Final[tuple[Action, ...]] = ("approve", "reject")
STEPS: Final[tuple[Action, ...]] = ("shadow", "canary", "publish", "stop")
REASON_LENGTH_MAX: Final = 2_000
STATES_MAX: Final = 10
SKELETON: Final = """# What holds here, beside what the levels above demand: a level only narrows.
name = "{name}"
version = 1
description = ""

# [[constraints]]
# name = "sensitive-stays-home"
# when = 'data_class >= "S3"'
# allow_only = {{ in_house = true }}
"""


class Working(Struct, frozen=True):
    """The text that somebody may edit: the draft, or the text that a draft would begin with."""

    text: str
    revision: int
    """0 until it is saved for the first time."""
    base: int
    """The version that it was begun from; 0 if this level has none."""
    draft: PolicyDraft | None

    @property
    def mark(self) -> str:
        """The mark in a form that begins from it: the revision, and the digest of the text."""
        return f"{self.revision}.{digest_of(self.text)}"


def digest_of(text: str) -> str:
    """SHA-256, in hexadecimal."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class StepOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A step of a version: `approve`, `reject`, `shadow`, `canary`, `publish` or `stop`."""

    action: str = ""
    reason: str = ""
    percent: float = 0.0
    accepts_wider: bool = False
    """Must be set to approve limits that are wider than the installation's."""
    live: int | None = None
    """The version that was seen live, 0 for none: the step is refused if another one is by then."""
    canary: int | None = None
    """The same for the version seen as a canary: it may have done harm, or be another's."""


class Appointment(Struct, frozen=True):
    """A step that a version is to take at a time, and the state that its author saw."""

    action: str
    at_us: int
    reason: str
    percent: float = 0.0
    seen: Seen = Seen()


class Desk:
    """Changes drafts and versions."""

    def __init__(self, reader: PolicyReader, deeds: Deeds) -> None:
        self._reader = reader
        self._deeds = deeds

    async def working(self, place: Place) -> Working:
        """A level's draft, or its live document as a beginning."""
        draft = await self._reader.drafts.draft(place.name)
        if draft is not None:
            return Working(draft.text, draft.revision, draft.base, draft)
        version, document = await self._reader.live(place)
        if version is not None:
            return Working(await self._reader.text_of(version), 0, version.number, None)
        name = place.slug.rpartition(":")[2]
        text = document_text(document.body) if document else SKELETON.format(name=name)
        return Working(text, 0, 0, None)

    async def checked(self, text: str) -> CheckReport:
        """Everything that is wrong with a text, given the targets that workers serve."""
        targets = await self._reader.targets()
        return await asyncio.to_thread(check, text, "draft", targets, LABELS)

    def require_writer(self, person: Person, organisation: str, place: Place) -> None:
        """Check before revealing which text a level has; raises PermissionDeniedException."""
        _require(person, Permission.POLICIES_EDIT, organisation, place)

    async def save(
        self, person: Person, organisation: str, place: Place, text: str, revision: int
    ) -> PolicyDraft:
        """Save a draft; raises DraftChanged when somebody else saved meanwhile."""
        self.require_writer(person, organisation, place)
        text = text.replace("\r\n", "\n")
        base = (await self.working(place)).base
        after = {"level": place.name, "revision": revision + 1, "characters": len(text)}
        async with self._deeds.doing(person.name, "policy.edited", organisation, after=after):
            return await self._reader.drafts.save(
                place.name, text, person.name, revision=revision, base=base
            )

    async def discard(self, person: Person, organisation: str, place: Place, revision: int) -> None:
        """Throw a draft away; raises DraftChanged if somebody else saved meanwhile."""
        _require(person, Permission.POLICIES_EDIT, organisation, place)
        after = {"level": place.name, "revision": revision}
        async with self._deeds.doing(person.name, "policy.discarded", organisation, after=after):
            await self._reader.drafts.discard(place.name, revision)

    async def submit(
        self,
        person: Person,
        organisation: str,
        place: Place,
        revision: int,
        reason: str,
        guard: GuardRules | None = None,
    ) -> PolicyVersion:
        """Make the draft a version that somebody else may approve.

        `guard` are its limits as a canary, if they are not the installation's.

        Raises:
            RequestInvalid: no reason is given, or the document does not pass its checks.
            DraftChanged: somebody else saved meanwhile.
        """
        _require(person, Permission.POLICIES_EDIT, organisation, place)
        reason = _reason(reason)
        draft = await self._reader.drafts.draft(place.name)
        if draft is None:
            raise RequestInvalid("there is no draft at this level")
        report = await self.checked(draft.text)
        if report.document is None or not report.is_ok:
            raise RequestInvalid("the document must pass its checks first", parameter="text")
        after = self._guarded(guard) | {"level": place.name, "note": reason}
        after["digest"] = report.document.digest
        async with self._deeds.doing(
            person.name, "policy.drafted", organisation, before=await self._states(place),
            after=after,
        ):  # fmt: skip
            return await self._reader.store.draft(
                place.name,
                report.document,
                person.name,
                reason,
                text=draft.text,
                revision=revision,
                guard=guard,
            )

    async def step(
        self,
        person: Person,
        organisation: str,
        place: Place,
        number: int,
        order: StepOrder,
    ) -> PolicyVersion:
        """Approve, reject or roll out a version.

        Raises:
            ChangedMeanwhile: another one is live, or a canary, by now.
            NotFoundException: there is no such version.
            RequestInvalid, Forbidden: as `PolicyStore.act`, or no reason is given, or a version is
                approved whose limits are wider than the installation's, and nobody said so.
        """
        taken = next((each for each in get_args(Action) if each == order.action), None)
        if taken not in VERDICTS and taken not in STEPS:
            raise NotFoundException
        judges = taken in VERDICTS
        permission = Permission.POLICIES_APPROVE if judges else Permission.POLICIES_PUBLISH
        _require(person, permission, organisation, place)
        version = await self._reader.version(place, number)
        reason = _reason(order.reason)
        await self.require_live(place, order.live, order.canary)
        if taken == "approve":
            require_seen(version.guard, self._reader.guard, seen=order.accepts_wider)
        after: dict[str, object] = {"level": place.name, "number": number}
        after |= {"digest": version.digest}
        after |= self._guarded(version.guard) if taken in ("approve", "canary") else {}
        after |= {"reason": reason} | ({"percent": order.percent} if order.percent else {})
        async with self._deeds.doing(
            person.name, f"policy.{taken}", organisation, before=await self._states(place),
            after=after,
        ):  # fmt: skip
            return await self._reader.store.act(
                place.name,
                number,
                taken,
                person.name,
                percent=order.percent,
                reason=reason,
                live=order.live,
                canary=order.canary,
            )

    async def schedule(
        self, person: Person, organisation: str, place: Place, number: int, wanted: Appointment
    ) -> Schedule:
        """Let an approved version go live, or become a canary, at a time.

        Raises:
            ChangedMeanwhile: something else acts, or waits for the version, than was seen.
            NotFoundException: there is no such version.
            RequestInvalid: as `ScheduleTable.add`, or no reason is given.
        """
        _require(person, Permission.POLICIES_PUBLISH, organisation, place)
        version = await self._reader.version(place, number)
        reason, seen = _reason(wanted.reason), wanted.seen
        await self.require_live(place, seen.live, seen.canary)
        after: dict[str, object] = {"level": place.name, "number": number, "at_us": wanted.at_us}
        after |= {"digest": version.digest, "action": wanted.action, "reason": reason}
        after |= {"approved_by": version.approver}
        after |= {"percent": wanted.percent} if wanted.percent else {}
        async with self._deeds.doing(
            person.name, "policy.scheduled", organisation, before=await self._states(place),
            after=after,
        ):  # fmt: skip
            return await self._reader.schedules.add(
                place.name, number, wanted.action, wanted.at_us, person.name,
                percent=wanted.percent, reason=reason, seen=seen,
            )  # fmt: skip

    async def unschedule(
        self,
        person: Person,
        organisation: str,
        place: Place,
        number: int,
        reason: str,
        seen: str | None = None,
    ) -> Schedule:
        """Call off what waits for a version; raises RequestInvalid when nothing does.

        `seen` is the id of what was looked at: another by then is ChangedMeanwhile.
        """
        _require(person, Permission.POLICIES_PUBLISH, organisation, place)
        reason = _reason(reason)
        after = {"level": place.name, "number": number, "reason": reason}
        async with self._deeds.doing(person.name, "policy.unscheduled", organisation, after=after):
            return await self._reader.schedules.cancel(
                place.name, number, person.name, reason, seen
            )

    async def roll_back(
        self,
        person: Person,
        organisation: str,
        place: Place,
        to: int | None,
        reason: str,
        *,
        live: int | None = None,
        canary: int | None = None,
    ) -> PolicyVersion:
        """Do `PolicyStore.roll_back`, on record; `live` and `canary` as in `step`."""
        _require(person, Permission.POLICIES_PUBLISH, organisation, place)
        if to is not None:
            await self._reader.version(place, to)
        reason = _reason(reason)
        await self.require_live(place, live, canary)
        after = {"level": place.name, "to": to, "reason": reason}
        async with self._deeds.doing(
            person.name, "policy.rolled_back", organisation, before=await self._states(place),
            after=after,
        ):  # fmt: skip
            return await self._reader.store.roll_back(
                place.name, person.name, to=to, reason=reason, live=live, canary=canary
            )

    async def require_live(self, place: Place, seen: int | None, canary: int | None = None) -> None:
        """Check before anything is recorded; the step itself checks again in its transaction.

        Raises:
            ChangedMeanwhile: another version is live, or a canary, than was seen.
        """
        live, _ = await self._reader.live(place)
        require_live(live.number if live else 0, seen)
        tried = await self._reader.lists.canary(place.name)
        require_canary(tried.number if tried else 0, canary)

    def _guarded(self, guard: GuardRules | None) -> dict[str, object]:
        """The entry in a record for a version's limits, if it has its own."""
        if guard is None:
            return {}
        said: dict[str, object] = {"guard": msgspec.to_builtins(guard)}
        if found := wider(guard, self._reader.guard):
            said["guard_wider"] = list(found)
        return said

    async def _states(self, place: Place) -> list[list[object]]:
        """The states of the newest versions, as the command line records them."""
        newest = await self._reader.lists.page(place.name, 0, STATES_MAX)
        return [[version.number, version.state] for version in newest.rows]


def _require(person: Person, permission: Permission, organisation: str, place: Place) -> None:
    if not may(person, permission, organisation, place):
        raise PermissionDeniedException("no role permits this")


def _reason(text: str) -> str:
    said = text.strip()
    if not said:
        raise RequestInvalid("give a reason; it is kept in the history", parameter="reason")
    if len(said) > REASON_LENGTH_MAX:
        most = f"use at most {REASON_LENGTH_MAX:,} characters"
        raise RequestInvalid(f"{most}: these are {len(said):,}", parameter="reason")
    return said
