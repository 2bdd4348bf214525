"""How much a model of Anthropic's is asked to think, from another dialect's word for it."""

from gateway.conversation import Conversation, ThinkingPart, ToolCallPart
from gateway.dialects.loss import Losses
from gateway.types import Target


BUDGET_MIN = 1024
"""The least that the vendor takes."""

_BUDGETS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}
_EFFORTS = {"minimal": "low"}

Json = dict[str, object]


def add_reasoning(fields: Json, talk: Conversation, target: Target, losses: Losses) -> None:
    """Add `output_config.effort` or `thinking` to a request's fields, or report what is lost."""
    asked = talk.reasoning
    if asked is None:
        return
    if asked.disabled:
        if "thinking" in target.capabilities:
            fields["thinking"] = {"type": "disabled"}
        return
    effort = asked.effort or _effort_of(asked.budget_tokens)
    if "effort" in target.capabilities:
        config = fields.setdefault("output_config", {})
        assert isinstance(config, dict)
        config["effort"] = _EFFORTS.get(effort, effort)
        return
    limit = fields["max_tokens"]
    assert isinstance(limit, int)
    # Half of the limit at most: what is thought counts as output, and the answer needs room.
    budget = min(asked.budget_tokens or _BUDGETS.get(effort, 0), limit // 2)
    if budget < BUDGET_MIN or not _may_think(fields, talk, target):
        losses.add("reasoning_effort")
        return
    fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
    for name in ("temperature", "top_p", "top_k"):
        if fields.pop(name, None) is not None:
            losses.add(name)


def _effort_of(budget_tokens: int) -> str:
    return next((word for word, tokens in _BUDGETS.items() if budget_tokens <= tokens), "high")


def _may_think(fields: Json, talk: Conversation, target: Target) -> bool:
    """Thinking goes neither with a forced tool nor with tool calls that nobody thought about."""
    choice = fields.get("tool_choice")
    is_forced = isinstance(choice, dict) and choice.get("type") in {"any", "tool"}
    if is_forced or "thinking" not in target.capabilities:
        return False
    said = [turn for turn in talk.turns if turn.role == "assistant"]
    if not said or not any(isinstance(part, ToolCallPart) for part in said[-1].parts):
        return True
    first = said[-1].parts[0]
    return isinstance(first, ThinkingPart) and first.is_of_messages
