"""Teams within the room of keys: their pages, and the JSON behind them."""

from typing import Any

from admin.services import Services
from admin.teams.api import team_api_routes
from admin.teams.pages import team_page_routes


def team_routes(services: Services) -> list[Any]:
    """All of them."""
    return [*team_page_routes(services), *team_api_routes(services)]
