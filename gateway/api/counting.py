"""`POST /v1/messages/count_tokens`: how long a request would be, estimated here; nothing leaves."""

from typing import Any

import msgspec

from gateway.api.door import JSON_HEADERS, Door
from gateway.api.exchange import Exchange
from gateway.calibration import Calibration
from gateway.dialects.anthropic_messages.request import decode_count
from gateway.identity import Peppers, authenticate
from gateway.ports import Dialect
from gateway.rates import Rates
from gateway.routing import check_model


COUNT_TOKENS = "/v1/messages/count_tokens"


class CountingDoor(Door):
    """Same keys, rates, limits and errors as a call; no money and no record: nothing is sent."""

    def __init__(
        self,
        dialect: Dialect,
        peppers: Peppers,
        calibration: Calibration,
        rates: Rates,
        **same: Any,
    ) -> None:
        """`same` is what every door is made of."""
        super().__init__(COUNT_TOKENS, dialect, **same)
        self._rates = rates
        self._peppers = peppers
        self._calibration = calibration

    async def _serve(self, exchange: Exchange, request_id: str) -> None:
        snapshot = self._snapshots.current()
        principal = authenticate(
            snapshot.keys, self._peppers, exchange.headers, self._clock.utc_us()
        )
        body = await exchange.read_body()
        permit = await self._rates.admit(principal.accounts, 0)
        try:
            request = decode_count(body, request_id)
            check_model(request, snapshot.board, snapshot.policies.document_for(principal))
            target = snapshot.board.targets.get(request.model)
            tokens = self._calibration.estimate(request, target)
        finally:
            self._rates.release(permit, 0)
        headers = {**JSON_HEADERS, "x-request-id": request_id, "x-gatewright-usage": "estimated"}
        await exchange.answer(200, headers, msgspec.json.encode({"input_tokens": tokens}))
