"""The schema: one table per kind of fact, in types that SQLite and PostgreSQL share.

Names of organisations, workspaces and projects are their keys and never change, because audit
records and budget accounts are written with them; what people read is the title. Times are
microseconds UTC, money is micro-dollars.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_NAME = String(63)
_ACCOUNT = String(255)
_WORKER = String(100)
_ZONE = String(64)
_WINDOW = String(5)

revisions = Table(
    "revisions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)
"""One counter, raised in the transaction of every change that a running worker must see."""

organisations = Table(
    "organisations",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("title", String(200), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("time_zone", _ZONE, nullable=False, server_default="UTC"),
)

workspaces = Table(
    "workspaces",
    metadata,
    Column("organisation", _NAME, ForeignKey("organisations.name"), primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("title", String(200), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("owner", _NAME, nullable=False, server_default=""),
    Column("archived_us", BigInteger),
    Column("revision", BigInteger, nullable=False, server_default="0"),
    Column("key_expires_days", Integer),
    Column("key_budget_microusd", BigInteger),
    Column("key_budget_window", _WINDOW, nullable=False, server_default="month"),
    Column("key_requests_per_minute", BigInteger),
    Column("key_tokens_per_minute", BigInteger),
    Column("key_concurrent_requests", BigInteger),
)
"""What people call a team; `key_*` are the defaults for new keys in it."""

projects = Table(
    "projects",
    metadata,
    Column("organisation", _NAME, primary_key=True),
    Column("workspace", _NAME, primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("title", String(200), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    ForeignKeyConstraint(
        ["organisation", "workspace"], ["workspaces.organisation", "workspaces.name"]
    ),
)

virtual_keys = Table(
    "virtual_keys",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("organisation", _NAME, nullable=False),
    Column("workspace", _NAME, nullable=False),
    Column("project", _NAME, nullable=False),
    Column("name", String(200), nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("pepper_version", Integer, nullable=False),
    Column("former_digest", LargeBinary(32)),
    Column("former_pepper_version", Integer),
    Column("former_until_us", BigInteger),
    Column("labels", JSON, nullable=False),
    Column("models", JSON(none_as_null=True)),
    Column("created_us", BigInteger, nullable=False),
    Column("created_by", String(200), nullable=False),
    Column("expires_us", BigInteger),
    Column("revoked_us", BigInteger),
    Column("translation", String(7), nullable=False, server_default="warn"),
    Column("revoked_revision", BigInteger),
    Column("workload", JSON(none_as_null=True)),
    ForeignKeyConstraint(
        ["organisation", "workspace", "project"],
        ["projects.organisation", "projects.workspace", "projects.name"],
    ),
    Index(None, "organisation", "workspace", "project"),
)
"""`former_*` is the secret before a rotation, still valid until `former_until_us`.

A key with a `workload` is proved by tokens of an issuer; nobody knows the secret of its digest.
"""

key_proposals = Table(
    "key_proposals",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("organisation", _NAME, nullable=False),
    Column("key_id", String(12), nullable=False),
    Column("seen", Text, nullable=False),
    Column("wanted", Text, nullable=False),
    Column("proposed_by", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("proposed_us", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("decided_by", String(200), nullable=False),
    Column("comment", Text, nullable=False),
    Column("decided_us", BigInteger, nullable=False),
    Index(None, "organisation", "state"),
    Index(None, "key_id"),
)
"""Proposals that a key may do more: its present scope (`seen`) and the `wanted` one, both as
JSON."""

budgets = Table(
    "budgets",
    metadata,
    Column("account", _ACCOUNT, primary_key=True),
    Column("limit_microusd", BigInteger, nullable=False),
    Column("window_kind", _WINDOW, primary_key=True),
    Column("window_start_us", BigInteger, nullable=False),
    Column("spent_microusd", BigInteger, nullable=False),
    Column("leased_microusd", BigInteger, nullable=False),
    Column("time_zone", _ZONE, nullable=False, server_default="UTC"),
    Column("zone_since_us", BigInteger, nullable=False, server_default="0"),
    Column("begun_us", BigInteger, nullable=False, server_default="0"),
    CheckConstraint("limit_microusd >= 0", name="limit_not_negative"),
    CheckConstraint("spent_microusd >= 0", name="spent_not_negative"),
    CheckConstraint("leased_microusd >= 0", name="leased_not_negative"),
)
"""`leased` is what the workers hold and have not reported as spent, summed over the leases."""

budget_raises = Table(
    "budget_raises",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("organisation", _NAME, nullable=False),
    Column("account", _ACCOUNT, nullable=False),
    Column("window_kind", _WINDOW, nullable=False),
    Column("seen_microusd", BigInteger, nullable=False),
    Column("back_microusd", BigInteger, nullable=False),
    Column("wanted_microusd", BigInteger, nullable=False),
    Column("until_us", BigInteger, nullable=False),
    Column("asked_by", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked_us", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("decided_by", String(200), nullable=False),
    Column("comment", Text, nullable=False),
    Column("decided_us", BigInteger, nullable=False),
    Index(None, "organisation", "state"),
    Index(None, "account", "window_kind"),
    Index(None, "state", "until_us"),
)
"""Requests for a larger limit: permanent if `until_us` is 0, otherwise `back` is restored then."""

budget_leases = Table(
    "budget_leases",
    metadata,
    Column("account", _ACCOUNT, primary_key=True),
    Column("worker", _WORKER, primary_key=True),
    Column("incarnation", String(32), nullable=False),
    Column("window_start_us", BigInteger, nullable=False),
    Column("amount_microusd", BigInteger, nullable=False),
    Column("spent_microusd", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
    Column("window_kind", _WINDOW, primary_key=True),
    ForeignKeyConstraint(
        ["account", "window_kind"],
        ["budgets.account", "budgets.window_kind"],
        ondelete="CASCADE",
    ),
    Index(None, "worker"),
)
"""Both sums run from the start of the lease, so that a report repeated changes nothing."""

budget_hearings = Table(
    "budget_hearings",
    metadata,
    Column("account", _ACCOUNT, primary_key=True),
    Column("window_kind", _WINDOW, primary_key=True),
    Column("worker", _WORKER, primary_key=True),
    Column("since_us", BigInteger, nullable=False),
    Column("heard_us", BigInteger, nullable=False),
)
"""From when on a worker charged a limit, by its own clock. `since_us` is when the limit was set,
which may have been set again since, or when a window began that by its clock had not yet."""

sealed_secrets = Table(
    "sealed_secrets",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("master_key_id", String(32), nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("set_us", BigInteger, nullable=False),
    Column("set_by", String(200), nullable=False),
    Column("fingerprint", String(16), nullable=False, server_default=""),
)
"""The version in use of each; name and version are authenticated with what is sealed."""

spare_secrets = Table(
    "spare_secrets",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("kind", String(10), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("master_key_id", String(32), nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("set_us", BigInteger, nullable=False),
    Column("set_by", String(200), nullable=False),
    Column("fingerprint", String(16), nullable=False, server_default=""),
    Column("until_us", BigInteger, nullable=False),
)
"""The `next` version of a secret, not used yet, and its `former` one, which may come back."""

key_checks = Table(
    "key_checks",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("key_id", String(32), nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("made_us", BigInteger, nullable=False),
)
"""A known text under each key that lies outside of the database, to recognise a wrong key.

The present master key is `master_key`; each that stood beside one also has a row by its id.
"""

people = Table(
    "people",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("title", String(200), nullable=False),
    Column("password_hash", String(255)),
    Column("subject", String(512)),
    Column("created_us", BigInteger, nullable=False),
    Column("disabled_us", BigInteger),
    Column("of_token", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("subject"),
)
"""People who may sign in to the control plane; `subject` is an OpenID provider's name for them.

`of_token`: their link was made with the admin token, so its holder may be this person.
"""

role_grants = Table(
    "role_grants",
    metadata,
    Column("person", _NAME, ForeignKey("people.name"), primary_key=True),
    Column("role", String(20), primary_key=True),
    Column("organisation", _NAME, primary_key=True),
    Column("by_group", Text, nullable=False, server_default=""),
)
"""`*` as the organisation is everywhere; `by_group` is the provider's group that gives it."""

invitations = Table(
    "invitations",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("person", _NAME, ForeignKey("people.name"), nullable=False, index=True),
    Column("made_by", String(200), nullable=False),
    Column("made_us", BigInteger, nullable=False),
    Column("until_us", BigInteger, nullable=False),
)
"""Unused links; each person has at most one."""

setup_links = Table(
    "setup_links",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("until_us", BigInteger, nullable=False),
)
"""Links that make the first person, while no person exists."""

admin_sessions = Table(
    "admin_sessions",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("person", _NAME, nullable=False),
    Column("began_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Column("proved_us", BigInteger, nullable=False),
    Column("vouched_subject", LargeBinary(32)),
    Column("vouched_sid", LargeBinary(32)),
    Column("id_token_key", LargeBinary),
    Column("id_token", LargeBinary),
    Column("master_key_id", String(32), nullable=False, server_default="", index=True),
    Index(None, "person"),
    Index(None, "vouched_subject"),
    Index(None, "vouched_sid"),
)
"""Sessions of people; of a session's id only a digest. `vouched_*` are digests of an OpenID
provider's names for the person and its own session; its identity token is sealed beside them."""

budget_alerts = Table(
    "budget_alerts",
    metadata,
    Column("account", _ACCOUNT, primary_key=True),
    Column("window_start_us", BigInteger, primary_key=True, autoincrement=False),
    Column("percent", Integer, primary_key=True, autoincrement=False),
    Column("claimed_us", BigInteger, nullable=False),
    Column("sent_us", BigInteger),
    Column("window_kind", _WINDOW, primary_key=True),
    Column("limit_microusd", BigInteger, nullable=False, server_default="0"),
    Column("spent_microusd", BigInteger, nullable=False, server_default="0"),
    Column("again_above_microusd", BigInteger),
)
"""Limit and spending are those at the time of the claim. `again_above_microusd` is set if a higher
limit made the share smaller: the alert is sent again when it is reached under a higher limit."""

late_bookings = Table(
    "late_bookings",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("booked_us", BigInteger, nullable=False),
    Index(None, "booked_us"),
)
"""Requests whose cost was added to budgets separately, not through a lease: once each."""

parked_money = Table(
    "parked_money",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("account", _ACCOUNT, primary_key=True),
    Column("window_kind", _WINDOW, primary_key=True),
    Column("incarnation", String(32), primary_key=True),
    Column("worker", _WORKER, nullable=False),
    Column("window_start_us", BigInteger, nullable=False),
    Column("amount_microusd", BigInteger, nullable=False),
    Column("until_us", BigInteger, nullable=False),
    Column("is_ending", Integer, nullable=False),
    Index(None, "worker", "incarnation", "account", "window_kind"),
)
"""The part of a lease reserved for a parked line. If the lease is written off it goes back, and
whoever ends the line pays for it then; with `is_ending` it counts as spent instead, because the
line's cost may be booked already."""

rate_limits = Table(
    "rate_limits",
    metadata,
    Column("account", _ACCOUNT, primary_key=True),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_minute", BigInteger),
    Column("concurrent_requests", BigInteger),
)

saved_views = Table(
    "saved_views",
    metadata,
    Column("person", String(63), primary_key=True),
    Column("organisation", _NAME, ForeignKey("organisations.name"), primary_key=True),
    Column("room", String(20), primary_key=True),
    Column("name", String(80), primary_key=True),
    Column("filter", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
"""A filter that a person saved under a name, in one organisation."""
