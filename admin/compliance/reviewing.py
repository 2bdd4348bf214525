"""Reviews as they stand, and the deeds that make, sign and end them."""

from collections.abc import Sequence
from typing import Final

from litestar.exceptions import NotFoundException
from msgspec import Struct
from msgspec.structs import asdict

from admin.queries import PAGE_ROWS
from admin.services import Services
from gateway.clock import DAY_US
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.oversight.access import Permission, Person, allows
from gateway.oversight.deeds import OPERATORS
from gateway.oversight.searching import parse, render, timeless
from gateway.store.custody.reviews import COMMENT_CHARS_MAX, Review, ReviewStore, Signature, checked
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.pages import Part
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.explorer import Explorer
from gateway.store.traffic.lists import Row


SAMPLE: Final = 20
SETTLED_US: Final = 60_000_000
"""A span ends so long ago: by then what was written is in the database, and is counted."""


class ReviewOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be looked at, how often, and by whom."""

    name: str
    filter: str = ""
    room: str = "audit"
    every_days: int = 7
    responsible: str = ""
    """Empty for whoever orders it."""


class SignOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Which span was looked at, as the page said it, and what there is to say."""

    since_us: int
    until_us: int
    comment: str = ""


class ReviewLine(Struct, frozen=True):
    """A review with its state now."""

    review: Review
    state: str
    due_us: int
    missed: int
    """Whole periods gone by since it was due."""
    last: Signature | None


class ReviewDetail(Struct, frozen=True):
    """All that a review's page shows."""

    line: ReviewLine
    since_us: int
    """What is to be signed: from here …"""
    until_us: int
    """… to here, exclusive: a minute before the page was read."""
    records: int
    is_all: bool
    """Whether so many are all that match; otherwise they are at least so many."""
    sample: tuple[Row, ...]
    """The newest of them."""
    signatures: tuple[Signature, ...]
    checkpoint_size: int
    checkpoint_us: int
    newest_sequence: int
    """The highest number in the organisation's own log among the sample; 0 for none."""


class ReviewRoom:
    """Reviews of one organisation at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._explorer = Explorer(services.traffic)
        self._trees = DatabaseAuditTrees(services.database)
        self.store = ReviewStore(services.database, services.clock)

    async def lines(self, organisation: str) -> list[ReviewLine]:
        """The longest due first, ended ones last."""
        now_us = self._services.clock.utc_us()
        last = await self.store.last_signatures(organisation)
        return [
            _line(review, last.get(review.id), now_us)
            for review in await self.store.reviews(organisation)
        ]

    async def page(
        self, organisation: str, first: int, limit: int = PAGE_ROWS, after: str = ""
    ) -> Part[ReviewLine]:
        """Some of them, in the same order."""
        now_us = self._services.clock.utc_us()
        part = await self.store.page(organisation, first, limit, after)
        last = await self.store.last_signatures(organisation, [each.id for each in part.rows])
        lines = (_line(review, last.get(review.id), now_us) for review in part.rows)
        return part.of(lines)

    async def due(self, organisation: str) -> list[str]:
        """States of those that are to be signed now."""
        now_us = self._services.clock.utc_us()
        return [each.state(now_us) for each in await self.store.due([organisation])]

    async def review(self, organisation: str, review_id: str) -> Review:
        """Raises NotFoundException where there is none."""
        found = await self.store.review(organisation, review_id)
        if found is None:
            raise NotFoundException
        return found

    async def detail(self, organisation: str, review_id: str) -> ReviewDetail:
        """A review with what is to be signed now; raises NotFoundException."""
        review = await self.review(organisation, review_id)
        now_us = self._services.clock.utc_us()
        since_us = review.looked_until_us
        until_us = max(since_us, now_us - SETTLED_US)
        searches = self._searches(review, since_us, until_us)
        page = await self._explorer.page(searches, limit=SAMPLE)
        records, is_all = await self._count(searches)
        newest = await self._trees.newest(organisation)
        signatures = await self.store.signatures(review)
        own = [row.sequence for row in page.rows if row.organisation == organisation]
        return ReviewDetail(
            line=_line(review, signatures[0] if signatures else None, now_us),
            since_us=since_us,
            until_us=until_us,
            records=records,
            is_all=is_all,
            sample=page.rows,
            signatures=tuple(signatures),
            checkpoint_size=newest.size if newest else 0,
            checkpoint_us=newest.signed_us if newest else 0,
            newest_sequence=max(own, default=0),
        )

    async def make(self, person: Person, organisation: str, order: ReviewOrder) -> Review:
        """A review that is due at once, for the period before now.

        Raises:
            RequestInvalid: with the field that is wrong.
        """
        now_us = self._services.clock.utc_us()
        responsible = order.responsible or person.name
        await self._require_able(organisation, responsible, person)
        review = checked(
            Review(
                id=self.store.new_id(),
                organisation=organisation,
                name=order.name.strip(),
                room=order.room,
                filter=_filter_of(order.filter),
                every_days=order.every_days,
                responsible=responsible,
                made_by=person.name,
                made_us=now_us,
                ended_us=None,
                looked_until_us=now_us - order.every_days * DAY_US,
            )
        )
        fields = ("name", "room", "filter", "every_days", "responsible")
        after = {"review": review.id} | {name: getattr(review, name) for name in fields}
        async with self._services.deeds.doing(
            person.name, "review.made", organisation, after=after
        ):
            await self.store.make(review)
        return review

    async def sign(self, person: Person, review: Review, order: SignOrder) -> Signature:
        """Sign a span off: who, what, how many records, and how the log stood.

        Raises:
            RequestInvalid: the span is none, or the comment is too long.
            ChangedMeanwhile: somebody signed it, or ended the review, meanwhile.
        """
        now_us, comment = self._services.clock.utc_us(), order.comment.strip()
        if len(comment) > COMMENT_CHARS_MAX:
            reason = f"a comment has at most {COMMENT_CHARS_MAX} characters"
            raise RequestInvalid(reason, parameter="comment")
        if order.since_us != review.looked_until_us or review.ended_us is not None:
            raise ChangedMeanwhile("somebody else signed this period meanwhile")
        if not order.since_us < order.until_us <= now_us - SETTLED_US:
            raise RequestInvalid("this period cannot be reviewed", parameter="until_us")
        searches = self._searches(review, order.since_us, order.until_us)
        records, is_all = await self._count(searches)
        newest = await self._trees.newest(review.organisation)
        signature = Signature(
            review=review.id,
            since_us=order.since_us,
            until_us=order.until_us,
            signed_us=now_us,
            signed_by=person.name,
            records=records,
            is_all=is_all,
            comment=comment,
            checkpoint_size=newest.size if newest else 0,
            checkpoint_root=newest.root.hex() if newest else "",
            checkpoint_us=newest.signed_us if newest else 0,
        )
        after = {"name": review.name, "filter": review.filter} | asdict(signature)
        async with self._services.deeds.doing(
            person.name, "review.signed", review.organisation, after=after
        ):
            if not await self.store.sign(signature):
                raise ChangedMeanwhile("somebody else signed this period meanwhile")
        return signature

    async def end(self, person: Person, review: Review) -> None:
        """It is due no more; what was signed stays."""
        before = {"review": review.id, "name": review.name, "ended": False}
        async with self._services.deeds.doing(
            person.name,
            "review.ended",
            review.organisation,
            before=before,
            after={"review": review.id, "ended": True},
        ):
            await self.store.end(review)

    async def able(self, organisation: str) -> list[Person]:
        """Who may sign there."""
        return await self._services.people_lists.able(Permission.REVIEWS_SIGN, organisation)

    async def _require_able(self, organisation: str, name: str, person: Person) -> None:
        named = await self._services.people_lists.person(name)
        is_able = named is not None and allows(named, Permission.REVIEWS_SIGN, organisation)
        if name != person.name and not is_able:
            reason = "nobody with that name may sign reviews here"
            raise RequestInvalid(reason, parameter="responsible")

    async def _count(self, searches: Sequence[Search]) -> tuple[int, bool]:
        counts = await self._explorer.counts(searches, ())
        return sum(each.rows for each in counts), all(each.is_all for each in counts)

    def _searches(self, review: Review, since_us: int, until_us: int) -> list[Search]:
        organisation, found = review.organisation, parse(review.filter)
        sources = [Source(organisation, "outcome")]
        if review.room == "audit":
            sources = [Source(organisation), Source(OPERATORS, "admin", organisation)]
        now_us = self._services.clock.utc_us()
        return [
            Search(source, found, now_us, since_us=since_us, until_us=until_us)
            for source in sources
        ]


def _filter_of(text: str) -> str:
    """A filter in its normal form, without the times that a review has of its own.

    Raises:
        RequestInvalid: it cannot be read.
    """
    return render(timeless(text))


def _line(review: Review, last: Signature | None, now_us: int) -> ReviewLine:
    return ReviewLine(
        review=review,
        state=review.state(now_us),
        due_us=review.due_us,
        missed=review.missed(now_us),
        last=last,
    )
