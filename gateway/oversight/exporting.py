"""Formats records for other systems: JSON lines, syslog (RFC 5424), OpenTelemetry spans. Pure.

Records hold no content and no secret, and nothing is added to them here.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from gateway.configuration.kinds import kind_of
from gateway.oversight.otlp_resource import Source, attributes_of, resource_of


Line = Mapping[str, Any]
"""A record as `projecting.export` writes it, or a checkpoint, which has a `note`."""

_PRIORITY = 13 * 8 + 6
"""Facility 13 (log audit), severity 6 (informational); RFC 5424 §6.2.1."""
_ENTERPRISE = "gatewright@32473"
"""The enterprise number for documentation (RFC 5612), since we have none of our own."""
_IN_STRUCTURED_DATA = ("organisation", "sequence", "stage", "request_id", "action", "status")
_SPAN_KIND_CLIENT = 3
_STATUS_OK, _STATUS_ERROR = 1, 2
_NS_PER_US = 1000
COUNT = "count_tokens"
"""The conventions have no word for a token count, which generates nothing."""
_OPERATIONS = {
    "/v1/embeddings": "embeddings",
    "/v1/completions": "text_completion",
    "/v1/messages/count_tokens": COUNT,
    "/v1/responses/input_tokens": COUNT,
}


def as_json_lines(lines: Iterable[Line]) -> bytes:
    """One object per line, ASCII only: nothing in it can be taken for the end of a line."""
    return b"".join(compact_json(line) + b"\n" for line in lines)


def as_syslog(lines: Iterable[Line], host: str) -> bytes:
    """Messages of RFC 5424, each preceded by its length (octet counting, RFC 6587 §3.4.1)."""
    frames = []
    for line in lines:
        moment = datetime.fromtimestamp(_utc_us(line) / 1_000_000, UTC)
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        data = "".join(
            f' {name}="{_escaped(str(line[name]))}"'
            for name in _IN_STRUCTURED_DATA
            if line.get(name)
        )
        kind = "checkpoint" if "note" in line else str(line.get("stage") or "-")
        head = f"<{_PRIORITY}>1 {stamp} {host} gatewright - {kind} [{_ENTERPRISE}{data}] "
        message = head.encode("ascii", "replace") + compact_json(line)
        frames.append(b"%d %b" % (len(message), message))
    return b"".join(frames)


def as_spans(lines: Iterable[Line], kinds: Mapping[str, str], source: Source) -> bytes:
    """OTLP/HTTP JSON: a span for each request's outcome, by the GenAI semantic conventions (0.1.0).

    It belongs to the trace that the caller named, or else to one of its own. Empty if no line is an
    outcome. `kinds` maps the settings' providers to their kinds. All of `source` is used except the
    worker, which is each line's own.
    """
    by_worker: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if line.get("stage") == "outcome" and not line.get("ended_again"):
            by_worker[str(line.get("worker") or "")].append(_span(line, kinds))
    if not by_worker:
        return b""
    told = [
        {
            "resource": resource_of(Source(worker, source.installation, source.environment)),
            "scopeSpans": [{"scope": {"name": "gatewright.audit"}, "spans": spans}],
        }
        for worker, spans in by_worker.items()
    ]
    return compact_json({"resourceSpans": told})


def operation_of(endpoint: str) -> str:
    """What an endpoint asks of a model, in the conventions' words."""
    return _OPERATIONS.get(endpoint, "chat")


def provider_of(name: str, kind: str) -> str:
    """A provider of the settings in the conventions' words."""
    return kind_of(kind).convention or name


def _span(line: Line, kinds: Mapping[str, str]) -> dict[str, Any]:
    digest = sha256(str(line["request_id"]).encode()).hexdigest()
    end_us = _utc_us(line)
    usage = line.get("usage") or {}
    operation = operation_of(str(line.get("endpoint")))
    model = str(line.get("model_requested") or "")
    provider = str(line.get("provider") or "")
    said = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": provider_of(provider, kinds.get(provider, "")),
        "gen_ai.request.model": model,
        "gen_ai.response.model": line.get("target"),
        "gen_ai.usage.input_tokens": usage.get("input_tokens"),
        "gen_ai.usage.output_tokens": usage.get("output_tokens"),
        "gen_ai.usage.cache_read.input_tokens": usage.get("cache_read_tokens"),
        "gen_ai.usage.cache_write.input_tokens": _written(usage),
        "gen_ai.usage.reasoning.output_tokens": usage.get("reasoning_tokens"),
        "error.type": line.get("error"),
        "http.response.status_code": line.get("http_status"),
        "gatewright.target": line.get("target"),
        "gatewright.organisation": line.get("organisation"),
        "gatewright.workspace": line.get("workspace"),
        "gatewright.project": line.get("project"),
        "gatewright.request_id": line.get("request_id"),
        "gatewright.data_class": line.get("data_class"),
        "gatewright.jurisdiction": line.get("jurisdiction"),
        "gatewright.decision": line.get("decision"),
        "gatewright.status": line.get("status"),
        "gatewright.cost_microusd": line.get("cost_microusd"),
    }
    trace, _, parent = str((line.get("detail") or {}).get("trace", "")).partition("-")
    return {
        "traceId": trace or digest[:32],
        "spanId": digest[32:48],
        **({"parentSpanId": parent} if parent else {}),
        "name": f"{operation} {model}".strip(),
        "kind": _SPAN_KIND_CLIENT,
        "startTimeUnixNano": str((end_us - int(line.get("duration_us") or 0)) * _NS_PER_US),
        "endTimeUnixNano": str(end_us * _NS_PER_US),
        "attributes": attributes_of(said),
        "status": {"code": _STATUS_ERROR if line.get("error") else _STATUS_OK},
    }


def _written(usage: Mapping[str, Any]) -> int | None:
    """Tokens written to an upstream's cache, for any lifetime; None without usage."""
    return usage["cache_write_tokens"] + usage["cache_write_1h_tokens"] if usage else None


def _utc_us(line: Line) -> int:
    return int(line.get("utc_us") or line.get("signed_us") or 0)


def compact_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def _escaped(text: str) -> str:
    """A value of structured data: three characters need a backslash (RFC 5424 §6.3.3)."""
    kept = "".join(character if character.isprintable() else "?" for character in text)
    return kept.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")
