"""A line whose answer its vendor gave up costs what was counted of it, or else an estimate."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.batching.pipeline import SERVED_AS, _unread
from gateway.dialects.registry import DIALECTS
from gateway.errors import UpstreamFailed
from gateway.parcels import VendorResult
from gateway.types import Candidate, Usage
from tests.gateway.providers.samples import make_target


ASKED = b'{"model":"m","messages":[{"role":"user","content":"Good morning"}]}'


@pytest.mark.parametrize("told", [{"prompt_tokens": 9, "completion_tokens": 4}, None])
def test_what_was_counted_of_a_line_that_was_given_up_is_charged(told: object) -> None:
    request = DIALECTS["openai_chat"].decode_request(ASKED, "req_1")
    plan = SimpleNamespace(candidates=(Candidate(make_target("scripted/a"), 10, 100),))
    passage: Any = SimpleNamespace(request=request, ruling=SimpleNamespace(plan=plan))
    choice = {"index": 0, "message": {"content": "Half"}, "finish_reason": "error"}
    body = msgspec.json.encode({"id": "c", "model": "m", "choices": [choice], "usage": told})
    with pytest.raises(UpstreamFailed) as given_up:
        DIALECTS["openai_chat"].decode_reply(body)

    result = VendorResult(custom_id="1", kind="answered", status=200, body=body)
    usage = _unread(passage, result, given_up.value).usage

    assert usage is not None
    assert usage.service_tier == SERVED_AS
    assert usage.estimated == (told is None)
    if told is not None:
        assert usage == Usage(9, 4, service_tier=SERVED_AS)
