"""The model's tokenizer and chat template, read from its directory."""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tokenizers import Tokenizer

from local_engine.model.errors import ModelRefused
from local_engine.model.json_file import decode_json
from local_engine.model.manifest import ModelFiles
from local_engine.model.spec import MAX_SIZE
from local_engine.sampling_params import Thinking
from local_engine.text.detokenize import IncrementalDetokenizer
from local_engine.text.errors import PromptRefused
from local_engine.text.output_parser import END_THINK, THINK, tool_format_of
from local_engine.text.template import ChatTemplate, TemplateMessage
from local_engine.text.tokenizer_bounds import check_rules, refusing


_MAX_TOKENIZER_BYTES = 64 << 20
_MAX_CONFIG_BYTES = 4 << 20
# If a reasoning tag is not a token of its own, it may be spelt letter by letter.
_MOST_OF_A_TAG = 16
_SAMPLE = "A text, e.g. of 2 words\n"
_SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


class ChatTokenizer:
    """Messages to prompt tokens, and output tokens back to text."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, source: str = "") -> None:
        self.tool_format = tool_format_of(source)
        self.may_reason = THINK in source
        self._tokenizer = tokenizer
        self._template = template
        # Limited by the vocabulary: answers with log-probabilities name a token twenty times.
        self._token_texts: dict[int, str] = {}
        # A second reader without special tokens: what users write stays text.
        self._plain_tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._plain_tokenizer.encode_special_tokens = True
        named = (tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(0x80, 0xC0))
        self._inside = frozenset(token_id for token_id in named if token_id is not None)
        added = tokenizer.get_added_tokens_decoder()
        self._added = {token.content: token_id for token_id, token in added.items()}
        controls = [token for token in added.values() if token.special]
        self._control_texts = tuple(token.content for token in controls)
        # Some are searched for in the normalised text: "\uff1c|end|\uff1e" is one, too.
        self._normalise: Callable[[str], str] | None = None
        if tokenizer.normalizer is not None and any(token.normalized for token in controls):
            self._normalise = tokenizer.normalizer.normalize_str
            normal = {self._normalise(text) for text in self._control_texts}
            self._normal_controls = {*self._control_texts, *normal} - {""}

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id: some vocabularies have gaps."""
        return 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode_chat(
        self,
        messages: Sequence[TemplateMessage],
        tools: Sequence[dict[str, Any]] = (),
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[int]:
        """Prompt tokens of a conversation; control tokens come only from the template.

        Text of a message that spells a control token is read as plain text: it is replaced by a
        random mark while the template runs, and encoded separately.
        """
        self._refuse_other_controls(messages, [*tools, dict(variables)])
        hidden: dict[str, str] = {}
        rendered = self._template.render(
            [self._hide(message, hidden) for message in messages], tools, variables
        )
        token_ids: list[int] = []
        for mark, text in hidden.items():
            before, found, rendered = rendered.partition(mark)
            if not found:
                raise PromptRefused("the chat template changes the order of messages")
            token_ids += self._encode(self._tokenizer, before)
            token_ids += self._encode(self._plain_tokenizer, text)
        if any(mark in rendered for mark in hidden):
            raise PromptRefused("the chat template repeats a message")
        token_ids += self._encode(self._tokenizer, rendered)
        if not token_ids:
            raise PromptRefused("the conversation has no tokens")
        return token_ids

    def encode_text(self, text: str, *, adds_special: bool = True) -> list[int]:
        """A prompt that is just text, with the special tokens that the tokenizer puts around it.

        Control tokens in it are read as such: whoever sends a bare prompt writes all of it.
        """
        return self._encode(self._tokenizer, text, is_whole=adds_special)

    def encode_plain(self, text: str) -> list[int]:
        """Tokens of text without any control tokens."""
        return self._encode(self._plain_tokenizer, text)

    def starts_reasoning(self, prompt_token_ids: Sequence[int]) -> bool:
        """Whether the template has already opened the model's reasoning."""
        return self.may_reason and self._end_of(prompt_token_ids).endswith(THINK)

    def thinking(self, prompt_token_ids: Sequence[int]) -> Thinking | None:
        """The limits of reasoning in an answer to this prompt, if any; raises `PromptRefused`.

        It raises if the model is expected to think, and nobody could say where that ends.
        """
        if not self.may_reason or self._end_of(prompt_token_ids).endswith(END_THINK):
            return None
        opens, ends = self._added.get(THINK), self._added.get(END_THINK)
        if self.starts_reasoning(prompt_token_ids):
            if ends is None:
                raise PromptRefused(f"this model has no token {END_THINK} that a grammar follows")
            return Thinking(ends_with=ends)
        return None if opens is None or ends is None else Thinking(ends_with=ends, opens_with=opens)

    def _end_of(self, prompt_token_ids: Sequence[int]) -> str:
        return self.decode_with_special(list(prompt_token_ids)[-_MOST_OF_A_TAG:]).rstrip()

    def decode_with_special(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def detokenizer(
        self, *, keeps_special: bool = False, after: Sequence[int] = ()
    ) -> IncrementalDetokenizer:
        """For one text as it comes; `after` are the tokens of the text that it continues."""
        decode = self.decode_with_special if keeps_special else self.decode
        return IncrementalDetokenizer(
            decode, self.encode_plain, self._inside.__contains__, after=after
        )

    def offsets(self, token_ids: Sequence[int], *, keeps_special: bool = False) -> list[int]:
        """For each token, how many characters of the text come before its own."""
        detokenizer = self.detokenizer(keeps_special=keeps_special)
        found = []
        for token_id in token_ids:
            detokenizer.push(token_id)
            found.append(detokenizer.offset)
        return found

    def token_text(self, token_id: int) -> str:
        """One token as text, control tokens included; partial characters show as U+FFFD."""
        found = self._token_texts.get(token_id)
        if found is None:
            found = str(self._tokenizer.decode([token_id], skip_special_tokens=False))
            self._token_texts[token_id] = found
        return found

    def _refuse_other_controls(
        self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]]
    ) -> None:
        """Only contents can be hidden; templates write tools and calls as JSON, and names bare."""
        others = [{k: v for k, v in message.items() if k != "content"} for message in messages]
        text = json.dumps([tools, others], ensure_ascii=False)
        if self._spells_control(text):
            raise PromptRefused("a tool, a call or the head of a message spells a control token")

    def _hide(self, message: TemplateMessage, hidden: dict[str, str]) -> dict[str, Any]:
        content = message.get("content")
        if not isinstance(content, str):
            raise PromptRefused("a message has no text")
        if self._spells_control(content):
            return {**message, "content": self._marked(content, hidden)}
        return dict(message)

    def _spells_control(self, text: str) -> bool:
        if any(control in text for control in self._control_texts):
            return True
        if self._normalise is None:
            return False
        text = self._normalise(text)
        return any(control in text for control in self._normal_controls)

    def _marked(self, content: str, hidden: dict[str, str]) -> str:
        mark = f"\ue000{secrets.token_hex(8)}\ue001"
        hidden[mark] = content
        return mark

    def _encode(self, tokenizer: Tokenizer, text: str, *, is_whole: bool = False) -> list[int]:
        # The batch call lets other threads run meanwhile, the single one does not: a long prompt
        # would hold up the event loop although it is read on another thread.
        with refusing(_unread):
            (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=is_whole)
        return list(encoding.ids)


def load_chat_tokenizer(files: ModelFiles) -> ChatTokenizer:
    """Read tokenizer.json, tokenizer_config.json and chat_template.jinja; raises `ModelRefused`."""
    template = "chat_template.jinja"
    return chat_tokenizer(
        files.read("tokenizer.json", _MAX_TOKENIZER_BYTES),
        files.read("tokenizer_config.json", _MAX_CONFIG_BYTES),
        files.read(template, _MAX_CONFIG_BYTES) if template in files else b"",
    )


def check_tokenizer(files: ModelFiles, vocab_size: int) -> None:
    """Raise `ModelRefused` for an invalid tokenizer, or one that does not fit so small a model."""
    if load_chat_tokenizer(files).vocab_size > vocab_size:
        raise ModelRefused("tokenizer.json knows more tokens than vocab_size of config.json")


def chat_tokenizer(tokenizer: bytes, config: bytes, template: bytes) -> ChatTokenizer:
    """From the contents of the three files; an empty `template` means the configuration's."""
    values = decode_json("tokenizer_config.json", config, dict[str, Any])
    source = _text_of("chat_template.jinja", template) if template else _template_in(values)
    text = _text_of("tokenizer.json", tokenizer)
    names = {name: _token_text(values.get(name)) for name in _SPECIAL_NAMES}
    try:
        chat_template = ChatTemplate(source, names)
        chat_template.try_out()
    except ModelRefused as error:
        place = "chat_template.jinja" if template else "tokenizer_config.json"
        raise ModelRefused(f"{place}: {error}") from error
    check_rules(tokenizer)
    unreadable = "tokenizer.json cannot be used to read a text"
    with refusing(lambda error: ModelRefused(f"{unreadable}: {error}")):
        found = ChatTokenizer(_read_tokenizer(text), chat_template, source)
        found.decode(found.encode_text(_SAMPLE))
        found.encode_plain(_SAMPLE)
    return found


def _unread(error: BaseException) -> PromptRefused:
    """The message may quote the text, so only its kind is reported."""
    return PromptRefused(f"the tokenizer cannot read this text: {type(error).__name__}")


def _text_of(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ModelRefused(f"{name} cannot be read: {error}") from error


def _read_tokenizer(text: str) -> Tokenizer:
    with refusing(lambda error: ModelRefused(f"tokenizer.json cannot be read: {error}")):
        tokenizer = Tokenizer.from_str(text)
    if max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0) > MAX_SIZE:
        # All numbers up to it would have to be gone through.
        raise ModelRefused("tokenizer.json has a token of a number that no model knows")
    # Texts were cut and padded like that in training; a prompt is read completely, as it is.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _template_in(config: dict[str, Any]) -> str:
    source = config.get("chat_template")
    if isinstance(source, list):
        entries = [entry for entry in source if isinstance(entry, dict)]
        source = next((e.get("template") for e in entries if e.get("name") == "default"), None)
    if not isinstance(source, str):
        raise ModelRefused("there is neither chat_template.jinja nor one in tokenizer_config.json")
    return source


def _token_text(value: object) -> str:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""
