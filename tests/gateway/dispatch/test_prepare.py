"""Before money is reserved a plan loses who cannot be asked; who is asked for less comes last."""

from typing import Any

import msgspec
import pytest

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported
from gateway.ports import UpstreamBody
from gateway.types import ChatRequest, Plan, Target
from tests.gateway.dispatch.test_dispatcher import Stage, request


pytestmark = pytest.mark.anyio


class Converting(Stage):
    """Of its providers only c speaks the caller's dialect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **bodies: UpstreamBody | str) -> None:
        """What a request is at each of them; a text is what it has no word for."""
        super().__init__()
        self.bodies = bodies
        self.encoded: list[str] = []
        for name in "ab":
            self.providers[name].dialect = "anthropic_messages"
        dialect = type(DIALECTS["anthropic_messages"])
        monkeypatch.setattr(dialect, "encode_request", lambda _, *asked: self.encode(*asked))

    def encode(self, _: ChatRequest, target: Target, __: int) -> UpstreamBody:
        self.encoded.append(target.provider)
        body = self.bodies[target.provider]
        if isinstance(body, str):
            raise FeatureUnsupported(body)
        return body

    def prepared(self, names: str, asked: ChatRequest | None = None, **more: Any) -> str:
        plan = self.prepare(names, asked, **more)
        return "".join(each.target.provider for each in plan.candidates)

    def prepare(self, names: str, asked: ChatRequest | None = None, **more: Any) -> Plan:
        plan = msgspec.structs.replace(self.plan(names), translation="warn")
        return self.dispatcher.prepare(asked or request(), plan, more.get("translation", "warn"))


WHOLE = UpstreamBody(b'{"whole":1}', ("top_k",))
LESS = UpstreamBody(b'{"less":1}', ("tools.web_search",), is_less=True)


async def test_who_speaks_the_callers_dialect_is_asked_as_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Converting(monkeypatch)
    plan = msgspec.structs.replace(stage.plan("ca"), translation="warn")
    assert stage.dispatcher.prepare(request(), plan, "warn") is plan
    assert stage.encoded == []
    assert stage.dispatcher.prepare(request(), plan, "strict").translation == "strict"


async def test_what_had_to_be_converted_is_kept_for_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Converting(monkeypatch, a=WHOLE)
    plan = stage.prepare("ac")
    first, second = plan.candidates
    assert (first.body, first.dropped) == (WHOLE.body, WHOLE.dropped)
    assert (second.target.provider, second.body) == ("c", b"")

    answered = await stage.dispatcher.complete(request(), plan, stage.log)
    assert answered.dropped == WHOLE.dropped
    assert stage.providers["a"].calls[0].body == WHOLE.body
    assert stage.encoded == ["a"]


@pytest.mark.parametrize(
    ("bodies", "names", "left"),
    [
        ({"a": "nothing"}, "acb", "cb"),
        ({"a": "nothing", "b": WHOLE}, "abc", "bc"),
        ({"a": LESS}, "ac", "ca"),
        ({"a": LESS, "b": WHOLE}, "abc", "bca"),
        ({"a": LESS, "b": LESS}, "abc", "cab"),
        ({"a": LESS, "b": LESS}, "ab", "ab"),
        ({"a": "nothing", "b": LESS}, "ab", "b"),
    ],
)
async def test_who_cannot_be_asked_is_left_out_and_who_is_asked_for_less_comes_last(
    bodies: dict[str, Any], names: str, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Converting(monkeypatch, **bodies).prepared(names) == left


async def test_where_nobody_can_be_asked_the_caller_hears_what_the_first_one_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(FeatureUnsupported, match="one thing"):
        Converting(monkeypatch, a="one thing", b="another").prepared("ab")


async def test_a_key_that_leaves_nothing_out_asks_nobody_who_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Converting(monkeypatch, a=WHOLE, b=UpstreamBody(b"{}"))
    assert stage.prepared("abc", translation="strict") == "bc"
    with pytest.raises(FeatureUnsupported, match="no word for: top_k") as refused:
        stage.prepared("a", translation="strict")
    assert refused.value.parameter == "top_k"
    assert stage.prepared("abc") == "abc"


async def test_a_target_of_the_callers_own_dialect_may_lack_something_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Converting(monkeypatch, a=WHOLE)
    chat = type(DIALECTS["openai_chat"])

    def lacking(*_: Any) -> UpstreamBody:
        raise FeatureUnsupported("no schema")

    monkeypatch.setattr(chat, "encode_request", lacking)
    assert stage.prepared("ca") == "ca"
    schema = msgspec.structs.replace(request(), wants_json_schema=True)
    assert stage.prepared("ca", schema) == "a"
    tiered = msgspec.structs.replace(request(), tree={**request().tree, "service_tier": "flex"})
    assert stage.prepared("ca", tiered) == "a"
    reduced = msgspec.structs.replace(request(), dropped=("some-beta",))
    assert stage.prepared("ca", reduced) == "a"
