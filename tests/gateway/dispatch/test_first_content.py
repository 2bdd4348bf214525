"""How fast a target is says the first content of its streams: many send their head at once."""

from typing import Any

import msgspec
import pytest

from gateway.clock import StoppedClock
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import AttemptLog
from gateway.dispatch.dispatcher import Dispatcher
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from tests.gateway.dispatch.test_dispatcher import DONE, STOP, WORD, request
from tests.gateway.dispatch.test_walking import World
from tests.gateway.providers.samples import HOME


pytestmark = pytest.mark.anyio


class Thinking(ScriptedUpstreamReply):
    """Its head comes at once, and its first content when it has thought for two seconds."""

    clock: StoppedClock

    async def chunks(self) -> Any:
        self.clock.advance(2.0)
        async for piece in super().chunks():
            yield piece


class Thinker(ScriptedProvider):
    """Answers with what thinks."""

    clock: StoppedClock

    async def open(self, call: Any) -> ScriptedUpstreamReply:
        reply: Any = await super().open(call)
        reply.__class__ = Thinking
        reply.clock = self.clock
        assert isinstance(reply, Thinking)
        return reply


async def test_a_stream_is_as_slow_as_its_first_content_not_as_its_head() -> None:
    world = World()
    thinker = world.providers["a"] = Thinker("a", HOME)
    thinker.clock = world.clock
    thinker.add(ScriptedReply(pieces=(WORD, STOP, DONE), is_event_stream=True))
    dispatcher = Dispatcher(world.providers, DIALECTS, world.health, world.clock, world.budget)
    streamed = DIALECTS["openai_chat"].decode_request(
        msgspec.json.encode({**request().tree, "stream": True}), "req_1"
    )
    log = AttemptLog()
    live = await dispatcher.open_stream(streamed, world.plan("a"), log)
    while await live.next_batch():
        pass
    await live.close()

    assert log.as_tuple()[0].first_byte_us == 2_000_000
    assert world.health.first_token_ms() == {"scripted/a": 2048}
