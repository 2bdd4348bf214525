"""Runs migrations for Alembic in the transaction that `gateway.store.migrate` opened."""

from alembic import context

from gateway.store.batching.files import kept_files
from gateway.store.checkups import provider_checkups
from gateway.store.conversation_indexes import CONVERSATION_INDEXES
from gateway.store.custody.incidents import incidents
from gateway.store.custody.regimes import regime_choices
from gateway.store.custody.reviews import reviews
from gateway.store.evidence.deliveries import sink_deliveries
from gateway.store.identity.provided_sessions import heard_logouts
from gateway.store.identity.teams import team_members
from gateway.store.kept_answers import kept_answers
from gateway.store.pool_drains import pool_drains
from gateway.store.schema.audit_indexes import INDEXES
from gateway.store.schema.batches import batches
from gateway.store.schema.custody import audit_holds
from gateway.store.schema.custody_indexes import ERASURE_INDEXES
from gateway.store.schema.parcels import parcels
from gateway.store.schema.policies import policy_versions
from gateway.store.schema.prices import price_files
from gateway.store.schema.profiles import profile_hours
from gateway.store.schema.rollup import rollup_cursors
from gateway.store.schema.unusual_hours import unusual_hours
from gateway.store.schema.version import schema_floor
from gateway.store.workers import workers


# Every module that declares tables or indexes is imported here, and they all share one schema.
tables = (
    audit_holds,
    batches,
    heard_logouts,
    incidents,
    kept_answers,
    kept_files,
    parcels,
    policy_versions,
    pool_drains,
    price_files,
    profile_hours,
    provider_checkups,
    regime_choices,
    reviews,
    rollup_cursors,
    schema_floor,
    sink_deliveries,
    team_members,
    unusual_hours,
    workers,
)
assert len({id(table.metadata) for table in tables}) == 1
indexes = (*INDEXES, *ERASURE_INDEXES, *CONVERSATION_INDEXES)
assert all(index.table is not None for index in indexes)

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=policy_versions.metadata,
    render_as_batch=True,
    transactional_ddl=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
