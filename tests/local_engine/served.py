"""A worker on a thread of the test at the other end of a real socket pair."""

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from local_engine.runner.choosing import Result
from local_engine.runner.model_runner import ModelRunner, Prepared
from local_engine.serve.api.app import EngineApp
from local_engine.serve.compute import worker_process
from local_engine.serve.compute.worker import Worker
from local_engine.serve.engine import Engine
from local_engine.serve.link import WorkerLink
from local_engine.serve.options import WorkerOptions
from local_engine.serve.wire import encode, socket_pair


class FragileRunner:
    """A runner that can be held, and fails while `is_broken`, as a GPU without memory would."""

    def __init__(self, runner: ModelRunner) -> None:
        self._compute = runner.compute
        self.is_broken = False
        self.may_run = threading.Event()
        self.may_run.set()

    def compute(self, prepared: Prepared) -> dict[str, Result]:
        self.may_run.wait()
        if self.is_broken:
            raise RuntimeError("the prompt was: hello")
        return self._compute(prepared)


class Served:
    """An engine with everything a test may want to look at or break."""

    def __init__(self, engine: Engine, worker: Worker, fragile: FragileRunner) -> None:
        self.engine = engine
        self.worker = worker
        self.scheduler = worker._scheduler
        self.runner = worker._runner
        self.fragile = fragile


@asynccontextmanager
async def served(directory: Path, **options: Any) -> AsyncIterator[Served]:
    """The model of a directory, loaded as the worker process loads it."""
    ours, theirs = socket_pair()
    chosen = WorkerOptions(**{"model": str(directory), "device": "cpu", **options})
    worker, ready = worker_process.load_worker(theirs, chosen)
    fragile = FragileRunner(worker._runner)
    worker._runner.compute = fragile.compute  # type: ignore[method-assign]

    def work() -> None:
        with theirs:  # A worker that breaks hangs up, as its process would.
            theirs.sendall(encode(ready))
            worker.run()

    thread = threading.Thread(target=work)
    thread.start()
    link = await WorkerLink.over(ours)
    try:
        yield Served(Engine(await link.ready(), link), worker, fragile)
    finally:
        fragile.may_run.set()
        await link.stop()
        thread.join()


def client_of(engine: Engine | None, name: str = "tiny") -> httpx.AsyncClient:
    app = EngineApp()
    if engine is not None:
        app.attach(name, engine)
    transport = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://engine")


def events(text: str) -> list[Any]:
    """Those of a stream that ended as it should."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
