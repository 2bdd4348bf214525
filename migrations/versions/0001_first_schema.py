"""Organisations, keys, budgets and the projection of the audit log."""

import sqlalchemy as sa
from alembic import op


revision = "0001"
down_revision: str | None = None
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    _create_revisions()
    _create_tree()
    _create_virtual_keys()
    _create_budgets()
    _create_audit_records()
    _create_audit_places()


def downgrade() -> None:
    for table in (
        "audit_sequences",
        "audit_positions",
        "audit_records",
        "budget_leases",
        "budgets",
        "virtual_keys",
        "projects",
        "workspaces",
        "organisations",
        "revisions",
    ):
        op.drop_table(table)


def _name(column: str) -> sa.Column[str]:
    return sa.Column(column, sa.String(63), nullable=False)


def _title() -> sa.Column[str]:
    return sa.Column("title", sa.String(200), nullable=False)


def _text(column: str) -> sa.Column[str]:
    return sa.Column(column, sa.Text, nullable=False)


def _number(column: str) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger, nullable=False)


def _create_revisions() -> None:
    table = op.create_table(
        "revisions",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        _number("revision"),
        sa.CheckConstraint("id = 1", name=op.f("ck_revisions_one_row")),
        sa.PrimaryKeyConstraint("id", name="pk_revisions"),
    )
    op.bulk_insert(table, [{"id": 1, "revision": 1}])


def _create_tree() -> None:
    op.create_table(
        "organisations",
        _name("name"),
        _title(),
        _number("created_us"),
        sa.PrimaryKeyConstraint("name", name="pk_organisations"),
    )
    op.create_table(
        "workspaces",
        _name("organisation"),
        _name("name"),
        _title(),
        _number("created_us"),
        sa.ForeignKeyConstraint(
            ["organisation"], ["organisations.name"], name="fk_workspaces_organisation"
        ),
        sa.PrimaryKeyConstraint("organisation", "name", name="pk_workspaces"),
    )
    op.create_table(
        "projects",
        _name("organisation"),
        _name("workspace"),
        _name("name"),
        _title(),
        _number("created_us"),
        sa.ForeignKeyConstraint(
            ["organisation", "workspace"],
            ["workspaces.organisation", "workspaces.name"],
            name="fk_projects_organisation_workspace",
        ),
        sa.PrimaryKeyConstraint("organisation", "workspace", "name", name="pk_projects"),
    )


def _create_virtual_keys() -> None:
    place = ["organisation", "workspace", "project"]
    op.create_table(
        "virtual_keys",
        sa.Column("id", sa.String(12), nullable=False),
        *(_name(column) for column in place),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("pepper_version", sa.Integer, nullable=False),
        sa.Column("former_digest", sa.LargeBinary(32)),
        sa.Column("former_pepper_version", sa.Integer),
        sa.Column("former_until_us", sa.BigInteger),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("models", sa.JSON(none_as_null=True)),
        _number("created_us"),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("expires_us", sa.BigInteger),
        sa.Column("revoked_us", sa.BigInteger),
        sa.ForeignKeyConstraint(
            place,
            ["projects.organisation", "projects.workspace", "projects.name"],
            name="fk_virtual_keys_organisation_workspace_project",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_virtual_keys"),
    )
    op.create_index("ix_virtual_keys_organisation_workspace_project", "virtual_keys", place)


def _create_budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("account", sa.String(255), nullable=False),
        _number("limit_microusd"),
        sa.Column("window_kind", sa.String(5), nullable=False),
        _number("window_start_us"),
        _number("spent_microusd"),
        _number("leased_microusd"),
        *(
            sa.CheckConstraint(
                f"{column}_microusd >= 0", name=op.f(f"ck_budgets_{column}_not_negative")
            )
            for column in ("limit", "spent", "leased")
        ),
        sa.PrimaryKeyConstraint("account", name="pk_budgets"),
    )
    op.create_table(
        "budget_leases",
        sa.Column("account", sa.String(255), nullable=False),
        sa.Column("worker", sa.String(100), nullable=False),
        sa.Column("incarnation", sa.String(32), nullable=False),
        _number("window_start_us"),
        _number("amount_microusd"),
        _number("spent_microusd"),
        _number("expires_us"),
        sa.ForeignKeyConstraint(
            ["account"],
            ["budgets.account"],
            name="fk_budget_leases_account",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("account", "worker", name="pk_budget_leases"),
    )
    op.create_index("ix_budget_leases_worker", "budget_leases", ["worker"])


def _create_audit_records() -> None:
    op.create_table(
        "audit_records",
        _text("organisation"),
        sa.Column("sequence", sa.BigInteger, autoincrement=False, nullable=False),
        _text("worker"),
        _number("segment"),
        _number("offset_bytes"),
        sa.Column("leaf_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("chain_hash", sa.LargeBinary(32), nullable=False),
        _text("stage"),
        _text("request_id"),
        _number("utc_us"),
        _text("workspace"),
        _text("project"),
        _text("key_id"),
        _text("actor"),
        _text("action"),
        _text("target"),
        _text("provider"),
        _text("jurisdiction"),
        _text("data_class"),
        _text("status"),
        sa.Column("http_status", sa.Integer, nullable=False),
        _text("error"),
        _number("cost_microusd"),
        _number("input_tokens"),
        _number("output_tokens"),
        _number("duration_us"),
        sa.Column("raw", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("organisation", "sequence", name="pk_audit_records"),
        sa.UniqueConstraint(
            "worker",
            "segment",
            "offset_bytes",
            name="uq_audit_records_worker_segment_offset_bytes",
        ),
    )
    op.create_index(
        "ix_audit_records_organisation_utc_us", "audit_records", ["organisation", "utc_us"]
    )
    op.create_index("ix_audit_records_request_id", "audit_records", ["request_id"])


def _create_audit_places() -> None:
    op.create_table(
        "audit_positions",
        _text("worker"),
        _number("segment"),
        _number("offset_bytes"),
        sa.PrimaryKeyConstraint("worker", name="pk_audit_positions"),
    )
    op.create_table(
        "audit_sequences",
        _text("organisation"),
        _number("next_sequence"),
        sa.PrimaryKeyConstraint("organisation", name="pk_audit_sequences"),
    )
