"""`POST /v1/chat/completions`: handles one request from its body to its last byte."""

import uuid
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

from local_engine.core.limits import QueueFull
from local_engine.core.sequence import PromptTooLong
from local_engine.sampling_params import InvalidParameter, SamplingParams
from local_engine.serve.api.chat_request import ChatRequest, read_chat_request
from local_engine.serve.api.chat_response import DONE, ChatResponse, Choice, as_event
from local_engine.serve.api.choices import Choices, written
from local_engine.serve.api.errors import InvalidRequest, queue_full, unknown_model
from local_engine.serve.api.http import Send, send_body, send_part, start_event_stream
from local_engine.serve.clock import unix_time_s
from local_engine.serve.engine import Engine
from local_engine.serve.generation import Caller, Generation
from local_engine.serve.link import StepFailed
from local_engine.text.errors import PromptRefused
from local_engine.text.output_parser import OutputParser, ToolFormat


async def answer_chat(
    body: bytes, send: Send, engine: Engine, served_name: str, caller: Caller
) -> None:
    """Answer in one piece or as events; raises `ApiError` while nothing has been sent."""
    request = read_chat_request(body, engine.defaults, engine.tokenizer)
    if request.model != served_name:
        raise unknown_model(served_name)
    generations = await _prepare(engine, request, caller)
    response = ChatResponse(
        [
            Choice(
                index,
                generation,
                _parser(engine, request, generation),
                has_one_call=request.has_one_call,
            )
            for index, generation in enumerate(generations)
        ],
        engine.tokenizer,
        head={
            "created": unix_time_s(),
            "model": served_name,
            "system_fingerprint": engine.digest,
        },
        include_usage=request.is_stream and request.include_usage,
        usage_so_far=request.usage_so_far,
        wants_token_ids=request.wants_token_ids,
        names_tokens_by_id=request.names_tokens_by_id,
    )
    async with AsyncExitStack() as stack:
        try:
            choices = Choices(
                [
                    await stack.enter_async_context(engine.generate(generation))
                    for generation in generations
                ],
                grammar_field=request.grammar_field,
            )
        except QueueFull as error:
            raise queue_full() from error
        if request.is_stream:
            await _send_stream(send, choices, response)
        else:
            await send_body(send, 200, await written(choices, response.whole))


def _parser(engine: Engine, request: ChatRequest, generation: Generation) -> OutputParser:
    tokenizer = engine.tokenizer
    tool_format = tokenizer.tool_format if request.may_call else ToolFormat.NONE
    if request.is_call_forced:
        tool_format = ToolFormat.FORCED
    return OutputParser(
        tool_format,
        may_reason=tokenizer.may_reason,
        starts_reasoning=tokenizer.starts_reasoning(generation.prompt_token_ids),
    )


async def _prepare(engine: Engine, request: ChatRequest, caller: Caller) -> list[Generation]:
    try:
        engine.check_places(request.num_choices, "n")
        prompt = await engine.encode_chat(request.messages, request.tools, request.variables)
        request_id = uuid.uuid4().hex if request.num_choices > 1 else ""
        params = _behind_thoughts(engine, request, prompt)
        return [
            engine.new_generation(
                prompt,
                # There is one prompt, and its scores are reported once.
                replace(params.of_choice(index), prompt_logprobs=None) if index else params,
                caller,
                request_id=request_id,
                keeps_special=request.keeps_special,
                cache_salt=request.cache_salt,
            )
            for index in range(request.num_choices)
        ]
    except PromptTooLong as error:
        raise InvalidRequest(
            str(error), code="context_length_exceeded", param="messages"
        ) from error
    except PromptRefused as error:
        raise InvalidRequest(str(error), code="invalid_value", param="messages") from error
    except InvalidParameter as error:
        raise InvalidRequest(str(error), code="invalid_value", param=error.param) from error


def _behind_thoughts(engine: Engine, request: ChatRequest, prompt: list[int]) -> SamplingParams:
    """Parameters whose grammar applies to the answer and begins after the model's reasoning."""
    if request.params.grammar is None:
        return request.params
    try:
        return replace(request.params, thinking=engine.tokenizer.thinking(prompt))
    except PromptRefused as error:
        message = f"The grammar cannot be used: {error}."
        raise InvalidRequest(
            message, code="invalid_grammar", param=request.grammar_field
        ) from error


async def _send_stream(send: Send, choices: Choices, response: ChatResponse) -> None:
    # Closed before the generations are: the reader ends first, whenever the caller leaves.
    async with aclosing(choices.outputs()) as outputs:
        try:
            # The head waits for the first output: until then a refusal is a plain error.
            index, first = await anext(outputs)
        except StepFailed as error:
            raise choices.as_api_error(error) from error
        await start_event_stream(send)
        await send_part(send, response.opening() + response.part(index, first))
        try:
            async for index, output in outputs:
                events = response.part(index, output)
                if events:
                    await send_part(send, events)
        except StepFailed as error:
            # No [DONE]: a stream that ends without it is an error, and the event says which.
            envelope = choices.as_api_error(error).envelope()
            await send_part(send, as_event(envelope), is_last=True)
            return
    await send_part(send, response.usage_event() + DONE, is_last=True)
