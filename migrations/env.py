"""Where Alembic runs our migrations: in the transaction that `gateway.store.migrate` opened."""

from alembic import context

from gateway.store.batch_tables import batches
from gateway.store.checkups import provider_checkups
from gateway.store.custody_tables import audit_holds
from gateway.store.deliveries import sink_deliveries
from gateway.store.incidents import incidents
from gateway.store.invitations import invitations
from gateway.store.kept_answers import kept_answers
from gateway.store.kept_files import kept_files
from gateway.store.parcel_tables import parcels
from gateway.store.policy_tables import policy_versions
from gateway.store.pool_drains import pool_drains
from gateway.store.price_tables import price_files
from gateway.store.profile_tables import profile_hours
from gateway.store.regimes import regime_choices
from gateway.store.reviews import reviews
from gateway.store.rollup_tables import rollup_cursors
from gateway.store.setup_links import setup_links
from gateway.store.teams import team_members
from gateway.store.workers import workers


# Every module that declares tables is imported here, and they all share one schema.
tables = (
    audit_holds,
    batches,
    incidents,
    invitations,
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
    setup_links,
    sink_deliveries,
    team_members,
    workers,
)
assert len({id(table.metadata) for table in tables}) == 1

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
