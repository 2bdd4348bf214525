"""The schema of parcels: what is with a vendor's own batch API, and the lines that wait for it."""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
)

from gateway.store.schema.tables import metadata


parcels = Table(
    "parcels",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("batch_id", String(64), nullable=False),
    Column("provider", String(63), nullable=False),
    Column("state", String(10), nullable=False),
    Column("vendor_id", String(128), nullable=False),
    Column("lines", Integer, nullable=False),
    Column("made_us", BigInteger, nullable=False),
    Column("due_us", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("tender", String(64), nullable=False),
    Column("tended_until_us", BigInteger, nullable=False),
    Column("is_erased", Integer, nullable=False, server_default="0"),
    Column("is_doubtful", Integer, nullable=False, server_default="0"),
    Column("term", BigInteger, nullable=False, server_default="0"),
    Index(None, "due_us"),
)
"""`state` is `new`, `submitting` (bytes may have left), `submitted`, `cancelling` or `collected`; a
parcel that the vendor has forgotten is deleted here. `tries` counts since the last change of state;
`tender` is the worker that leads it, until `tended_until_us`. `is_erased` is 1 if lines of it were
erased: a `new` one is put together again, any other is not waited for. `is_doubtful` counts how
often it was sent under a name that its vendor never showed, and may be working on. `term` counts
how often it was taken: writes with an older term are refused."""

parked_lines = Table(
    "parked_lines",
    metadata,
    Column("batch_id", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("holder", String(64), nullable=False),
    Column("provider", String(63), nullable=False),
    Column("target", String(255), nullable=False),
    Column("parcel", String(64), nullable=False),
    Column("is_ending", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("parked_us", BigInteger, nullable=False),
    Column("sealed_ticket", LargeBinary, nullable=False),
    ForeignKeyConstraint(
        ["batch_id", "number"],
        ["batch_lines.batch_id", "batch_lines.number"],
        ondelete="CASCADE",
    ),
    Index(None, "parcel"),
)
"""A row for each line in the state `parked`. `parcel` is empty until it is in one; `is_ending` is 1
from before its outcome is written until the line has ended. Destroying a line destroys its
ticket."""

past_parcels = Table(
    "past_parcels",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("vendor_id", String(128), primary_key=True),
    Column("gone_us", BigInteger, nullable=False),
    Index(None, "gone_us"),
)
"""Parcels that were released, by the vendor's name of each batch. A sender that was away meanwhile
learns here whether the vendor's answer is new."""

vendor_copies = Table(
    "vendor_copies",
    metadata,
    Column("parcel", String(64), primary_key=True),
    Column("case_id", String(12), primary_key=True),
    Column("organisation", String(63), nullable=False),
    Column("provider", String(63), nullable=False),
    Column("vendor_id", String(128), nullable=False),
    Column("lines", Integer, nullable=False),
    Column("state", String(10), nullable=False),
    Column("note", Text, nullable=False),
    Column("ordered_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger, nullable=False),
    Index(None, "organisation"),
)
"""Lines that an erasure destroyed here and a vendor still holds. `case_id` is empty for a command;
`state` is `ordered`, then `deleted`, `unsent` or `kept`."""

unsent_lines = Table(
    "unsent_lines",
    metadata,
    Column("batch_id", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("erased_us", BigInteger, nullable=False),
    Column("parcel", String(64), nullable=False, server_default=""),
    Index(None, "parcel"),
)
"""Parked lines that an erasure destroyed and that no vendor had accepted by then. Written in the
transaction that destroys them, for whoever ends their intents: these cost nothing. A `parcel` that
is not empty was being sent: if it is refused, the name is cleared, otherwise the row is deleted."""
