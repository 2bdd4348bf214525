"""Recurring reviews: a filter that somebody checks every so many days, and who signed it off.

Each signature covers the time since the previous one, so that no moment is left out or signed
twice. It is also a deed in the audit log; the row here only makes it quick to find.
"""

import secrets
from collections.abc import Collection
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    RowMapping,
    String,
    Table,
    Text,
    case,
    cast,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from gateway.clock import DAY_US, Clock
from gateway.errors import RequestInvalid
from gateway.store.engine import Database
from gateway.store.pages import Order, Part, part_behind
from gateway.store.schema.tables import metadata


DAYS_MAX: Final = 366
REVIEWS_MAX: Final = 100
"""For one organisation, without ended ones."""
SIGNATURES_SHOWN: Final = 50
NAME_CHARS_MAX: Final = 80
COMMENT_CHARS_MAX: Final = 2_000
_ID_BYTES: Final = 6
Room = Literal["audit", "traffic"]
ROOMS: Final[tuple[Room, ...]] = ("audit", "traffic")

reviews = Table(
    "reviews",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("organisation", String(63), ForeignKey("organisations.name"), nullable=False),
    Column("name", String(NAME_CHARS_MAX), nullable=False),
    Column("room", String(20), nullable=False),
    Column("filter", Text, nullable=False),
    Column("every_days", Integer, nullable=False),
    Column("responsible", String(63), nullable=False),
    Column("made_by", String(200), nullable=False),
    Column("made_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    Column("looked_until_us", BigInteger, nullable=False),
    Index(None, "organisation"),
)
"""`looked_until_us` is the end of the last signed span, or the start of the first one."""

review_signatures = Table(
    "review_signatures",
    metadata,
    Column("review", String(12), ForeignKey("reviews.id"), primary_key=True),
    Column("since_us", BigInteger, primary_key=True, autoincrement=False),
    Column("until_us", BigInteger, nullable=False),
    Column("signed_us", BigInteger, nullable=False),
    Column("signed_by", String(200), nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("is_all", Boolean, nullable=False),
    Column("comment", Text, nullable=False),
    Column("checkpoint_size", BigInteger, nullable=False),
    Column("checkpoint_root", String(64), nullable=False),
    Column("checkpoint_us", BigInteger, nullable=False),
)


_DUE_US: Final = reviews.c.looked_until_us + cast(reviews.c.every_days, BigInteger) * DAY_US
_LISTED: Final = Order(
    (
        case((reviews.c.ended_us.is_not(None), 1), else_=0).label("is_ended"),
        _DUE_US.label("is_due_us"),
        reviews.c.id,
    )
)


class Review(Struct, frozen=True):
    """A filter of records that is reviewed regularly."""

    id: str
    organisation: str
    name: str
    room: str
    filter: str
    every_days: int
    responsible: str
    made_by: str
    made_us: int
    ended_us: int | None
    looked_until_us: int

    @property
    def due_us(self) -> int:
        """When the next span is over and has to be signed."""
        return self.looked_until_us + self.every_days * DAY_US

    def missed(self, now_us: int) -> int:
        """How many complete periods have passed since it was due."""
        return max(0, (now_us - self.due_us) // (self.every_days * DAY_US))

    def state(self, now_us: int) -> str:
        """`ended`, `ahead`, `due`, or `overdue` a day after it was due."""
        if self.ended_us is not None:
            return "ended"
        if now_us < self.due_us:
            return "ahead"
        return "overdue" if now_us - self.due_us >= DAY_US else "due"


class Signature(Struct, frozen=True):
    """Who reviewed which span, and the state of the log at that time."""

    review: str
    since_us: int
    until_us: int
    """Exclusive."""
    signed_us: int
    signed_by: str
    records: int
    """This many matched; at least this many if not `is_all`."""
    is_all: bool
    comment: str
    checkpoint_size: int
    """How many records of the organisation's log the newest checkpoint covers; 0 without one."""
    checkpoint_root: str
    checkpoint_us: int


class ReviewStore:
    """Reviews of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def reviews(self, organisation: str) -> list[Review]:
        """All reviews of an organisation: longest due first, ended ones last."""
        async with self._database.reading() as connection:
            query = select(reviews).where(reviews.c.organisation == organisation)
            rows = (await connection.execute(_LISTED.reading(query))).mappings()
            return [_review_of(row) for row in rows]

    async def page(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[Review]:
        """A page of them in the same order; `after` is the key of the last one before it."""
        query, place = select(reviews).where(reviews.c.organisation == organisation), (first, after)
        async with self._database.reading() as connection:
            return await part_behind(connection, query, _LISTED, place, limit, _review_of)

    async def due(self, organisations: Collection[str] | None) -> list[Review]:
        """Reviews due now, of these organisations or of all; longest due first."""
        query = select(reviews).where(reviews.c.ended_us.is_(None), self._clock.utc_us() >= _DUE_US)
        if organisations is not None:
            query = query.where(reviews.c.organisation.in_(sorted(organisations)))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return sorted((Review(**row) for row in rows), key=lambda each: each.due_us)

    async def review(self, organisation: str, review_id: str) -> Review | None:
        query = select(reviews).where(
            reviews.c.organisation == organisation, reviews.c.id == review_id
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else Review(**row)

    def new_id(self) -> str:
        return secrets.token_hex(_ID_BYTES)

    async def make(self, review: Review) -> None:
        """Store a new review.

        Raises:
            RequestInvalid: there are too many, or this one exists already.
        """
        columns = reviews.c
        count = select(func.count()).select_from(reviews)
        count = count.where(columns.organisation == review.organisation, columns.ended_us.is_(None))
        try:
            async with self._database.writing() as connection:
                if int((await connection.execute(count)).scalar_one()) >= REVIEWS_MAX:
                    reason = f"there are {REVIEWS_MAX} reviews already: end one first"
                    raise RequestInvalid(reason, parameter="name")
                await connection.execute(insert(reviews).values(asdict(review)))
        except IntegrityError:
            raise RequestInvalid("this review was made already", parameter="name") from None

    async def end(self, review: Review) -> None:
        """End a review: it is no longer due; its signatures stay. May be repeated."""
        change = update(reviews).where(reviews.c.id == review.id, reviews.c.ended_us.is_(None))
        async with self._database.writing() as connection:
            await connection.execute(change.values(ended_us=self._clock.utc_us()))

    async def sign(self, signature: Signature) -> bool:
        """Store a signature; False if somebody signed this span, or ended the review, meanwhile."""
        change = update(reviews).where(
            reviews.c.id == signature.review,
            reviews.c.looked_until_us == signature.since_us,
            reviews.c.ended_us.is_(None),
        )
        async with self._database.writing() as connection:
            moved = await connection.execute(change.values(looked_until_us=signature.until_us))
            if not moved.rowcount:
                return False
            await connection.execute(insert(review_signatures).values(asdict(signature)))
        return True

    async def last_signatures(
        self, organisation: str, ids: Collection[str] | None = None
    ) -> dict[str, Signature]:
        """The newest signature of each review of an organisation, or of some, by review id."""
        last = review_signatures.c.until_us == reviews.c.looked_until_us
        query = (
            select(review_signatures)
            .join(reviews, (review_signatures.c.review == reviews.c.id) & last)
            .where(reviews.c.organisation == organisation)
        )
        if ids is not None:
            query = query.where(reviews.c.id.in_(ids))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return {row["review"]: Signature(**row) for row in rows}

    async def signatures(self, review: Review) -> list[Signature]:
        """The newest signatures, newest first."""
        columns = review_signatures.c
        query = select(review_signatures).where(columns.review == review.id)
        query = query.order_by(columns.since_us.desc()).limit(SIGNATURES_SHOWN)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [Signature(**row) for row in rows]


def _review_of(row: RowMapping) -> Review:
    return Review(**{name: row[name] for name in Review.__struct_fields__})


def checked(review: Review) -> Review:
    """The review, if it is valid.

    Raises:
        RequestInvalid: with the field that is wrong.
    """
    if not 0 < len(review.name) <= NAME_CHARS_MAX or not review.name.isprintable():
        reason = f"a name has 1 to {NAME_CHARS_MAX} characters that can be seen"
        raise RequestInvalid(reason, parameter="name")
    if not 0 < review.every_days <= DAYS_MAX:
        raise RequestInvalid(f"every 1 to {DAYS_MAX} days", parameter="every_days")
    if review.room not in ROOMS:
        raise RequestInvalid("there is no such list", parameter="room")
    return review
