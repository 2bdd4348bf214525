"""Headers of answers and refusals, and what is sent while no target has answered yet."""

from collections.abc import Callable, Mapping

from gateway.conclusion import Concluded
from gateway.dispatch.attempts import AttemptLog
from gateway.errors import GatewrightError
from gateway.money.catalogue import saved_by_cache
from gateway.pacing.pings import Direct, Write
from gateway.passage import Passage
from gateway.ports import StreamEncoder
from gateway.routing.planning import Denial, decision_digest
from gateway.types import Candidate, Principal, Receipt, Target, Usage


Begin = Callable[[Mapping[str, str]], Write]
"""Sends the head of a stream, with these headers, and returns the function that writes the rest."""


def begin_early(passage: Passage, begin: Begin) -> Write:
    return begin(answer_headers(passage, None))


def ping_early(passage: Passage) -> bytes:
    return unsourced(passage).ping()


async def fail_late(passage: Passage, error: GatewrightError, write: Write, _: Direct) -> bool:
    """Send an error inside a stream, too late for a status; whether it may end as if complete."""
    encoder = unsourced(passage)
    await write(encoder.fail(error, passage.request.request_id))
    return not encoder.is_cut_on_failure


def refusal_headers(
    error: GatewrightError, record: Receipt | None, principal: Principal | None
) -> dict[str, str]:
    """The headers of a refusal, for an authenticated caller."""
    if principal is None or record is None:
        return {}
    headers = {"x-gatewright-receipt": str(record)}
    if isinstance(error.denial, Denial):
        headers["x-gatewright-decision"] = decision_digest(error.denial.decision)
    return headers


def unsourced(passage: Passage) -> StreamEncoder:
    """An encoder for what a caller is sent before any target has answered."""
    dialect = passage.arrival.dialect
    return dialect.stream_encoder(passage.request, dialect.name)


def answer_headers(
    passage: Passage,
    target: Target | None,
    dropped: tuple[str, ...] = (),
    concluded: Concluded | None = None,
) -> dict[str, str]:
    """The headers of every answer and failure; a stream's have its intent's receipt."""
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
    if tells_dropped(passage, dropped):
        headers["x-gatewright-dropped"] = ", ".join(dropped)
    return headers


def cap_headers(passage: Passage, candidate: Candidate) -> dict[str, str]:
    """The cap on the answer's length, if lower than was asked for: it may end by `length`."""
    asked, cap = passage.request.max_output_tokens, candidate.output_tokens_cap
    return {"x-gatewright-output-tokens-cap": str(cap)} if asked is not None and asked > cap else {}


def late_headers(
    passage: Passage, candidate: Candidate, dropped: tuple[str, ...]
) -> dict[str, str]:
    """The headers that could not be sent, because a ping sent the head before the answer."""
    headers = {"x-gatewright-target": candidate.target.name, **cap_headers(passage, candidate)}
    if tells_dropped(passage, dropped):
        headers["x-gatewright-dropped"] = ",".join(dropped)
    return headers


def ending_headers(
    attempts: AttemptLog, target: Target, usage: Usage, unmet: str
) -> dict[str, str]:
    """What is known of an answer only once it is complete, if there is anything to say.

    `unmet` is where it differs from the format that was asked for. Of an answer that is given again
    nothing was saved by its upstream.
    """
    headers = {}
    if usage.estimated:
        headers["x-gatewright-usage"] = "estimated"
    if unmet:
        headers["x-gatewright-schema"] = f"unmet at {unmet}"
    if not attempts.repeats and (saved := saved_by_cache(target.price, usage)):
        headers["x-gatewright-cache-saved-microusd"] = str(saved)
    return headers


def tells_dropped(passage: Passage, dropped: tuple[str, ...]) -> bool:
    return bool(dropped) and passage.principal.translation != "lenient"
