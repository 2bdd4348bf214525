"""Names of organisations as people type them: of one that is nobody's, nothing is nothing found."""

from gateway.cli.options import Refused
from gateway.oversight.deeds import OPERATORS
from gateway.store.custody.orders import is_known
from gateway.store.engine import Database


async def require_organisation(database: Database, organisation: str | None) -> None:
    """Refuse a name that is nobody's: an empty list would say that there was nothing."""
    if organisation in {None, OPERATORS} or await is_known(database, str(organisation)):
        return
    raise Refused(f"there is no organisation {organisation}")
