"""A tiny HTTP server that answers every POST with bytes of ours, for the official SDKs to read."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
import openai


@contextmanager
def serving(status: int, content_type: str, body: bytes, step_bytes: int = 0) -> Iterator[str]:
    """The base URL of a server that writes `body` in steps, so that clients see partial reads."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            step = step_bytes or len(body) or 1
            for start in range(0, len(body), step):
                self.wfile.write(body[start : start + step])
                self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def openai_client(
    body: bytes, *, status: int = 200, content_type: str = "application/json", step_bytes: int = 0
) -> Iterator[openai.OpenAI]:
    """The official client, at a server that answers with `body`."""
    with (
        serving(status, content_type, body, step_bytes) as url,
        openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client,
    ):
        yield client


@contextmanager
def anthropic_client(
    body: bytes, *, status: int = 200, content_type: str = "application/json", step_bytes: int = 0
) -> Iterator[anthropic.Anthropic]:
    """The official client, at a server that answers with `body`."""
    with (
        serving(status, content_type, body, step_bytes) as url,
        anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client,
    ):
        yield client
