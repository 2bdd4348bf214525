"""Pulling a model from a hub of our own, and what `check` says about it."""

import hashlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


REVISION = "0" * 40


class Hub(BaseHTTPRequestHandler):
    """As much of a hub as a download needs; serves the directory of its server."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""

    def _answer(self, *, with_body: bool) -> None:
        directory: Path = self.server.directory  # type: ignore[attr-defined]
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/org/tiny/tree/"):
            files = [
                {"type": "file", "path": each.name, "size": each.stat().st_size, "oid": "0" * 40}
                for each in sorted(directory.iterdir())
            ]
            body = json.dumps(files).encode()
        elif path.startswith("/api/models/org/tiny"):
            names = [{"rfilename": each.name} for each in sorted(directory.iterdir())]
            body = json.dumps({"id": "org/tiny", "sha": REVISION, "siblings": names}).encode()
        elif path.startswith("/org/tiny/resolve/") and (directory / Path(path).name).exists():
            body = (directory / Path(path).name).read_bytes()
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


class HubServer(ThreadingHTTPServer):
    """Takes as many connections at once as a download opens, however slow the machine is."""

    request_queue_size = 128
    daemon_threads = True


@pytest.fixture
def hub(tiny_model: Path) -> Iterator[str]:
    (tiny_model / "README.md").write_text("not fetched")
    (tiny_model / "pytorch_model.bin").write_bytes(b"not fetched either")
    server = HubServer(("127.0.0.1", 0), Hub)
    server.directory = tiny_model  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def engine(*arguments: str, hub: str = "", home: Path | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "local_engine", *arguments],
        env={
            "HF_ENDPOINT": hub,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            # A busy machine may take longer than the hub's ten seconds to answer itself.
            "HF_HUB_ETAG_TIMEOUT": "60",
            "HF_HUB_DOWNLOAD_TIMEOUT": "60",
            "PYTHONPATH": ":".join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_pulled_model_has_a_manifest_and_only_what_is_served(hub: str, tmp_path: Path) -> None:
    out = tmp_path / "pulled"
    status, digest, errors = engine("pull", "org/tiny", "--out", str(out), hub=hub, home=tmp_path)
    assert status == 0, errors
    assert {path.name for path in out.iterdir()} == {
        *("config.json", "manifest.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    status, facts, _ = engine("check", str(out))
    assert status == 0
    assert digest.strip() in facts
    assert "every file is as it says" in facts
    assert "bytes per token" in facts


def test_a_model_that_is_not_there_leaves_nothing_behind(hub: str, tmp_path: Path) -> None:
    out = tmp_path / "pulled"
    status, _, errors = engine("pull", "org/none", "--out", str(out), hub=hub, home=tmp_path)
    assert status == 2
    assert "org/none could not be fetched" in errors
    assert not out.exists()


def test_a_directory_that_is_there_is_not_overwritten(tiny_model: Path) -> None:
    status, _, errors = engine("pull", "org/tiny", "--out", str(tiny_model))
    assert status == 2
    assert "exists already" in errors


def test_a_hub_that_hangs_up_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    out = tmp_path / "pulled"
    status, _, errors = engine("pull", "org/tiny", "--out", str(out), hub=address, home=tmp_path)
    assert status == 2
    assert "org/tiny could not be fetched" in errors
    assert not out.exists()
