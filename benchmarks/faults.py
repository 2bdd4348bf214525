"""What a caller sees for each upstream fault: one request each, in a table."""

import json
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.processes import Contestant, ask


WAIT_S = 4.0
"""A caller's patience: the longest wait for an upstream that hangs."""
CANCEL_AFTER_S = 0.3
LEAVES = 10
PLAIN = (
    *("http400", "http401", "http404", "http429", "http500", "http503", "http529"),
    *("reset", "badjson", "hang"),
)
MID_STREAM = ("midreset", "midhang", "truncated", "cut", "errorevent")
MakeBody = Callable[..., bytes]


def faults_table(files: list[Path], work: Path, upstream: int, make_body: MakeBody) -> str:
    """Each gateway is started afresh, then gets at most two dozen requests."""
    seen: dict[tuple[str, str], dict[str, str]] = {}
    for file in files:
        contestant = Contestant(file, work / file.stem, upstream)
        contestant.start(make_body(64))
        try:
            for fault in ("none", *PLAIN):
                body = make_body(64, marker=f"fault={fault}")
                seen.setdefault((fault, "whole"), {})[file.stem] = call(contestant, upstream, body)
            for fault in ("none", "http503", *MID_STREAM):
                body = make_body(64, stream=True, marker=f"chunks=10,gap_ms=2,fault={fault}")
                row = seen.setdefault((fault, "stream"), {})
                row[file.stem] = call(contestant, upstream, body, stream=True)
            for kind, marker in (("stream", "chunks=400,gap_ms=10"), ("whole", "fault=hang")):
                body = make_body(64, stream=kind == "stream", marker=marker)
                row = seen.setdefault(("the caller leaves", kind), {})
                row[file.stem] = leave(contestant, upstream, body)
        finally:
            contestant.stop()
    names = [file.stem for file in files]
    lines = [f"| fault | answer | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    for (fault, kind), row in seen.items():
        lines.append(f"| {fault} | {kind} | {' | '.join(row[name] for name in names)} |")
    return "\n".join(lines)


def stats(upstream: int) -> dict[str, int]:
    counters: dict[str, int] = json.loads(ask(upstream, "GET", "/stats", None, {})[1])
    return counters


def send(contestant: Contestant, body: bytes) -> socket.socket:
    caller = socket.create_connection(("127.0.0.1", contestant.port), timeout=WAIT_S)
    headers = {
        "host": "x",
        "connection": "close",
        "content-type": "application/json",
        "content-length": str(len(body)),
        **contestant.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    caller.sendall(f"POST {contestant.path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    return caller


def call(contestant: Contestant, upstream: int, body: bytes, *, stream: bool = False) -> str:
    """The result of one request, as a table cell."""
    tries = stats(upstream)["requests"]
    start_s = time.monotonic()
    received, ending = b"", ""
    with send(contestant, body) as caller:
        try:
            while piece := caller.recv(65536):
                received += piece
                caller.settimeout(max(0.01, WAIT_S - (time.monotonic() - start_s)))
        except TimeoutError:
            ending = ", still waiting"
        except ConnectionError:
            ending = ", cut"
    took_s = time.monotonic() - start_s
    head, _, rest = received.partition(b"\r\n\r\n")
    status = received[9:12].decode() or "no answer"
    wait = " retry-after" if b"retry-after:" in head.lower() else ""
    cell = f"{status}{wait}, {stats(upstream)['requests'] - tries} tries, {took_s:.2f} s"
    if stream and status == "200":
        is_whole = rest.endswith(b"0\r\n\r\n") or b"chunked" not in head.lower()
        chunks = rest.count(b'"content":"word')
        cell += f", {chunks} chunks"
        cell += ", [DONE]" if b"[DONE]" in rest else ""
        cell += ", error event" if b'"error"' in rest else ""
        cell += "" if is_whole or ending else ", cut"
    return cell + ending


def leave(contestant: Contestant, upstream: int, body: bytes) -> str:
    """Close before the answer's end, again and again: how soon does the upstream notice?

    Both processes read the machine's one monotonic clock.
    """
    took_ms = []
    for _ in range(LEAVES):
        before = stats(upstream)["streams_left"]
        with send(contestant, body):
            time.sleep(CANCEL_AFTER_S)
            left_us = time.monotonic_ns() // 1000
        while (now := stats(upstream))["streams_left"] == before:
            if time.monotonic_ns() // 1000 - left_us > WAIT_S * 1e6:
                return "the upstream runs on"
            time.sleep(0.01)
        took_ms.append((now["left_at_us"] - left_us) / 1000)
    median, worst = statistics.median(took_ms), max(took_ms)
    return f"the upstream is cut after {median:.1f} ms, {worst:.1f} at most"
