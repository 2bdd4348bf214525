"""Chat templates: the jinja2 text in a model directory, rendered in a sandbox with limits."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from local_engine.model.errors import ModelRefused
from local_engine.text.errors import PromptRefused


MAX_TEMPLATE_CHARS = 256 * 1024
MAX_PROMPT_CHARS = 4 * 1024 * 1024

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
    ) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise ModelRefused(f"the chat template is longer than {MAX_TEMPLATE_CHARS} characters")
        self._special_tokens = dict(special_tokens)
        self._max_prompt_chars = max_prompt_chars
        self._template = _compile(source)

    def render(
        self, messages: Sequence[TemplateMessage], tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """The prompt up to where the assistant begins; raises `PromptRefused`."""
        parts: list[str] = []
        num_chars = 0
        try:
            for part in self._template.generate(
                messages=[dict(message) for message in messages],
                add_generation_prompt=True,
                tools=list(tools) or None,
                **self._special_tokens,
            ):
                num_chars += len(part)
                if num_chars > self._max_prompt_chars:
                    raise PromptRefused("the rendered prompt is too long")
                parts.append(part)
        except (TemplateError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            if isinstance(error, PromptRefused):
                raise
            # The message of a template error may quote content, so only its kind is told,
            # except where the template's author speaks through raise_exception.
            reason = str(error) if isinstance(error, _RaisedByTemplate) else type(error).__name__
            raise PromptRefused(f"the chat template refused the messages: {reason}") from error
        return "".join(parts)


class _RaisedByTemplate(TemplateError):
    """The template called `raise_exception`."""


def _raise_exception(message: str) -> NoReturn:
    raise _RaisedByTemplate(message)


def _to_json(value: object, indent: int | None = None) -> str:
    """Like `tojson`, without the escapes that jinja2 makes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _compile(source: str) -> Template:
    environment: Any = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], autoescape=False
    )
    environment.globals = {
        "raise_exception": _raise_exception,
        "range": environment.globals["range"],
        "namespace": environment.globals["namespace"],
    }
    environment.filters["tojson"] = _to_json
    try:
        template: Template = environment.from_string(source)
    except TemplateError as error:
        raise ModelRefused(f"the chat template cannot be compiled: {error}") from error
    except RecursionError as error:
        raise ModelRefused("the chat template cannot be compiled: it nests too deeply") from error
    return template
