"""An account may have a budget in each kind of window: by day, by month and in total at once."""

import sqlalchemy as sa
from alembic import op


revision = "0014"
down_revision: str | None = "0013"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_KIND = sa.String(5)
_FOREIGN = "fk_budget_leases_account"
_FOREIGN_BOTH = "fk_budget_leases_account_window_kind"


def upgrade() -> None:
    for each in ("budget_leases", "budget_alerts"):
        op.add_column(each, sa.Column("window_kind", _KIND))
        op.execute(
            f"UPDATE {each} SET window_kind = coalesce("  # noqa: S608 - our own names
            f"(SELECT b.window_kind FROM budgets b WHERE b.account = {each}.account), 'total')"
        )
    with op.batch_alter_table("budget_leases") as table:
        table.drop_constraint(_FOREIGN, type_="foreignkey")
        table.drop_constraint("pk_budget_leases", type_="primary")
        table.alter_column("window_kind", existing_type=_KIND, nullable=False)
        table.create_primary_key("pk_budget_leases", ["account", "worker", "window_kind"])
    with op.batch_alter_table("budgets") as table:
        table.drop_constraint("pk_budgets", type_="primary")
        table.create_primary_key("pk_budgets", ["account", "window_kind"])
    with op.batch_alter_table("budget_leases") as table:
        both = ["account", "window_kind"]
        table.create_foreign_key(_FOREIGN_BOTH, "budgets", both, both, ondelete="CASCADE")
    with op.batch_alter_table("budget_alerts") as table:
        table.drop_constraint("pk_budget_alerts", type_="primary")
        table.alter_column("window_kind", existing_type=_KIND, nullable=False)
        table.create_primary_key(
            "pk_budget_alerts", ["account", "window_start_us", "percent", "window_kind"]
        )


def downgrade() -> None:
    """Of several budgets of one account the longest stays: in total, or else by month."""
    for each in ("budget_alerts", "budget_leases", "budgets"):
        _keep_one(each)
    with op.batch_alter_table("budget_alerts") as table:
        table.drop_constraint("pk_budget_alerts", type_="primary")
        table.drop_column("window_kind")
        table.create_primary_key("pk_budget_alerts", ["account", "window_start_us", "percent"])
    with op.batch_alter_table("budget_leases") as table:
        table.drop_constraint(_FOREIGN_BOTH, type_="foreignkey")
        table.drop_constraint("pk_budget_leases", type_="primary")
        table.drop_column("window_kind")
        table.create_primary_key("pk_budget_leases", ["account", "worker"])
    with op.batch_alter_table("budgets") as table:
        table.drop_constraint("pk_budgets", type_="primary")
        table.create_primary_key("pk_budgets", ["account"])
    with op.batch_alter_table("budget_leases") as table:
        table.create_foreign_key(_FOREIGN, "budgets", ["account"], ["account"], ondelete="CASCADE")


def _keep_one(table: str) -> None:
    """Delete the rows of an account's shorter windows; SQLite's foreign keys are off meanwhile."""
    for shorter, longer in (("day", "total"), ("month", "total"), ("day", "month")):
        op.execute(
            f"DELETE FROM {table} WHERE window_kind = '{shorter}' AND EXISTS (SELECT 1"  # noqa: S608 - our own names
            f" FROM budgets b WHERE b.account = {table}.account AND b.window_kind = '{longer}')"
        )
