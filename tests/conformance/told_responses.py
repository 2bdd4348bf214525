"""Any response an upstream could give, told whole and told as a stream, for hypothesis to draw."""

import json
from itertools import chain

from hypothesis import strategies as st

from tests.conformance.told_answers import (
    COUNTS,
    NAMES,
    OBJECTS,
    TEXTS,
    Json,
    Told,
    event,
    in_pieces,
    merged,
    spelled,
)


Step = tuple[str, Json]
"""An event without its number: its kind, and what it says."""

KINDS = ("reasoning", "message", "message", "function_call", "function_call", "search", "custom")
CITED = {"type": "url_citation", "url": "https://a.example", "title": "A"}
RANKS = {"reasoning": 0, "message": 1, "function_call": 2}


def _added(item: Json) -> Step:
    return "response.output_item.added", {"item": item}


def _done(item: Json) -> Step:
    return "response.output_item.done", {"item": item}


def _pieces(kind: str, where: Json, texts: list[str]) -> list[Step]:
    return [(kind, where | {"delta": text}) for text in texts]


@st.composite
def reasoning(draw: st.DrawFn, index: int) -> tuple[Json, list[Step]]:
    """Vendors tell a summary of it, compatible servers what was thought."""
    item: Json = {"type": "reasoning", "id": f"rs_{index}", "summary": []}
    sealed = draw(st.none() | st.just("c2VhbA=="))
    inside = {"item_id": item["id"]}
    steps = [_added(item)]
    summaries = draw(st.lists(TEXTS, max_size=3))
    for number, text in enumerate(summaries):
        where = inside | {"summary_index": number}
        part = {"type": "summary_text", "text": ""}
        steps.append(("response.reasoning_summary_part.added", where | {"part": part}))
        steps += _pieces("response.reasoning_summary_text.delta", where, draw(in_pieces(text)))
        steps.append(("response.reasoning_summary_text.done", where | {"text": text}))
        done = where | {"part": part | {"text": text}}
        steps.append(("response.reasoning_summary_part.done", done))
    whole = item | {"summary": [{"type": "summary_text", "text": text} for text in summaries]}
    if not summaries and draw(st.booleans()):
        text = draw(TEXTS)
        whole["content"] = [{"type": "reasoning_text", "text": text}]
        where = inside | {"content_index": 0}
        steps += _pieces("response.reasoning_text.delta", where, draw(in_pieces(text)))
        steps.append(("response.reasoning_text.done", where | {"text": text}))
    if sealed is not None:
        whole["encrypted_content"] = sealed
    return whole, [*steps, _done(whole)]


@st.composite
def message(draw: st.DrawFn, index: int, is_last: bool) -> tuple[Json, list[Step]]:
    """A refusal comes after all else that is said: so do the words of it in a whole answer."""
    item: Json = {"type": "message", "id": f"msg_{index}", "role": "assistant"}
    item |= {"status": "in_progress", "content": []}
    steps = [_added(item)]
    parts = []
    count = draw(st.integers(1, 3))
    for number in range(count):
        text = draw(TEXTS)
        where = {"item_id": item["id"], "content_index": number}
        if is_last and number == count - 1 and draw(st.booleans()):
            part: Json = {"type": "refusal", "refusal": text}
            kind, said = "response.refusal", {"refusal": text}
            more: Json = {}
            empty: Json = {"type": "refusal", "refusal": ""}
        else:
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            kind, said, more = "response.output_text", {"text": text}, {"logprobs": []}
            empty = part | {"text": ""}
        steps.append(("response.content_part.added", where | {"part": empty}))
        steps += _pieces(f"{kind}.delta", where | more, draw(in_pieces(text)))
        if part["type"] == "output_text" and draw(st.integers(0, 2)) == 0:
            cited = CITED | {"start_index": 0, "end_index": 1}
            part["annotations"] = [cited]
            told = where | {"annotation_index": 0, "annotation": cited}
            steps.append(("response.output_text.annotation.added", told))
        steps.append((f"{kind}.done", where | said | more))
        steps.append(("response.content_part.done", where | {"part": part}))
        parts.append(part)
    whole = item | {"status": "completed", "content": parts}
    return whole, [*steps, _done(whole)]


@st.composite
def function_call(draw: st.DrawFn, index: int) -> tuple[Json, list[Step]]:
    """Some servers tell the arguments piece by piece, some only with the whole item."""
    text = draw(OBJECTS.flatmap(spelled) | st.just(""))
    item: Json = {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{index}"}
    item |= {"name": draw(NAMES), "arguments": "", "status": "in_progress"}
    whole = item | {"arguments": text, "status": "completed"}
    where = {"item_id": item["id"]}
    steps = [_added(item)]
    if draw(st.booleans()):
        steps += _pieces("response.function_call_arguments.delta", where, draw(in_pieces(text)))
        said = where | {"arguments": text, "name": item["name"]}
        steps.append(("response.function_call_arguments.done", said))
    return whole, [*steps, _done(whole)]


@st.composite
def foreign(draw: st.DrawFn, index: int, kind: str) -> tuple[Json, list[Step]]:
    """What only callers of responses have a word for."""
    if kind == "custom":
        text = draw(TEXTS)
        item: Json = {"type": "custom_tool_call", "id": f"ctc_{index}", "call_id": f"call_{index}"}
        item |= {"name": "other", "input": ""}
        said = [
            ("response.custom_tool_call_input.delta", {"item_id": item["id"], "delta": piece})
            for piece in draw(in_pieces(text))
        ]
        done = ("response.custom_tool_call_input.done", {"item_id": item["id"], "input": text})
        whole = item | {"input": text}
        return whole, [_added(item), *said, done, _done(whole)]
    item = {"type": "web_search_call", "id": f"ws_{index}", "status": "in_progress"}
    whole = item | {"status": "completed", "action": {"type": "search", "query": draw(TEXTS)}}
    states = ("in_progress", "searching", "completed")
    told = [(f"response.web_search_call.{state}", {"item_id": item["id"]}) for state in states]
    return whole, [_added(item), *told, _done(whole)]


@st.composite
def _items(draw: st.DrawFn, index: int, kind: str, is_last: bool) -> tuple[Json, list[Step]]:
    made = {"reasoning": reasoning, "function_call": function_call}
    of_kind = made[kind](index) if kind in made else foreign(index, kind)
    item, steps = draw(message(index, is_last) if kind == "message" else of_kind)
    return item, [(kind, {"output_index": index} | fields) for kind, fields in steps]


@st.composite
def usages(draw: st.DrawFn) -> Json:
    read, written, said = draw(COUNTS), draw(COUNTS), 1 + draw(COUNTS)
    return {
        "input_tokens": 10 + read + written,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": said,
        "output_tokens_details": {"reasoning_tokens": draw(st.integers(0, said))},
        "total_tokens": 10 + read + written + said,
    }


@st.composite
def response_answers(draw: st.DrawFn) -> Told:
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=5))
    is_natural = draw(st.booleans())
    if is_natural:
        kinds.sort(key=lambda kind: RANKS.get(kind, 1))
    items = [
        draw(_items(index, kind, "message" not in kinds[index + 1 :]))
        for index, kind in enumerate(kinds)
    ]
    # Calls may be told beside all else, for every event says which item it belongs to.
    calls = [steps for item, steps in items if item["type"] == "function_call"]
    others = [steps for item, steps in items if item["type"] != "function_call"]
    apart = merged([list(chain(*others)), *calls], len(calls))
    line = list(chain(*(steps for _, steps in items))) if is_natural else draw(apart)
    head: Json = {"id": "resp_7x", "object": "response", "created_at": 5.0, "model": "up"}
    head |= {"error": None, "incomplete_details": None, "service_tier": "default"}
    head |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    begun = head | {"status": "in_progress", "output": [], "usage": None}
    reason = draw(st.sampled_from([None, None, "max_output_tokens", "content_filter"]))
    status = "completed" if reason is None else "incomplete"
    whole: Json = head | {"status": status, "output": [item for item, _ in items]}
    whole["usage"] = draw(st.none() | usages())
    if reason is not None:
        whole["incomplete_details"] = {"reason": reason}
    steps: list[Step] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
        *line,
        (f"response.{status}", {"response": whole}),
    ]
    events = [
        event(kind, **fields, sequence_number=number) for number, (kind, fields) in enumerate(steps)
    ]
    return Told("openai_responses", json.dumps(whole).encode(), events, is_natural)
