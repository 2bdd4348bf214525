"""The error tree: everything a caller may be told, with its status and stable code.

GatewrightError
├── RequestInvalid              400  the request cannot be understood
│   ├── BodyTooLarge            413
│   ├── EncodingRefused         415  compressed in a way that cannot be opened safely
│   ├── RouteUnknown            404  nothing is at this path
│   ├── MethodRefused           405  not with this method
│   ├── ModelUnknown            404
│   ├── ResponseUnknown         404  no kept response of this project has this id
│   ├── FileUnknown             404  no file of this project has this id
│   ├── BatchUnknown            404  no batch of this project has this id
│   ├── ConversationUnknown     404  no conversation of this project has this id
│   ├── ItemUnknown             404  no item of this conversation has this id
│   ├── ConversationLocked      409  another request is being answered with it
│   ├── PreviousResponseUnknown 400  the response that a request wants to continue does not exist
│   ├── ContextTooLong          400
│   ├── ChangedMeanwhile        409  it has changed since the person who acts saw it; nothing done
│   └── FeatureUnsupported      400  no permitted target can do what is asked
├── Unauthenticated             401  no key, a malformed, unknown, expired or revoked key
├── Forbidden                   403
│   ├── PolicyDenied            403  a rule says no
│   └── ClosedByPolicy          403  no target is left that policy and key permit
├── Exhausted                   429
│   └── BudgetExhausted         429  the reservation does not fit
├── Unavailable                 503
│   ├── NoTargetAvailable       503  permitted targets exist, none can answer now
│   │   └── NoTargetConfigured  503  none can until somebody gives one its credential
│   ├── AuditUnavailable        503  no audit device can write, so nothing is sent
│   │   └── LeaseOver           503  another worker may have taken it over: nothing is written
│   ├── WorkerStopped           503  this worker was told to end, and its time to wait is over
│   └── NotReady                503  the configuration snapshot is missing or stale
├── UpstreamFailed              502
│   ├── UpstreamRefused         (the upstream's own status)
│   │   └── UpstreamUnpaid      503  our account there has no money left
│   ├── UpstreamTimeout         504
│   ├── UpstreamUnreachable     502  refused, reset, name or TLS failure
│   ├── PoolBusy                503  no member of a pool is up or has room for this service tier
│   ├── UpstreamMalformed       502  not the wire format it promised
│   └── StreamBroken            502  a stream that ended without its terminal event
├── SovereigntyViolation        500  the egress refused a destination that the plan had let through
├── ClientGone                  499  the caller has left
└── StartupRefused               -   the process must not start
    └── ConfigurationInvalid     -   file, key and reason

A message is written for the caller and never holds content, secrets, addresses or paths of ours.
What an operator needs beyond that goes into the chained cause and the log event.
"""

from collections.abc import Mapping
from typing import ClassVar


NO_RATE_LIMITS: Mapping[str, str] = {}
NO_EVIDENCE: Mapping[str, str] = {}
DENIED_STATUSES = frozenset({401, 407})
"""Our credential, or that for the proxy, is refused. A 403 may be about what was asked."""


class GatewrightError(Exception):
    """Base of all expected failures; `message` may be shown to the caller."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False
    """Whether the same request may succeed later without being changed."""
    headers: Mapping[str, str] = {}
    """Headers that HTTP requires with this status."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.parameter: str | None = None
        """The path of the field that is wrong, where it is one that the caller sent."""
        self.rate_limits: Mapping[str, str] = NO_RATE_LIMITS
        """The upstream's own headers about its limits, where it refused."""
        self.evidence: Mapping[str, str] = NO_EVIDENCE
        """Headers about the decision, the record and the cost (`gateway.heads`)."""
        self.denial: object = None
        """The decision behind a refusal of policy, for the record (`routing.Denial`)."""

    @property
    def http_status(self) -> int:
        """The status on the wire; differs from `status` only where an upstream's is kept."""
        return self.status


class RequestInvalid(GatewrightError):
    status = 400
    code = "invalid_request"

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class BodyTooLarge(RequestInvalid):
    status = 413
    code = "request_too_large"


class EncodingRefused(RequestInvalid):
    status = 415
    code = "unsupported_encoding"
    headers: Mapping[str, str] = {"accept-encoding": "gzip, deflate"}


class RouteUnknown(RequestInvalid):
    status = 404
    code = "unknown_url"


class MethodRefused(RequestInvalid):
    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, *, allowed: str = "") -> None:
        super().__init__(message)
        self.headers = {"allow": allowed} if allowed else {}


class ModelUnknown(RequestInvalid):
    status = 404
    code = "model_not_found"


class ResponseUnknown(RequestInvalid):
    status = 404
    code = "response_not_found"


class FileUnknown(RequestInvalid):
    status = 404
    code = "file_not_found"


class BatchUnknown(RequestInvalid):
    status = 404
    code = "batch_not_found"


class ConversationUnknown(RequestInvalid):
    status = 404
    code = "conversation_not_found"


class ItemUnknown(RequestInvalid):
    status = 404
    code = "item_not_found"


class ConversationLocked(RequestInvalid):
    """OpenAI's own clients retry it, so that turns follow one another."""

    status = 409
    code = "conversation_locked"
    retryable = True


class PreviousResponseUnknown(RequestInvalid):
    code = "previous_response_not_found"


class ContextTooLong(RequestInvalid):
    code = "context_length_exceeded"


class ChangedMeanwhile(RequestInvalid):
    """Somebody else changed it first; nothing was done."""

    status = 409
    code = "conflict"


class FeatureUnsupported(RequestInvalid):
    code = "unsupported_parameter"


class Unauthenticated(GatewrightError):
    status = 401
    code = "invalid_api_key"


class Forbidden(GatewrightError):
    status = 403
    code = "permission_denied"


class PolicyDenied(Forbidden):
    code = "policy_denied"


class ClosedByPolicy(Forbidden):
    code = "no_permitted_target"


class Exhausted(GatewrightError):
    status = 429
    code = "rate_limited"
    retryable = True
    standing: object = None
    """The state of a key's own limits (`ports.Standing`), where one of them is reached."""


class BudgetExhausted(Exhausted):
    code = "insufficient_quota"
    retryable = False
    is_held: bool = False
    """Whether the money is only reserved by other requests, and not spent."""


class Unavailable(GatewrightError):
    status = 503
    code = "unavailable"
    retryable = True


class NoTargetAvailable(Unavailable):
    code = "no_target_available"


class NoTargetConfigured(NoTargetAvailable):
    """What is missing does not come back by itself, so a retry cannot help."""

    code = "no_target_configured"
    retryable = False


class AuditUnavailable(Unavailable):
    code = "audit_unavailable"


class LeaseOver(AuditUnavailable):
    """Another worker may have taken over what was to be written or sent."""

    code = "lease_over"


class WorkerStopped(Unavailable):
    """The worker was told to end, and its time to wait for requests is over."""

    code = "worker_stopped"


class NotReady(Unavailable):
    code = "not_ready"


class ToldToOperators(Exception):
    """Its text is ours and holds no content: the log may repeat it, callers never see it."""


def operators_reason(error: BaseException) -> str:
    """What operators are told of an error beyond its class; empty where its content is unknown.

    Our own words of what is unavailable, with those of the driver whose database is away, or those
    of the machine: neither holds content, secrets or what a request names.
    """
    if isinstance(error, Unavailable):
        said = driver_words(error)
        return f"{error.message}: {said}" if said else error.message
    if isinstance(error, ToldToOperators):
        return str(error)
    return (error.strerror or "") if isinstance(error, OSError) else ""


def driver_words(error: BaseException) -> str:
    """What a driver says of a database that is away, or refuses; callers are not told that."""
    cause = error.__cause__
    if not isinstance(error, NotReady) or cause is None:
        return ""
    said = str(getattr(cause, "orig", cause)).partition("\n")[0]
    # SQLAlchemy puts the class of asyncpg's error before what it says.
    return said.rpartition("'>: ")[2].strip()


class UpstreamFailed(GatewrightError):
    """An attempt failed."""

    status = 502
    code = "upstream_failed"
    retryable = True
    counted: object = None
    """The usage that it reports all the same (`types.Usage`)."""


class UpstreamRefused(UpstreamFailed):
    """The upstream answered with an error status, which is kept.

    What concerns our own credential (401, 403, 407) becomes 502: the caller's own key is good.
    """

    code = "upstream_refused"

    def __init__(
        self,
        message: str,
        *,
        upstream_status: int,
        upstream_code: str = "",
        upstream_detail: str = "",
        upstream_parameter: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.upstream_parameter = upstream_parameter
        """The field that it says is wrong; `parameter` tells the caller, if the caller sent it."""
        self.upstream_status = upstream_status
        self.upstream_code = upstream_code
        self.upstream_detail = upstream_detail

    @property
    def http_status(self) -> int:
        return 502 if self.upstream_status in (401, 403, 407) else self.upstream_status

    @property
    def is_callers_fault(self) -> bool:
        """Whether another target would refuse the same request for the same reason."""
        return self.upstream_status in (400, 413, 422)


class UpstreamUnpaid(UpstreamRefused):
    """Our account there has no money left, whatever the status: an operator has to fix it.

    The caller's own request and budget are good, so neither its status nor its words are kept.
    """

    status = 503
    code = "upstream_unpaid"
    retryable = False

    @property
    def http_status(self) -> int:
        return self.status

    @property
    def is_callers_fault(self) -> bool:
        return False


class UpstreamTimeout(UpstreamFailed):
    status = 504
    code = "upstream_timeout"
    is_connected: bool = True
    """False where no connection was made in time: a server that is only busy still accepts them."""


class UpstreamUnreachable(UpstreamFailed):
    code = "upstream_unreachable"
    has_left: bool = True
    """Whether some of the request may have arrived; False where there was no connection to it."""


class PoolBusy(UpstreamFailed):
    """Says nothing about the health of the pool as a whole: a higher tier may still get in."""

    status = 503
    code = "pool_busy"


class UpstreamMalformed(UpstreamFailed):
    code = "upstream_malformed"


class StreamBroken(UpstreamFailed):
    code = "stream_broken"
    refusal: GatewrightError | None = None
    """The error that the upstream sent in the stream, as if it had come outside of one."""


class SovereigntyViolation(GatewrightError):
    code = "sovereignty_violation"


class ClientGone(GatewrightError):
    status = 499
    code = "client_gone"


class StartupRefused(GatewrightError):
    code = "startup_refused"


class ConfigurationInvalid(StartupRefused):
    """A setting is wrong; the message names file, key and reason."""

    code = "configuration_invalid"

    def __init__(self, source: str, key: str, reason: str) -> None:
        super().__init__(f"{source}: {key}: {reason}" if key else f"{source}: {reason}")
        self.source, self.key, self.reason = source, key, reason
