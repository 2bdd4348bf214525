"""Both vendors' batch APIs, as a part of the recording upstream and as strict as the vendors.

It answers every line as the upstream itself would, and misbehaves as `ParcelFaults` says.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import structs

from gateway.providers.parcels.scripted import ParcelFaults


MESSAGES = "/v1/messages/batches"
CHAT = "/v1/chat/completions"
ENDPOINTS = (CHAT, "/v1/responses", "/v1/embeddings")
Reply = tuple[int, bytes, bool]
"""Status, body, and whether it is cut in the middle."""


def _json(tree: object, status: int = 200) -> Reply:
    return status, msgspec.json.encode(tree), False


def _refusal(status: int, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": f"fake {status}", "code": kind}}


class VendorBatches:
    """Files and batches of one account, in memory."""

    def __init__(self, answer: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        """`answer` returns the good answer to a body at an endpoint."""
        self._answer = answer
        self.faults = ParcelFaults()
        self.now_s = int(datetime.now(UTC).timestamp())
        self.files: dict[str, tuple[str, bytes]] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.made = 0
        self.cancelled: list[str] = []
        self.deleted: list[str] = []
        self.spoil: Callable[[bytes], bytes] = bytes
        """Changes to a download on its way."""
        self.looks = 0
        self.pages = 0
        self._asked: dict[str, str] = {}
        """The query of the last request's address."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Every line that ever arrived, in order of arrival."""
        return [line for batch in self.batches.values() for line in batch["lines"]]

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply | None:
        """None if the path is not one of these APIs."""
        path, _, query = path.partition("?")
        self._asked = dict(parse_qsl(query))
        parts = path.strip("/").split("/")[1:]
        if parts[:2] == ["messages", "batches"]:
            return self._messages(method, parts[2:], body)
        if parts[:1] == ["files"]:
            return self._files(method, parts[1:], headers, body)
        if parts[:1] == ["batches"]:
            return self._batches(method, parts[1:], body)
        return None

    # --- OpenAI ---------------------------------------------------------------------------------

    def _files(self, method: str, parts: list[str], headers: dict[str, str], body: bytes) -> Reply:
        if method == "POST":
            if self.faults.submit_status:
                return _json(_refusal(self.faults.submit_status), self.faults.submit_status)
            fields, name, content = _form(headers["content-type"], body)
            assert fields["purpose"] == "batch"
            assert fields["expires_after[anchor]"] == "created_at"
            assert 3600 <= int(fields["expires_after[seconds]"]) <= 2_592_000
            return _json(self._file(self.upload(name, content)))
        if not parts:
            assert (self._asked["purpose"], self._asked["order"]) == ("batch", "desc")
            return self._listed([self._file(each) for each in reversed(self.files)], "after")
        if parts[0] not in self.files:
            return _json(_refusal(404), 404)
        if method == "DELETE":
            if self.faults.delete_status:
                return _json(_refusal(self.faults.delete_status), self.faults.delete_status)
            self.deleted.append(parts[0])
            del self.files[parts[0]]
            return _json({"id": parts[0], "object": "file", "deleted": True})
        if parts[1:] == ["content"]:
            return self._download(self.files[parts[0]][1])
        return _json(self._file(parts[0]))

    def upload(self, name: str, content: bytes = b"") -> str:
        """The id of a file that exists from now on."""
        file_id = f"file-{len(self.files) + 1}"
        self.files[file_id] = (name, content)
        return file_id

    def _file(self, file_id: str) -> dict[str, Any]:
        name, content = self.files[file_id]
        return {
            "id": file_id,
            "object": "file",
            "bytes": len(content),
            "created_at": self.now_s,
            "filename": name,
            "purpose": "batch",
            "status": "processed",
        }

    def _batches(self, method: str, parts: list[str], body: bytes) -> Reply | None:
        if method == "POST" and not parts:
            return self._make_batch(msgspec.json.decode(body))
        if not parts:
            return self._listed([_shown(each) for each in reversed(self.batches.values())], "after")
        batch = self.batches.get(parts[0])
        if batch is None:
            return _json(_refusal(404), 404)
        if method == "POST":
            self.cancelled.append(parts[0])
            batch["is_cancelled"] = True
            if batch["status"] not in {"in_progress", "cancelling"}:
                return _json(_refusal(409), 409)
            batch["status"] = "cancelling"
            return _json(_shown(batch))
        self.looks += 1
        if batch["status"] in {"in_progress", "cancelling"} and self._is_over(batch):
            self._finish(batch)
        return _json(_shown(batch))

    def _make_batch(self, order: dict[str, Any]) -> Reply | None:
        name, content = self.files[order["input_file_id"]]
        assert name.endswith(".jsonl")
        assert order["completion_window"] == "24h"
        assert order["endpoint"] in ENDPOINTS
        lines = [msgspec.json.decode(each) for each in content.splitlines()]
        for line in lines:
            assert line.keys() == {"custom_id", "method", "url", "body"}
            assert (line["method"], line["url"]) == ("POST", order["endpoint"])
            assert ("messages" in line["body"]) == (order["endpoint"] == CHAT)
        assert len({line["body"]["model"] for line in lines}) == 1
        assert len({line["custom_id"] for line in lines}) == len(lines)
        batch = {
            "id": f"batch_v{len(self.batches) + 1}",
            "object": "batch",
            "endpoint": order["endpoint"],
            "input_file_id": order["input_file_id"],
            "completion_window": "24h",
            "status": "in_progress",
            "created_at": self.now_s,
            "output_file_id": None,
            "error_file_id": None,
            "metadata": order.get("metadata"),
            "lines": lines,
        }
        return self._taken(batch, _shown(batch))

    def _taken(self, batch: dict[str, Any], shown: dict[str, Any]) -> Reply:
        self.made += 1
        self.batches[batch["id"]] = batch
        if status := self.faults.made_status:
            self.faults = structs.replace(self.faults, made_status=0)
            return _json(_refusal(status), status)
        is_hidden = self.faults.hides_submit
        self.faults = structs.replace(self.faults, hides_submit=False)
        return 200, msgspec.json.encode(shown), is_hidden

    def _finish(self, batch: dict[str, Any]) -> None:
        good: list[bytes] = []
        bad: list[bytes] = []
        for line, kind in self._fates(batch):
            wire: dict[str, Any] = {"id": "r", "custom_id": line["custom_id"], "error": None}
            if kind == "unsent":
                code = "batch_cancelled" if batch.get("is_cancelled") else "batch_expired"
                wire |= {"response": None, "error": {"code": code, "message": "m"}}
            elif kind == "good":
                body = self._answer(batch["endpoint"], line["body"])
                wire["response"] = {"status_code": 200, "request_id": "q", "body": body}
            else:
                status = 400 if kind == "refused" else 503
                wire["response"] = {"status_code": status, "request_id": "q"}
                wire["response"]["body"] = _refusal(status)
            (good if kind == "good" else bad).append(msgspec.json.encode(wire))
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                batch[name] = f"file-{len(self.files) + 100}"
                self.files[batch[name]] = (f"{name}.jsonl", b"\n".join(lines) + b"\n")
        batch["status"] = "cancelled" if batch.get("is_cancelled") else "completed"

    # --- Anthropic ------------------------------------------------------------------------------

    def _messages(self, method: str, parts: list[str], body: bytes) -> Reply | None:
        if method == "POST" and not parts:
            return self._make_message_batch(msgspec.json.decode(body))
        if not parts:
            shown = [self._message_batch(each) for each in reversed(self.batches.values())]
            return self._listed(shown, "after_id")
        batch = self.batches.get(parts[0])
        if batch is None:
            return _json(_refusal(404, "not_found_error"), 404)
        if method == "DELETE":
            return self._drop_message_batch(batch)
        if parts[1:] == ["cancel"]:
            self.cancelled.append(parts[0])
            batch["is_cancelled"] = True
            return _json(self._message_batch(batch))
        if parts[1:] == ["results"]:
            return self._download(b"".join(self._message_results(batch)))
        self.looks += 1
        return _json(self._message_batch(batch))

    def _drop_message_batch(self, batch: dict[str, Any]) -> Reply:
        status = self.faults.delete_status if self._is_over(batch) else 400
        if status:
            return _json(_refusal(status), status)
        self.deleted.append(batch["id"])
        del self.batches[batch["id"]]
        return _json({"id": batch["id"], "type": "message_batch_deleted"})

    def _make_message_batch(self, order: dict[str, Any]) -> Reply:
        if self.faults.submit_status:
            return _json(_refusal(self.faults.submit_status), self.faults.submit_status)
        assert order.keys() == {"requests"}
        for line in order["requests"]:
            assert line.keys() == {"custom_id", "params"}
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", line["custom_id"])
            assert not line["params"].get("stream")
        ids = [line["custom_id"] for line in order["requests"]]
        assert len(set(ids)) == len(ids)
        batch_id = f"msgbatch_v{self.made + 1}"
        batch = {"id": batch_id, "created_at": self.now_s, "lines": order["requests"]}
        return self._taken(batch, self._message_batch(batch))

    def _message_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        is_over = self._is_over(batch)
        count = len(batch["lines"])
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        counts["succeeded" if is_over else "processing"] = count
        status = "canceling" if batch.get("is_cancelled") else "in_progress"
        created = datetime.fromtimestamp(batch["created_at"], UTC).isoformat()
        return {
            "id": batch["id"],
            "type": "message_batch",
            "processing_status": "ended" if is_over else status,
            "request_counts": counts,
            "created_at": created,
            "expires_at": created,
            "ended_at": created if is_over else None,
            "cancel_initiated_at": None,
            "archived_at": None,
            "results_url": f"{MESSAGES}/{batch['id']}/results" if is_over else None,
        }

    def _message_results(self, batch: dict[str, Any]) -> list[bytes]:
        lines = []
        for line, kind in self._fates(batch):
            result: dict[str, Any] = {"type": "expired"}
            if kind == "unsent" and batch.get("is_cancelled"):
                result = {"type": "canceled"}
            elif kind == "good":
                message = self._answer("/v1/messages", line["params"])
                result = {"type": "succeeded", "message": message}
            elif kind != "unsent":
                name = "invalid_request_error" if kind == "refused" else "overloaded_error"
                result = {"type": "errored", "error": _refusal(400, name)}
            wire = {"custom_id": line["custom_id"], "result": result}
            lines.append(msgspec.json.encode(wire) + b"\n")
        return lines

    def _listed(self, things: list[dict[str, Any]], after: str) -> Reply:
        """One page of them, starting after the one that is named."""
        ids, limit = [each["id"] for each in things], int(self._asked.get("limit", "20"))
        assert limit <= 100
        self.pages += 1
        start = ids.index(self._asked[after]) + 1 if after in self._asked else 0
        page = things[start : start + limit]
        has_more = start + limit < len(things)
        return _json({"object": "list", "data": page, "has_more": has_more})

    # --- both -----------------------------------------------------------------------------------

    def _is_over(self, batch: dict[str, Any]) -> bool:
        if self.faults.is_endless:
            return False
        return bool(batch.get("is_cancelled")) or not self.faults.is_slow

    def _fates(self, batch: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
        faults = self.faults
        fates = []
        for line in batch["lines"]:
            number = int(line["custom_id"].rpartition("-")[2])
            if number in faults.lost:
                continue
            kind = "refused" if number in faults.refused else "good"
            kind = "overloaded" if number in faults.overloaded else kind
            is_unsent = number in faults.unsent
            if batch.get("is_cancelled") and faults.is_slow:
                is_unsent = True
            fates += [(line, "unsent" if is_unsent else kind)] * (2 if faults.is_doubled else 1)
        return fates[::-1] if faults.is_reversed else fates

    def _download(self, content: bytes) -> Reply:
        """Complete lines up to the cut, then a part of one."""
        content = self.spoil(content)
        cut = self.faults.cut_after
        if cut is None:
            return 200, content, False
        self.faults = structs.replace(self.faults, cut_after=None)
        lines = content.splitlines(keepends=True)
        return 200, b"".join(lines[:cut]) + lines[cut][:9] + b" " * 9, True


def _shown(batch: dict[str, Any]) -> dict[str, Any]:
    hidden = {"lines", "is_cancelled"}
    return {name: value for name, value in batch.items() if name not in hidden}


def _form(kind: str, body: bytes) -> tuple[dict[str, str], str, bytes]:
    """Fields, file name and file of a multipart body."""
    boundary = kind.partition("boundary=")[2].encode()
    assert body.endswith(b"\r\n--" + boundary + b"--\r\n")
    fields, name, content = {}, "", b""
    for part in body.split(b"--" + boundary)[1:-1]:
        head, _, value = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        value = value.removesuffix(b"\r\n")
        found = re.search(rb'name="([^"]+)"', head)
        assert found is not None
        file = re.search(rb'filename="([^"]+)"', head)
        if file is not None:
            name, content = file[1].decode(), value
        else:
            fields[found[1].decode()] = value.decode()
    return fields, name, content
