"""The room of people: its pages, the JSON behind them, and the page behind an invitation."""

from typing import Any

from admin.people.api import people_api_routes
from admin.people.joining import joining_routes
from admin.people.pages import list_routes
from admin.people.person import person_routes
from admin.services import Services


def people_routes(services: Services) -> list[Any]:
    """All of them."""
    rooms = (list_routes, person_routes, people_api_routes, joining_routes)
    return [handler for routes in rooms for handler in routes(services)]
