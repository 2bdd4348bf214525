"""`POST /v1/chat/completions`: one request from its body to its last byte."""

from contextlib import AsyncExitStack

from local_engine.core.sampling_params import InvalidParameter
from local_engine.core.scheduler import QueueFull
from local_engine.core.sequence import PromptTooLong
from local_engine.serve.chat_request import ChatRequest, read_chat_request
from local_engine.serve.chat_response import DONE, ChatResponse, as_event
from local_engine.serve.clock import unix_time_s
from local_engine.serve.engine import Caller, Engine, Generation, Output, Running, StepFailed
from local_engine.serve.errors import (
    ApiError,
    EngineFailed,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from local_engine.serve.http import Send, send_body, send_part, start_event_stream
from local_engine.text.errors import PromptRefused


async def answer_chat(
    body: bytes, send: Send, engine: Engine, served_name: str, caller: Caller
) -> None:
    """Answer in one piece or as events; raises `ApiError` while nothing is sent yet."""
    request = read_chat_request(body, engine.defaults)
    if request.model != served_name:
        raise NotFound("The model does not exist.", code="model_not_found", param="model")
    generation = await _prepare(engine, request, caller)
    response = ChatResponse(
        generation,
        engine.tokenizer,
        model=served_name,
        created=unix_time_s(),
        digest=engine.digest,
    )
    async with AsyncExitStack() as stack:
        try:
            running = await stack.enter_async_context(engine.generate(generation))
        except QueueFull as error:
            raise _unavailable(error) from error
        if request.is_stream:
            await _send_stream(send, running, response, include_usage=request.include_usage)
        else:
            await _send_whole(send, running, response)


async def _prepare(engine: Engine, request: ChatRequest, caller: Caller) -> Generation:
    try:
        prompt = await engine.encode_chat(request.messages)
        return engine.new_generation(prompt, request.params, caller)
    except PromptTooLong as error:
        raise InvalidRequest(
            str(error), code="context_length_exceeded", param="messages"
        ) from error
    except PromptRefused as error:
        raise InvalidRequest(str(error), code="invalid_value", param="messages") from error
    except InvalidParameter as error:
        raise InvalidRequest(str(error), code="invalid_value", param=error.param) from error


async def _send_whole(send: Send, running: Running, response: ChatResponse) -> None:
    try:
        outputs = [output async for output in running.outputs]
    except StepFailed as error:
        raise api_error_of(error) from error
    await send_body(send, 200, response.whole(outputs))


async def _send_stream(
    send: Send, running: Running, response: ChatResponse, *, include_usage: bool
) -> None:
    try:
        # The head waits for the first output: until then a refusal is a plain error.
        first = await anext(running.outputs)
    except StepFailed as error:
        raise api_error_of(error) from error
    await start_event_stream(send)
    await send_part(send, response.opening(include_usage=include_usage))
    try:
        await _send_output(send, first, response, include_usage=include_usage)
        async for output in running.outputs:
            await _send_output(send, output, response, include_usage=include_usage)
    except StepFailed as error:
        # No [DONE]: a stream that ends without it is an error, and the event says which.
        await send_part(send, as_event(api_error_of(error).envelope()), is_last=True)
        return
    ending = response.usage_event() + DONE if include_usage else DONE
    await send_part(send, ending, is_last=True)


async def _send_output(
    send: Send, output: Output, response: ChatResponse, *, include_usage: bool
) -> None:
    events = response.part(output, include_usage=include_usage)
    if events:
        await send_part(send, events)


def _unavailable(error: QueueFull) -> Unavailable:
    return Unavailable(
        "The engine's queue is full.", code="queue_full", retry_after_s=error.retry_after_s
    )


def api_error_of(error: StepFailed) -> ApiError:
    """What a caller is told about a generation that the worker did not finish."""
    if error.code == "queue_full":
        return Unavailable("The engine's queue is full.", code="queue_full", retry_after_s=1)
    if error.code == "worker_gone":
        return Unavailable("The engine lost its worker.", code="worker_gone", retry_after_s=2)
    if error.code == "invalid_grammar":
        message = f"The grammar cannot be used: {error}"
        return InvalidRequest(message, code="invalid_grammar", param="response_format")
    if error.code == "context_length_exceeded":
        return InvalidRequest(str(error), code=error.code, param="messages")
    return EngineFailed("The engine failed on this request.", code="engine_failed")
