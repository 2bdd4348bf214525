"""Merges several generations of one request into one stream of outputs, in order of arrival."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from collections.abc import Sequence as Many

from local_engine.serve.api.errors import ApiError, api_error_of
from local_engine.serve.engine import Output, Running
from local_engine.serve.link import StepFailed


class Choices:
    """The running generations of a request, and the fields that made their prompt and grammar."""

    def __init__(
        self,
        running: Many[Running],
        *,
        prompt_field: str = "messages",
        grammar_field: str = "response_format",
    ) -> None:
        self.running = running
        self._fields = prompt_field, grammar_field

    def as_api_error(self, error: StepFailed) -> ApiError:
        """What the caller is told, naming the field at fault."""
        return api_error_of(error.code, str(error), *self._fields)

    async def outputs(self) -> AsyncGenerator[tuple[int, Output], None]:
        """Outputs with the number of their choice; raises `StepFailed` with the first failure."""
        if len(self.running) == 1:
            async for output in self.running[0].outputs:
                yield 0, output
            return
        inbox: asyncio.Queue[tuple[int, Output | None]] = asyncio.Queue()

        async def forward(index: int, running: Running) -> None:
            try:
                async for output in running.outputs:
                    inbox.put_nowait((index, output))
            finally:
                inbox.put_nowait((index, None))

        tasks = [
            asyncio.create_task(forward(index, running))
            for index, running in enumerate(self.running)
        ]
        num_open = len(tasks)
        try:
            while num_open:
                index, item = await inbox.get()
                if item is None:
                    await tasks[index]  # Raises whatever it ended with.
                    num_open -= 1
                else:
                    yield index, item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def written(choices: Choices, write: Callable[[list[list[Output]]], bytes]) -> bytes:
    """All outputs by choice, written as one answer; raises `ApiError`."""
    found: list[list[Output]] = [[] for _ in choices.running]
    try:
        async for index, output in choices.outputs():
            found[index].append(output)
    except StepFailed as error:
        raise choices.as_api_error(error) from error
    params = choices.running[0].generation.params
    if not params.logprobs and params.prompt_logprobs is None:
        return write(found)
    # Up to twenty tokens are named for each one: too slow for the event loop.
    return await asyncio.to_thread(write, found)
