"""The compliance room: deadlines, reveals, holds, retention, erasure, incidents, packs."""

from typing import Any

from admin.compliance.api import api_routes
from admin.compliance.end_users import end_user_routes
from admin.compliance.erasures import erasure_routes
from admin.compliance.incident_scope import scope_routes
from admin.compliance.incidents import incident_api_routes, incident_routes
from admin.compliance.keeping import keeping_routes
from admin.compliance.obligations import obligation_api_routes, obligation_routes
from admin.compliance.office import Office
from admin.compliance.packs import pack_routes
from admin.compliance.reveals import reveal_routes
from admin.compliance.reviews import review_api_routes, review_routes
from admin.services import Services


def compliance_routes(services: Services) -> list[Any]:
    """All routes of the room; they share one desk that makes packs."""
    office = Office(services)
    rooms = (
        *(keeping_routes, reveal_routes, erasure_routes, pack_routes, api_routes),
        *(review_routes, review_api_routes, incident_routes, incident_api_routes),
        *(obligation_routes, obligation_api_routes, scope_routes, end_user_routes),
    )
    return [handler for routes in rooms for handler in routes(services, office)]
