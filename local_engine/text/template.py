"""Chat templates: the jinja2 text in a model directory, rendered in a sandbox with limits."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jinja2 import Template, TemplateError

from local_engine.model.errors import ModelRefused
from local_engine.text.errors import PromptRefused
from local_engine.text.sandbox import BoundedEnvironment, RaisedByTemplate
from local_engine.text.sizes import TooDear


MAX_TEMPLATE_CHARS = 256 * 1024
MAX_PROMPT_CHARS = 4 * 1024 * 1024
MAX_RENDER_S = 5.0
"""One thread's time for one prompt; a template with thousands of messages takes a tenth."""

_OWN_FAULTS = (
    *(TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError),
    *(RecursionError, MemoryError),
)
# Includes names that templates have without being given them.
_OURS = ("messages", "tools", "add_generation_prompt", "raise_exception", "range", "namespace")
TemplateMessage = Mapping[str, Any]


class ChatTemplate:
    """Messages to the prompt text of one model family.

    The sandbox gives templates neither attributes of Python objects nor ways to change their
    arguments; the limits keep a template from growing without end.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        *,
        max_prompt_chars: int = MAX_PROMPT_CHARS,
        max_render_s: float = MAX_RENDER_S,
    ) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise ModelRefused(f"the chat template is longer than {MAX_TEMPLATE_CHARS} characters")
        self._special_tokens = dict(special_tokens)
        self._max_prompt_chars = max_prompt_chars
        self._max_render_s = max_render_s
        self._environment = BoundedEnvironment()
        self._template = _compile(self._environment, source)

    def try_out(self) -> None:
        """Raise `ModelRefused` for a template that is too slow or too long for a single word."""
        try:
            self.render([{"role": "user", "content": "hello"}])
        except PromptRefused as error:
            # Other refusals may be right: some models want a system message first.
            if isinstance(error.__cause__, TooDear):
                raise ModelRefused(f"the chat template cannot be used: {error}") from error

    def render(
        self,
        messages: Sequence[TemplateMessage],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """The prompt up to where the assistant begins; raises `PromptRefused`.

        `variables` are the caller's, and never replace names of ours.
        """
        ours = {*_OURS, *self._special_tokens}
        if not ours.isdisjoint(variables):
            raise PromptRefused(
                f"no variable of a template may be called {min(ours & set(variables))}"
            )
        parts: list[str] = []
        num_chars = 0
        self._environment.start(self._max_render_s)
        try:
            for part in self._template.generate(
                **variables,
                messages=[dict(message) for message in messages],
                add_generation_prompt=True,
                tools=list(tools) or None,
                **self._special_tokens,
            ):
                num_chars += len(part)
                if num_chars > self._max_prompt_chars:
                    raise TooDear("the rendered prompt is too long")
                parts.append(part)
        except _OWN_FAULTS as error:
            # The message of a template error may quote content, so only its kind is reported,
            # unless the template's author speaks through raise_exception.
            reason = (
                str(error)
                if isinstance(error, RaisedByTemplate | TooDear)
                else type(error).__name__
            )
            raise PromptRefused(f"the chat template refused the messages: {reason}") from error
        return "".join(parts)


def _compile(environment: BoundedEnvironment, source: str) -> Template:
    try:
        template: Template = environment.from_string(source)
    except TemplateError as error:
        raise ModelRefused(f"the chat template cannot be compiled: {error}") from error
    except RecursionError as error:
        raise ModelRefused("the chat template cannot be compiled: it nests too deeply") from error
    return template
