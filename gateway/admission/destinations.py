"""Addresses in a request: no caller can make anybody fetch from, or call, a place of its choice.

An image given by address would be fetched by the upstream, from inside its network or ours; a
remote tool server would be sent whatever the model thinks it wants to know. Neither is ever
inspected, so both are refused unless an administrator named the host.
"""

import re

from gateway.configuration.settings import RequestSettings
from gateway.errors import FeatureUnsupported
from gateway.types import ChatRequest


_URL = re.compile(r"https://(?P<host>[a-z0-9.-]{1,253})(?::443)?(?:[/?][\x21-\x5b\x5d-\x7e]*)?")
_TOOL_SERVERS = ("mcp_servers", "tools")
_SERVER_URL = ".server_url"
"""How the place of a tool server ends that an item of the input brings."""


def check_destinations(request: ChatRequest, settings: RequestSettings) -> None:
    """Refuse a request that names a place no administrator has permitted.

    Raises:
        FeatureUnsupported: with the path of the first one, never with the address.
    """
    for place, url in request.destinations:
        is_tool_server = place.startswith(_TOOL_SERVERS) or place.endswith(_SERVER_URL)
        permitted = settings.tool_server_hosts if is_tool_server else settings.media_hosts
        found = _URL.fullmatch(url)
        if found is None or found["host"] not in permitted:
            advice = "Requests may not name tool servers" if is_tool_server else "Send it inline"
            raise FeatureUnsupported(
                f"{place}: A request cannot name a place to fetch from or to call. {advice}.",
                parameter=place,
            )
