"""The schema of custody: holds, reveals and their reports, erasure cases, evidence packs."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Integer, String, Table, Text

from gateway.store.schema.tables import metadata


audit_holds = Table(
    "audit_holds",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("organisation", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("set_by", Text, nullable=False),
    Column("set_us", BigInteger, nullable=False),
    Column("release_by", Text, nullable=False),
    Column("released_by", Text, nullable=False),
)

audit_reveals = Table(
    "audit_reveals",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("organisation", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("ticket", Text, nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("asked_us", BigInteger, nullable=False),
    Column("minutes", Integer, nullable=False),
    Column("approved_by", Text, nullable=False),
    Column("approved_us", BigInteger, nullable=False),
    Column("used", Integer, nullable=False),
    Column("ended_by", Text, nullable=False, server_default=""),
    Column("ended_us", BigInteger, nullable=False, server_default="0"),
    Column("ended_comment", Text, nullable=False, server_default=""),
)
"""`ended_by` ended it early, or declined it; a declined one is ended and never approved."""

reveal_reports = Table(
    "reveal_reports",
    metadata,
    Column("organisation", String(63), ForeignKey("organisations.name"), primary_key=True),
    Column("since_us", BigInteger, primary_key=True, autoincrement=False),
    Column("until_us", BigInteger, nullable=False),
    Column("claimed_us", BigInteger, nullable=False),
    Column("made_us", BigInteger, nullable=False),
    Column("sent_us", BigInteger, nullable=False),
    Column("asked", Integer, nullable=False),
    Column("approved", Integer, nullable=False),
    Column("readings", Integer, nullable=False),
    Column("people", Integer, nullable=False),
)
"""One row for each organisation and week. Whoever claims it makes it, or sends it; `made_us` and
`sent_us` are 0 until it is in the log, and until the web hook accepted it."""

erasure_cases = Table(
    "erasure_cases",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("organisation", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("law", String(20), nullable=False),
    Column("ticket", Text, nullable=False),
    Column("opened_by", Text, nullable=False),
    Column("opened_us", BigInteger, nullable=False),
    Column("due_us", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("closed_by", Text, nullable=False),
    Column("closed_us", BigInteger, nullable=False),
    Column("keys", Integer, nullable=False),
    Column("certificate", Text, nullable=False),
    Column("asked_by", Text, nullable=False, server_default=""),
    Column("asked_us", BigInteger, nullable=False, server_default="0"),
    Column("claimed_us", BigInteger, nullable=False, server_default="0"),
    Column("declined_by", Text, nullable=False, server_default=""),
    Column("declined_us", BigInteger, nullable=False, server_default="0"),
    Column("comment", Text, nullable=False, server_default=""),
    Column("closed_revision", BigInteger, nullable=False, server_default="0"),
    Column("reached_us", BigInteger, nullable=False, server_default="0"),
    Column("awaited", Text, nullable=False, server_default=""),
)
"""`subject` is the keyed digest of an end user, never the name; empty for the complete
organisation. `asked_by` requests that it be carried out now, until somebody else decides;
`claimed_us` is when that was begun; `comment` is that of the last verdict. `closed_revision` is the
counter of changes that told the workers of it, 0 if none did; `awaited` is JSON, the workers whose
folders have to report; `reached_us` is when the last of them had."""

audit_folders = Table(
    "audit_folders",
    metadata,
    Column("folder", String(16), primary_key=True),
    Column("workers", Text, nullable=False),
    Column("told_by", Text, nullable=False),
    Column("told_us", BigInteger, nullable=False),
    Column("since_revision", BigInteger, nullable=False),
    Column("settled_revision", BigInteger, nullable=False, server_default="-1"),
    Column("settled_workers", Text, nullable=False, server_default=""),
)
"""Each audit folder by its mark. `workers` is JSON, the owners of the segments and keys there, as
`told_by` last reported; `since_revision` is the counter of changes when it was first seen without
any key, -1 if it had some: no case closed earlier concerns an empty folder. It has done its part in
all cases closed up to `settled_revision`, for the keys of `settled_workers`, as JSON."""

retention_reports = Table(
    "retention_reports",
    metadata,
    Column("folder", String(16), primary_key=True),
    Column("organisation", String(63), primary_key=True),
    Column("told_by", Text, nullable=False),
    Column("looked_us", BigInteger, nullable=False),
    Column("days", Integer, nullable=False),
    Column("due", Integer, nullable=False),
    Column("held", Integer, nullable=False),
    Column("unsure", Integer, nullable=False),
    Column("over_day", Integer, nullable=False),
    Column("gone", Integer, nullable=False),
    Column("gone_us", BigInteger, nullable=False),
)
"""The state of an organisation's content keys in an audit folder at the last look: the days of its
class, and how many keys left were past their time. `over_day` is the first day on which a key that
is left and not held is past its time, 0 without one; `gone` how many were destroyed the last time
that any were."""

erasure_reports = Table(
    "erasure_reports",
    metadata,
    Column("case_id", String(12), primary_key=True),
    Column("folder", String(16), primary_key=True),
    Column("workers", Text, nullable=False),
    Column("told_by", Text, nullable=False),
    Column("found", Text, nullable=False),
    Column("younger", Integer, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Column("held_by", Text, nullable=False),
    Column("claimed_us", BigInteger, nullable=False),
    Column("done_us", BigInteger, nullable=False),
    Column("checked", Text, nullable=False),
)
"""What a case did in one folder. `found` is JSON, the keys there before any was destroyed;
`younger` how many were left, since they were made later; `told_by` does it since `claimed_us`;
`held_by` is the hold that forbids it; `done_us` is 0 until all are destroyed; `checked` is JSON,
what was found in their records afterwards."""

erasure_attempts = Table(
    "erasure_attempts",
    metadata,
    Column("case_id", String(12), primary_key=True),
    Column("begun_us", BigInteger, primary_key=True, autoincrement=False),
    Column("found", Text, nullable=False),
)
"""`found` is JSON: who began it, and the keys and other content right before they were
destroyed."""

evidence_packs = Table(
    "evidence_packs",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("organisation", Text, nullable=False),
    Column("log", Text, nullable=False),
    Column("recipient", Text, nullable=False),
    Column("since_us", BigInteger, nullable=False),
    Column("until_us", BigInteger, nullable=False),
    Column("with_policies", Boolean, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("made_us", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("problem", Text, nullable=False),
)
"""`log` names the log that it proves: the organisation's own, or that of the operators."""
