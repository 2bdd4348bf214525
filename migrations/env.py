"""Where Alembic runs our migrations: in the transaction that `gateway.store.migrate` opened."""

from alembic import context

from gateway.store.tables import metadata


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
