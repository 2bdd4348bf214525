"""The room of policies over HTTP: its pages and the JSON behind them."""

from typing import Any

from admin.policy_room.api import api_routes_of
from admin.policy_room.deciding import deciding_routes
from admin.policy_room.editing import editing_routes
from admin.policy_room.pages import reading_routes
from admin.policy_room.publishing import publishing_routes
from admin.policy_room.room import open_room
from admin.policy_room.simulating import simulating_routes
from admin.services import Services


def policy_routes(services: Services) -> list[Any]:
    """All routes of the room.

    Raises:
        ConfigurationInvalid: the configured document cannot be used.
    """
    room = open_room(services)
    return [
        *reading_routes(room),
        *editing_routes(room),
        *publishing_routes(room),
        *simulating_routes(room),
        *deciding_routes(room),
        *api_routes_of(room),
    ]
