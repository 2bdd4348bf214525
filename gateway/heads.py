"""What every answer says about itself, and what is said while there is no answer yet."""

from collections.abc import Callable, Mapping

from gateway.conclusion import Concluded
from gateway.errors import GatewrightError
from gateway.passage import Passage
from gateway.pings import Write
from gateway.ports import StreamEncoder
from gateway.relay import Direct
from gateway.routing import Denial, decision_digest
from gateway.types import Principal, Receipt, Target


Begin = Callable[[Mapping[str, str]], Write]
"""Sends the head of a stream, with what is known of it, and says where to write the rest."""


def begin_early(passage: Passage, begin: Begin) -> Write:
    return begin(answer_headers(passage, None))


def ping_early(passage: Passage) -> bytes:
    return unsourced(passage).ping()


async def fail_late(passage: Passage, error: GatewrightError, write: Write, _: Direct) -> bool:
    """Tell inside a stream what came too late for a status; whether it may end as if whole."""
    encoder = unsourced(passage)
    await write(encoder.fail(error, passage.request.request_id))
    return not encoder.is_cut_on_failure


def refusal_headers(
    error: GatewrightError, record: Receipt | None, principal: Principal | None
) -> dict[str, str]:
    """What is said of a request that was not let through, to a caller who is somebody."""
    if principal is None or record is None:
        return {}
    headers = {"x-gatewright-receipt": str(record)}
    if isinstance(error.denial, Denial):
        headers["x-gatewright-decision"] = decision_digest(error.denial.decision)
    return headers


def unsourced(passage: Passage) -> StreamEncoder:
    """An encoder for what is said to a caller while no target has said anything."""
    dialect = passage.arrival.dialect
    return dialect.stream_encoder(passage.request, dialect.name)


def answer_headers(
    passage: Passage,
    target: Target | None,
    dropped: tuple[str, ...] = (),
    concluded: Concluded | None = None,
) -> dict[str, str]:
    """What every answer and failure says about itself; a stream tells its intent's receipt."""
    receipt: Receipt = concluded.receipt if concluded else passage.intent
    headers = {
        "x-gatewright-decision": passage.ruling.plan.decision_digest,
        "x-gatewright-receipt": str(receipt),
    }
    if target is not None:
        headers["x-gatewright-target"] = target.name
    if concluded:
        headers["x-gatewright-cost-microusd"] = str(concluded.cost_microusd)
    if passage.permit.standing is not None:
        arrival = passage.arrival
        headers |= arrival.dialect.encode_standing(passage.permit.standing, arrival.arrived_us)
    if dropped and passage.principal.translation != "lenient":
        headers["x-gatewright-dropped"] = ", ".join(dropped)
    return headers
