"""The condition under which a legal hold keeps an organisation's stored content from deletion.

Whose a file is shows only when it is read, so a hold on one subject keeps everything of its
organisation.
"""

from typing import Final

from sqlalchemy import ColumnElement, Table, exists

from gateway.clock import HOUR_US
from gateway.store.schema.custody import audit_holds


_APART_US: Final = HOUR_US
"""How far clocks may differ, and how long reading may take between a look and the list."""


def is_held(kept: Table) -> ColumnElement[bool]:
    """Whether a hold is in force in the organisation of a row of this table."""
    return exists().where(
        audit_holds.c.organisation == kept.c.organisation, audit_holds.c.released_by == ""
    )


def was_set_since(set_us: int | None, erased_us: int) -> bool:
    """Whether a hold was set, if any, after something was listed as erased.

    An earlier hold had been released by then, or nothing would have been listed.
    """
    return set_us is not None and set_us > erased_us - _APART_US
