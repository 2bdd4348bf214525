"""The room of budgets and cost: its pages, and the JSON behind them."""

from typing import Any

from admin.costs.api import limit_api_routes
from admin.costs.limit_pages import limit_page_routes
from admin.costs.pages import cost_page_routes
from admin.costs.raise_api import raise_api_routes
from admin.costs.raise_pages import raise_page_routes
from admin.costs.report import report_routes
from admin.services import Services


def cost_routes(services: Services) -> list[Any]:
    """All of them."""
    return [
        *cost_page_routes(services),
        *limit_page_routes(services),
        *raise_page_routes(services),
        *report_routes(services),
        *limit_api_routes(services),
        *raise_api_routes(services),
    ]
