"""Traffic over the JSON API: the lists and stories that the pages show, and proofs of records."""

from typing import Any, Final

from litestar import get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs
from admin.asking import Asking
from admin.evidence import EvidenceReader
from admin.preferences import Preferences
from admin.services import Services
from admin.traffic.asked import asked_of
from admin.traffic.exports import values_of
from admin.traffic.pages import zone_of
from admin.traffic.reader import TrafficRoom
from admin.traffic.story import Story, StoryReader
from admin.traffic.words import verdict_of
from gateway.oversight.access import Permission
from gateway.store.evidence.proofs import Proof
from gateway.types import AuditRecord
from policies.explain import Explanation


_READ: Final = needs(Permission.TRAFFIC_READ)
_TRAFFIC: Final = "/api/organisations/{organisation:str}/traffic"


class TrafficPage(Struct, frozen=True):
    """Rows, newest first; `before` goes on where they end, and is empty at the end."""

    rows: list[dict[str, Any]]
    before: str
    looked_back_us: int | None
    unruled_us: int | None
    """Where a rule is asked for: up to when some requests are missing, as nobody looked yet."""


class RequestStory(Struct, frozen=True):
    """What the page of one request says."""

    request_id: str
    verdict: str
    meaning: str
    """Of what was not answered: what its error means, and what helps; else empty."""
    reason: str
    route: str
    intent: AuditRecord | None
    outcome: AuditRecord | None
    explanation: Explanation | None
    is_same_decision: bool
    sequences: list[int]


def traffic_api_routes(services: Services) -> list[Any]:
    """All of them read."""
    room, stories = TrafficRoom(services), StoryReader(services)
    evidence = EvidenceReader(services)

    @get(_TRAFFIC, opt=_READ)
    async def list_traffic(request: Asking, organisation: FromPath[str]) -> TrafficPage:
        asked = asked_of(request)
        asked.require_answerable()
        page = await room.page(organisation, asked, await zone_of(request, services))
        before = ""
        if page.is_more:
            before = f"{page.rows[-1].utc_us}.{page.rows[-1].sequence}"
        elif page.looked_back_us is not None:
            before = f"{page.looked_back_us}.0"
        unruled_us = await room.unruled_us(organisation, asked)
        rows = [values_of(row) for row in page.rows]
        return TrafficPage(rows, before, page.looked_back_us, unruled_us)

    @get(f"{_TRAFFIC}/{{request_id:str}}", opt=_READ)
    async def tell_request(organisation: FromPath[str], request_id: FromPath[str]) -> RequestStory:
        story = await stories.story(organisation, request_id)
        if story is None:
            raise NotFoundException
        return _told(story)

    @get("/api/organisations/{organisation:str}/proofs/{sequence:int}", opt=_READ)
    async def prove(organisation: FromPath[str], sequence: FromPath[int]) -> Proof:
        row = await evidence.record(organisation, sequence) if sequence > 0 else None
        found = await evidence.proof(organisation, row) if row is not None else None
        if found is None:
            raise NotFoundException
        return found

    return [list_traffic, tell_request, prove]


def _told(story: Story) -> RequestStory:
    verdict = verdict_of(story, Preferences())
    return RequestStory(
        story.request_id,
        verdict.sentence,
        verdict.meaning,
        verdict.reason,
        story.route,
        story.intent,
        story.outcome,
        story.explanation,
        story.is_same_decision,
        [each.sequence for each in story.evidence],
    )
