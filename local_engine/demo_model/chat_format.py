"""The demo model's conversation format: special tokens, and the template that others read."""

from tokenizers import Tokenizer

from local_engine.demo_model.conversations import Conversation


BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
ROLE_TOKENS = {"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|>"}
SPECIAL_TOKENS = (BEGIN, END, PAD, *ROLE_TOKENS.values())
CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{%- if message.role in ['system', 'developer'] %}{{- '<|system|>' }}"
    "{%- elif message.role == 'user' %}{{- '<|user|>' }}"
    "{%- elif message.role == 'assistant' %}{{- '<|assistant|>' }}"
    "{%- else %}{{- raise_exception('role ' ~ message.role ~ ' is not supported') }}"
    "{%- endif %}"
    "{{- (message.content or '') | trim }}{{- '<|end|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a token that must exist."""
    found = tokenizer.token_to_id(token)
    assert found is not None, f"the tokenizer does not know {token}"
    return int(found)


def encode_conversation(
    tokenizer: Tokenizer, conversation: Conversation
) -> tuple[list[int], list[bool]]:
    """Token ids, and for each whether the model must learn to write it."""
    ids = [token_id(tokenizer, BEGIN)]
    learned = [False]
    for message in conversation:
        content = tokenizer.encode(message.content, add_special_tokens=False).ids
        ids += [token_id(tokenizer, ROLE_TOKENS[message.role]), *content]
        ids.append(token_id(tokenizer, END))
        is_answer = message.role == "assistant"
        learned += [False, *[is_answer] * (len(content) + 1)]
    return ids, learned
