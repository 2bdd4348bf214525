"""The room of keys and teams: its pages, and the JSON behind them."""

from typing import Any

from admin.keys.api import key_api_routes
from admin.keys.pages import key_page_routes
from admin.keys.scope_api import scope_api_routes
from admin.keys.scope_pages import scope_page_routes
from admin.services import Services


def key_routes(services: Services) -> list[Any]:
    """All of them."""
    return [
        *key_page_routes(services),
        *scope_page_routes(services),
        *key_api_routes(services),
        *scope_api_routes(services),
    ]
