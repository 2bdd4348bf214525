"""Our errors for failures on the way to an upstream; they hold no byte of what was sent."""

from gateway.errors import UpstreamUnreachable


class TransportFault(Exception):
    """A fault of the transport, for the operator's log: a cause, never raised by itself."""


def broken(
    fault: object, message: str = "the connection to the upstream broke"
) -> UpstreamUnreachable:
    """Our error for a transport's; its cause holds no header and no byte of a body."""
    failure = UpstreamUnreachable(message)
    failure.__cause__ = TransportFault(str(fault))
    return failure


def unmade(
    fault: object, message: str = "the upstream could not be connected to"
) -> UpstreamUnreachable:
    """The same for a connection that was never made: nothing can have been sent on it."""
    failure = broken(fault, message)
    failure.has_left = False
    return failure
