"""What legal holds keep from going: everything that is kept for projects of an organisation.

Whose a file is shows only when it is read, so a hold on one subject keeps all of its organisation.
"""

from sqlalchemy import ColumnElement, Table, exists

from gateway.store.schema.custody import audit_holds


def is_held(kept: Table) -> ColumnElement[bool]:
    """Whether a hold is in force in the organisation of a row of this table."""
    return exists().where(
        audit_holds.c.organisation == kept.c.organisation, audit_holds.c.released_by == ""
    )
