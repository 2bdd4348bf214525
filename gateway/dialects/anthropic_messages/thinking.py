"""Thinking settings for Anthropic's models, and which earlier thinking is their own."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.conversation import FOREIGN_MARKS, Conversation, ThinkingPart, ToolCallPart
from gateway.dialects.anthropic_messages.tools import forces
from gateway.dialects.bodies import body
from gateway.dialects.fitting.parameters import LEAST_EFFORT, cannot_rest, takes
from gateway.dialects.loss import Losses
from gateway.types import Target


BUDGET_MIN = 1024
"""The vendor's minimum."""

_BUDGETS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}
_EFFORTS = {"minimal": "low"}

LOST = "messages.thinking"
"""The name under which it is reported that a history goes on without thinking."""

_MARKS = tuple(mark.encode() for mark in FOREIGN_MARKS)
_TURNS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_BLOCKS = msgspec.json.Decoder(list[msgspec.Raw])

Json = dict[str, object]


class _Block(Struct):
    type: str = ""
    signature: object = None
    data: object = None

    @property
    def is_foreign(self) -> bool:
        """Whether it is thinking that this vendor has not signed, and would refuse."""
        if self.type == "thinking":
            return not self.signature
        is_redacted = self.type == "redacted_thinking"
        return is_redacted and isinstance(self.data, str) and self.data.startswith(FOREIGN_MARKS)


_BLOCK = msgspec.json.Decoder(_Block)


def may_be_foreign(raw: bytes) -> bool:
    """Whether a request may hold another vendor's thinking; cheap, for every request."""
    if any(mark in raw for mark in _MARKS):
        return True
    return b'"thinking":"' in raw or b'"thinking": "' in raw


def without_foreign(messages: bytes) -> bytes | None:
    """A history without other vendors' thinking, otherwise byte for byte; None if it has none.

    Such thinking came to the caller in this dialect while another vendor answered (rules 30 and
    32).
    """
    is_changed = False
    kept: list[dict[str, msgspec.Raw]] = []
    for turn in _TURNS.decode(messages):
        content = bytes(turn["content"])
        if content.startswith(b"["):
            blocks = _BLOCKS.decode(content)
            own = [each for each in blocks if not _BLOCK.decode(each).is_foreign]
            if len(own) < len(blocks):
                is_changed = True
                turn["content"] = msgspec.Raw(msgspec.json.encode(own))
                if not own:
                    # A turn that only thought has nothing left to say.
                    continue
        kept.append(turn)
    return msgspec.json.encode(kept) if is_changed else None


def needs_earlier(tree: Mapping[str, Any]) -> bool:
    """Whether this vendor refuses to think on because a call was made without its own thinking."""
    asked, last = tree.get("thinking"), tree["messages"][-1]["content"]
    if not isinstance(asked, dict) or asked.get("type") != "enabled":
        return False
    return isinstance(last, list) and any(block.get("type") == "tool_result" for block in last)


def fit(
    fields: dict[str, msgspec.Raw | bytes], tree: Mapping[str, Any], target: Target
) -> tuple[str, ...]:
    """Replace thinking settings that a model refuses by an effort; returns what is lost.

    These are not to think, or how many tokens it may think. An effort that is named beside them
    stays.
    """
    asked = tree.get("thinking")
    if not isinstance(asked, dict):
        return ()
    budget = asked.get("budget_tokens")
    if asked.get("type") == "disabled" and cannot_rest(target, "none"):
        effort, lost = LEAST_EFFORT, "thinking"
        del fields["thinking"]
    elif isinstance(budget, int) and not takes(target, "thinking_budget"):
        effort, lost = _EFFORTS.get(word := _effort_of(budget), word), "thinking.budget_tokens"
        adaptive = {"type": b'"adaptive"', "budget_tokens": None}
        fields["thinking"] = body.patch(bytes(fields["thinking"]), adaptive)
    else:
        return ()
    config = tree.get("output_config") or {}
    if "effort" in target.capabilities and not config.get("effort"):
        fields["output_config"] = body.patch(
            bytes(fields["output_config"]) if config else b"{}",
            {"effort": msgspec.json.encode(effort)},
        )
    return (lost,)


def shorten(
    fields: dict[str, msgspec.Raw | bytes], tree: Mapping[str, Any], limit_tokens: int
) -> tuple[str, ...]:
    """Fit a caller's thinking budget to a limit lower than the caller's; returns what is lost.

    The vendor refuses a budget that is not below the limit. If it was not below the caller's own
    either, the request has features that allow that, and the budget stays.
    """
    asked = tree.get("thinking")
    budget = asked.get("budget_tokens") if isinstance(asked, dict) else None
    own = tree.get("max_tokens")
    if not isinstance(budget, int) or not isinstance(own, int) or not limit_tokens <= budget < own:
        return ()
    if limit_tokens // 2 < BUDGET_MIN:
        del fields["thinking"]
        return ("thinking",)
    room = msgspec.json.encode(limit_tokens // 2)
    fields["thinking"] = body.patch(bytes(fields["thinking"]), {"budget_tokens": room})
    return ()


def add_reasoning(fields: Json, talk: Conversation, target: Target, losses: Losses) -> None:
    """Add `output_config.effort` or `thinking` to a request's fields, or report what is lost."""
    _add_effort(fields, talk, target, losses)
    if talk.tells_thoughts and "effort" in target.capabilities and "thinking" not in fields:
        # Models that know effort think as they see fit, and keep it to themselves unless asked.
        if _may_think(fields, target):
            fields["thinking"] = {"type": "adaptive", "display": "summarized"}
        else:
            losses.add("reasoning.summary")


def _add_effort(fields: Json, talk: Conversation, target: Target, losses: Losses) -> None:
    asked = talk.reasoning
    if asked is None:
        return
    if asked.disabled and cannot_rest(target, "none"):
        _set_effort(fields, target, LEAST_EFFORT)
        losses.add("reasoning_effort")
        return
    if asked.disabled:
        if "thinking" in target.capabilities:
            fields["thinking"] = {"type": "disabled"}
        return
    effort = asked.effort or _effort_of(asked.budget_tokens)
    if _set_effort(fields, target, _EFFORTS.get(effort, effort)):
        return
    limit = fields["max_tokens"]
    assert isinstance(limit, int)
    # Half of the limit at most: what is thought counts as output, and the answer needs room.
    budget = min(asked.budget_tokens or _BUDGETS.get(effort, 0), limit // 2)
    if budget < BUDGET_MIN or not _may_think(fields, target) or _called_unthinking(talk):
        losses.add("reasoning_effort")
        return
    fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
    for name in ("temperature", "top_p", "top_k"):
        if fields.pop(name, None) is not None:
            losses.add(name)


def _set_effort(fields: Json, target: Target, effort: str) -> bool:
    """Set the effort; whether the model has such a setting."""
    if "effort" not in target.capabilities:
        return False
    config = fields.setdefault("output_config", {})
    assert isinstance(config, dict)
    config["effort"] = effort
    return True


def _effort_of(budget_tokens: int) -> str:
    return next((word for word, tokens in _BUDGETS.items() if budget_tokens <= tokens), "high")


def _may_think(fields: Json, target: Target) -> bool:
    """Whether the model can think, and no tool call is forced, which excludes thinking."""
    return "thinking" in target.capabilities and not forces(fields.get("tool_choice"))


def _called_unthinking(talk: Conversation) -> bool:
    """Whether the last calls were made without thinking, after which no budget is allowed."""
    said = [turn for turn in talk.turns if turn.role == "assistant"]
    if not said or not any(isinstance(part, ToolCallPart) for part in said[-1].parts):
        return False
    first = said[-1].parts[0]
    return not (isinstance(first, ThinkingPart) and first.is_of_messages)
