"""What the gateway would know of a request that nobody sent: for "what if", never for traffic."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from classifiers.complexity.model import load as load_complexity
from classifiers.pii.scanner import load as load_scanner
from gateway import routing
from gateway.clock import Clock
from gateway.configuration.sections import InspectionSettings
from gateway.dialects.registry import DIALECTS
from gateway.inspection import Inspector
from gateway.types import DialectName, Inspection, Principal
from policies.facts import Facts, TargetFacts


EXAMPLE_PRINCIPAL = Principal("example", "example", "example", "example", "example", (), None, ())
NOTHING = routing.TargetBoard({}, {})


class Supposed(Struct, frozen=True):
    """The facts of a supposed request, and what was found in its text; no text."""

    facts: Facts
    inspection: Inspection

    def __str__(self) -> str:
        facts, inspection = self.facts, self.inspection
        findings = ", ".join(f"{label} ({count})" for label, count in facts.findings.items())
        parts = [
            f"{facts.dialect}, about {facts.input_tokens_estimate} input tokens",
            f"data class {facts.data_class}",
            f"findings {findings or 'none'}",
            f"complexity {facts.complexity:.3f} ({facts.complexity_tier})",
        ]
        if not inspection.complete:
            parts.append(f"inspection incomplete ({', '.join(inspection.incomplete_reasons)})")
        return ", ".join(parts)


class Supposer:
    """Decodes and inspects bodies as when they are served; to be closed."""

    def __init__(self, settings: InspectionSettings, clock: Clock) -> None:
        self._clock = clock
        self._inspector = Inspector(settings, load_complexity(), clock, load_scanner())

    async def suppose(
        self,
        body: bytes,
        targets: tuple[TargetFacts, ...],
        asker: Principal = EXAMPLE_PRINCIPAL,
    ) -> Supposed:
        """What would be known of this body now, among these targets.

        Raises:
            RequestInvalid: it is no request of a dialect with `messages`.
            msgspec.DecodeError: it is no JSON object.
        """
        dialect = dialect_of(msgspec.json.decode(body, type=dict[str, object]))
        request = DIALECTS[dialect].decode_request(body, "req_supposed")
        inspection = await self._inspector.inspect(request, asker.organisation)
        facts = routing.gather(request, asker, inspection, None, self._clock.utc_us(), NOTHING)
        return Supposed(msgspec.structs.replace(facts, targets=targets), inspection)

    def close(self) -> None:
        self._inspector.close()


def dialect_of(tree: Mapping[str, object]) -> DialectName:
    """Both dialects have `messages`; these words only Anthropic's has, at the top or in tools."""
    words = {"system", "stop_sequences", "thinking", "top_k"}
    tools = tree.get("tools")
    first = tools[0] if isinstance(tools, list) and tools else None
    is_anthropic = not words.isdisjoint(tree) or (isinstance(first, dict) and "name" in first)
    return "anthropic_messages" if is_anthropic else "openai_chat"
