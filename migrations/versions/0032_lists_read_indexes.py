"""Covering indexes for lists: by time with all searchable fields, and likewise for rarer rows.

Rows hold whole records, so reading thousands of them for one page took seconds. An index entry has
room for some 2,700 bytes on PostgreSQL: texts that together are longer are indexed by their
beginnings.
"""

import sqlalchemy as sa
from alembic import op


revision = "0032"
down_revision: str | None = "0031"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TABLE = "audit_records"
_BY_TIME = ("organisation", "utc_us")
_TEXTS = (
    *("status", "jurisdiction", "target", "model_requested", "data_class", "findings"),
    *("project", "key_id", "workspace", "provider", "error", "actor", "action", "about"),
)
_NUMBERS = (
    *("http_status", "cost_microusd", "input_tokens", "output_tokens"),
    *("duration_us", "first_byte_us"),
)
_WHOLE = [*_BY_TIME, "sequence", "stage", *_TEXTS, *_NUMBERS]
_FEW = {
    "found": "stage = 'outcome' AND findings <> ''",
    "not_ok": "stage = 'outcome' AND status <> 'ok'",
}
_TEXTS_BYTES = 2_000
_TEXT_CHARS = 25
_FINDINGS_CHARS = 200


_OTHERS = "stage <> 'intent' AND stage <> 'outcome'"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        _shorten()
        # Lists read pages that everybody may see; by default inserts alone mark them too rarely.
        op.execute(
            "ALTER TABLE audit_records SET (autovacuum_vacuum_insert_scale_factor = 0.01, "
            "autovacuum_vacuum_insert_threshold = 10000)"
        )
    op.drop_index("ix_audit_records_organisation_utc_us_stage", _TABLE)
    op.create_index("ix_audit_records_listed", _TABLE, _WHOLE)
    for name, where in _FEW.items():
        op.drop_index(f"ix_audit_records_{name}", _TABLE)
        _create_few(name, _WHOLE, where)
    _create_few("others", _WHOLE, _OTHERS)


def downgrade() -> None:
    op.drop_index("ix_audit_records_others", _TABLE)
    for name, where in _FEW.items():
        op.drop_index(f"ix_audit_records_{name}", _TABLE)
        _create_few(name, [*_BY_TIME], where)
    op.drop_index("ix_audit_records_listed", _TABLE)
    op.create_index("ix_audit_records_organisation_utc_us_stage", _TABLE, [*_BY_TIME, "stage"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "ALTER TABLE audit_records RESET (autovacuum_vacuum_insert_scale_factor, "
            "autovacuum_vacuum_insert_threshold)"
        )


def _create_few(name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(
        f"ix_audit_records_{name}",
        _TABLE,
        columns,
        sqlite_where=condition,
        postgresql_where=condition,
    )


def _shorten() -> None:
    lengths = " + ".join(f"octet_length({name})" for name in _TEXTS)
    limits = dict.fromkeys(_TEXTS, _TEXT_CHARS) | {"findings": _FINDINGS_CHARS}
    changes = ", ".join(f"{name} = left({name}, {limit})" for name, limit in limits.items())
    op.execute(f"UPDATE {_TABLE} SET {changes} WHERE {lengths} > {_TEXTS_BYTES}")  # noqa: S608
