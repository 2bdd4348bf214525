"""Facts of a supposed request, which nobody sent: for "what if" questions, never for traffic."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.dialects.registry import DIALECTS
from gateway.errors import RequestInvalid
from gateway.inspection.inspector import INJECTION_FACTS, make_inspector
from gateway.routing import planning
from gateway.routing.board import TargetBoard, comparable
from gateway.types import ChatRequest, DialectName, Inspection, Principal
from policies.facts import Facts, TargetFacts


EXAMPLE_PRINCIPAL = Principal("example", "example", "example", "example", "example", (), None, ())
NOTHING = TargetBoard({}, {})


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
    """Decodes and inspects bodies just as for real requests; must be closed.

    Raises:
        ConfigurationInvalid: what the settings name for the inspection cannot be read.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._inspector = make_inspector(settings, clock)

    async def suppose(
        self,
        body: bytes,
        targets: tuple[TargetFacts, ...],
        asker: Principal = EXAMPLE_PRINCIPAL,
        dialect: DialectName | None = None,
    ) -> Supposed:
        """The facts of this body now, among these targets; without a dialect, it is guessed.

        Raises:
            RequestInvalid: it is no request, or one that goes on from an answer that is kept.
            msgspec.DecodeError: it is no JSON object.
        """
        tree = msgspec.json.decode(body, type=dict[str, object])
        dialect = dialect or dialect_of(tree, targets)
        request = DIALECTS[dialect].decode_request(body, "req_supposed")
        thread = request.thread
        if thread is not None and thread.goes_on:
            raise RequestInvalid("what it goes on from is not at hand", parameter="input")
        inspection = await self._inspector.inspect(request, asker.organisation, INJECTION_FACTS)
        facts = planning.gather(request, asker, inspection, None, self._clock.utc_us(), NOTHING)
        asked = _asked(targets, request)
        return Supposed(msgspec.structs.replace(facts, targets=asked), inspection)

    def close(self) -> None:
        self._inspector.close()


def is_body(example: Mapping[str, object]) -> bool:
    """Whether an object is a request's body, and not a list of facts."""
    return not {"messages", "input", "prompt"}.isdisjoint(example)


def dialect_of(tree: Mapping[str, object], targets: tuple[TargetFacts, ...] = ()) -> DialectName:
    """The dialect, by words that only one has, at the top or in tools, and by the model's use."""
    if "prompt" in tree and not isinstance(tree["prompt"], dict):
        return "openai_completions"
    if "messages" not in tree:
        return "openai_embeddings" if _asks_for_vectors(tree, targets) else "openai_responses"
    words = {"system", "stop_sequences", "thinking", "top_k"}
    tools = tree.get("tools")
    first = tools[0] if isinstance(tools, list) and tools else None
    is_anthropic = not words.isdisjoint(tree) or (isinstance(first, dict) and "name" in first)
    return "anthropic_messages" if is_anthropic else "openai_chat"


def _asks_for_vectors(tree: Mapping[str, object], targets: tuple[TargetFacts, ...]) -> bool:
    given = tree.get("input")
    if isinstance(given, list) and given and not isinstance(given[0], dict):
        return True
    makers = {target.name for target in targets if target.vectors}
    return tree.get("model") in makers or not {"encoding_format", "dimensions"}.isdisjoint(tree)


def _asked(targets: tuple[TargetFacts, ...], request: ChatRequest) -> tuple[TargetFacts, ...]:
    """The targets that make what is asked for, as a board gives them for real requests."""
    if request.purpose != "embedding":
        return tuple(target for target in targets if not target.vectors)
    return comparable(tuple(each for each in targets if each.vectors), request.model)
