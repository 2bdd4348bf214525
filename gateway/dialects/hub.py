"""Readers by dialect: how a dialect's adapter gets at a request of another one."""

from collections.abc import Callable, Mapping

from gateway.conversation import Conversation
from gateway.dialects.anthropic_messages import reader as anthropic_messages
from gateway.dialects.openai_chat import reader as openai_chat
from gateway.types import ChatRequest, DialectName


READERS: Mapping[DialectName, Callable[[ChatRequest], Conversation]] = {
    "openai_chat": openai_chat.read_conversation,
    "anthropic_messages": anthropic_messages.read_conversation,
}
