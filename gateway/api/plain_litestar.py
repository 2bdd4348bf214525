"""Litestar without what it finds installed: our routes take no pydantic model, no attrs class.

Litestar adds plug-ins for both whenever they can be imported, and here they can: the vendors' SDKs
bring pydantic. That costs every worker six megabytes (137 with it, 131 without) and start-up time,
for types that none of its routes has.
"""

from litestar import Litestar
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin


class PlainLitestar(Litestar):
    """Litestar with the plug-in for msgspec and those that it is given."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]
