"""A line whose answer its vendor gave up costs what was counted of it, or else an estimate."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.batching.pipeline import SERVED_AS, _unread
from gateway.batching.remnants import _counted
from gateway.dialects.registry import DIALECTS
from gateway.errors import UpstreamFailed
from gateway.money.catalogue import cost
from gateway.parcels import VendorResult
from gateway.recording.evidence import Loss
from gateway.types import Candidate, Usage
from tests.gateway.providers.samples import make_target


ASKED = b'{"model":"m","messages":[{"role":"user","content":"Good morning"}]}'


def given_up(told: object) -> VendorResult:
    choice = {"index": 0, "message": {"content": "Half"}, "finish_reason": "error"}
    body = msgspec.json.encode({"id": "c", "model": "m", "choices": [choice], "usage": told})
    return VendorResult(custom_id="1", kind="answered", status=200, body=body)


def test_of_one_whose_ticket_is_all_that_is_left_as_much() -> None:
    """All that was set aside was charged."""
    target = make_target("scripted/a")
    plan = SimpleNamespace(candidates=(Candidate(target, 10, 100),), worst_cost_microusd=900)
    ticket: Any = SimpleNamespace(dialect="openai_chat", plan=plan)
    told = {"prompt_tokens": 9, "completion_tokens": 4}

    loss = _counted(Loss("hash", "scripted/a", "scripted", ""), ticket, given_up(told))

    counted = Usage(9, 4, service_tier=SERVED_AS)
    assert (loss.usage, loss.cost_microusd) == (counted, cost(target.price, counted))


@pytest.mark.parametrize("told", [{"prompt_tokens": 9, "completion_tokens": 4}, None])
def test_what_was_counted_of_a_line_that_was_given_up_is_charged(told: object) -> None:
    request = DIALECTS["openai_chat"].decode_request(ASKED, "req_1")
    plan = SimpleNamespace(candidates=(Candidate(make_target("scripted/a"), 10, 100),))
    passage: Any = SimpleNamespace(request=request, ruling=SimpleNamespace(plan=plan))
    result = given_up(told)
    with pytest.raises(UpstreamFailed) as error:
        DIALECTS["openai_chat"].decode_reply(result.body)

    usage = _unread(passage, result, error.value).usage

    assert usage is not None
    assert usage.service_tier == SERVED_AS
    assert usage.estimated == (told is None)
    if told is not None:
        assert usage == Usage(9, 4, service_tier=SERVED_AS)
