"""Looks up dialects by name: the only place that chooses one."""

from collections.abc import Mapping

from gateway.dialects.anthropic_messages.dialect import AnthropicMessages
from gateway.dialects.openai_chat.dialect import OpenAIChat
from gateway.dialects.openai_completions.dialect import OpenAICompletions
from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.dialects.openai_responses.dialect import OpenAIResponses
from gateway.ports import Dialect
from gateway.types import DialectName


DIALECTS: Mapping[DialectName, Dialect] = {
    "openai_chat": OpenAIChat(),
    "anthropic_messages": AnthropicMessages(),
    "openai_responses": OpenAIResponses(),
    "openai_embeddings": OpenAIEmbeddings(),
    "openai_completions": OpenAICompletions(),
}
