"""`POST /v1/messages/count_tokens`: how long a request would be, estimated here; nothing leaves."""

from typing import Any

import msgspec

from gateway.api.door import JSON_HEADERS, Door
from gateway.api.exchange import Exchange
from gateway.calibration import Calibration
from gateway.dialects.anthropic_messages.request import decode_count
from gateway.identity import Peppers, authenticate
from gateway.ports import Dialect
from gateway.routing import check_model


COUNT_TOKENS = "/v1/messages/count_tokens"


class CountingDoor(Door):
    """Same keys, limits and errors as a call; no reservation and no record, for nothing is sent."""

    def __init__(
        self, dialect: Dialect, peppers: Peppers, calibration: Calibration, **same: Any
    ) -> None:
        """`same` is what every door is made of."""
        super().__init__(COUNT_TOKENS, dialect, **same)
        self._peppers = peppers
        self._calibration = calibration

    async def _serve(self, exchange: Exchange, request_id: str) -> None:
        snapshot = self._snapshots.current()
        principal = authenticate(
            snapshot.keys, self._peppers, exchange.headers, self._clock.utc_us()
        )
        request = decode_count(await exchange.read_body(), request_id)
        check_model(request, snapshot.board, snapshot.policies.document_for(principal))
        tokens = self._calibration.estimate(request, snapshot.board.targets.get(request.model))
        headers = {**JSON_HEADERS, "x-request-id": request_id, "x-gatewright-usage": "estimated"}
        await exchange.answer(200, headers, msgspec.json.encode({"input_tokens": tokens}))
