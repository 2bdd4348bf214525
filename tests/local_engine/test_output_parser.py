"""Reasoning, content and tool calls come apart the same however the text is cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from local_engine.text.output_parser import (
    Content,
    OutputParser,
    Part,
    Reasoning,
    ToolCall,
    ToolFormat,
    tool_format_of,
)


WEATHER = '{"name": "weather", "arguments": {"city": "Pune"}}'
CALL = ToolCall("weather", '{"city": "Pune"}')
TEXTS: list[tuple[ToolFormat, str, list[Part]]] = [
    (ToolFormat.NONE, "a <tool_call>{}</tool_call>", [Content("a <tool_call>{}</tool_call>")]),
    (ToolFormat.HERMES, f"<tool_call>\n{WEATHER}\n</tool_call>", [CALL]),
    (ToolFormat.HERMES, f"Look: <tool_call>{WEATHER}</tool_call>", [Content("Look: "), CALL]),
    (
        ToolFormat.HERMES,
        f"<think>hm\n</think>x<tool_call>{WEATHER}</tool_call><tool_call>{WEATHER}</tool_call>",
        [Reasoning("hm\n"), Content("x"), CALL, CALL],
    ),
    (ToolFormat.HERMES, "1 < 2 and <tool> no", [Content("1 < 2 and <tool> no")]),
    (ToolFormat.HERMES, f"<tool_call>{WEATHER}", [CALL]),
    (ToolFormat.HERMES, "<tool_call>{bad}</tool_call>", [Content("<tool_call>{bad}</tool_call>")]),
    (ToolFormat.HERMES, "<think>never closed", [Reasoning("never closed")]),
    (ToolFormat.LLAMA3, '{"name": "weather", "parameters": {"city": "Pune"}}', [CALL]),
    (ToolFormat.LLAMA3, f"<|python_tag|>{WEATHER}; {WEATHER}", [CALL, CALL]),
    (ToolFormat.LLAMA3, "plain { text }", [Content("plain { text }")]),
    (ToolFormat.LLAMA3, '{"no": "call"}', [Content('{"no": "call"}')]),
    (ToolFormat.MISTRAL, f"[TOOL_CALLS][{WEATHER}, {WEATHER}]", [CALL, CALL]),
    (ToolFormat.MISTRAL, 'Hm. [TOOL_CALLS]weather[ARGS]{"city": "Pune"}', [Content("Hm. "), CALL]),
    (ToolFormat.MISTRAL, "[TOO much]", [Content("[TOO much]")]),
    (ToolFormat.FORCED, WEATHER, [CALL]),
    (ToolFormat.FORCED, f"<think>hm</think>{WEATHER}", [Reasoning("hm"), CALL]),
    (ToolFormat.LLAMA3, f"<think>hm</think>\n\n{WEATHER}", [Reasoning("hm"), CALL]),
    (ToolFormat.LLAMA3, " \n", [Content(" \n")]),
]


def joined(parts: list[Part]) -> list[Part]:
    """Neighbours of one kind as one part."""
    found: list[Part] = []
    for part in parts:
        if found and isinstance(part, Content) and isinstance(found[-1], Content):
            found[-1] = Content(found[-1].text + part.text)
        elif found and isinstance(part, Reasoning) and isinstance(found[-1], Reasoning):
            found[-1] = Reasoning(found[-1].text + part.text)
        else:
            found.append(part)
    return found


def parse(tool_format: ToolFormat, pieces: list[str]) -> list[Part]:
    parser = OutputParser(tool_format, may_reason=tool_format is not ToolFormat.NONE)
    parts = [part for piece in pieces for part in parser.push(piece)]
    return joined(parts + parser.finish())


@pytest.mark.parametrize(("tool_format", "text", "expected"), TEXTS)
def test_each_format_is_read(tool_format: ToolFormat, text: str, expected: list[Part]) -> None:
    assert parse(tool_format, [text]) == expected


@pytest.mark.parametrize(("tool_format", "text", "expected"), TEXTS)
def test_every_cut_gives_the_same_parts(
    tool_format: ToolFormat, text: str, expected: list[Part]
) -> None:
    for at in range(len(text) + 1):
        assert parse(tool_format, [text[:at], text[at:]]) == expected
    assert parse(tool_format, list(text)) == expected


@given(
    st.sampled_from(list(ToolFormat)),
    st.lists(
        st.sampled_from(["<think>", "</think>", "<tool_call>", "</tool_call>", WEATHER, "a", "{"]),
        max_size=8,
    ),
    st.lists(st.integers(0, 200), max_size=5),
)
@example(ToolFormat.LLAMA3, ["<think>"], [1])
def test_any_text_is_cut_without_a_difference(
    tool_format: ToolFormat, words: list[str], cuts: list[int]
) -> None:
    text = "".join(words)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert parse(tool_format, pieces) == parse(tool_format, [text])


def test_reasoning_that_the_prompt_opened_is_reasoning() -> None:
    parser = OutputParser(ToolFormat.NONE, starts_reasoning=True)
    parts = [*parser.push("so</th"), *parser.push("ink>yes"), *parser.finish()]
    assert joined(parts) == [Reasoning("so"), Content("yes")]


def test_a_call_behind_spaces_is_one_wherever_it_is_cut() -> None:
    for at in range(4):
        parser = OutputParser(ToolFormat.LLAMA3)
        text = f"\n {WEATHER}"
        parts = [*parser.push(text[:at]), *parser.push(text[at:]), *parser.finish()]
        assert parts == [CALL]


def test_arguments_keep_what_is_not_ascii() -> None:
    call = {"name": "f", "arguments": {"city": "पुणे"}}
    (found,) = parse(ToolFormat.HERMES, [f"<tool_call>{json.dumps(call)}</tool_call>"])
    assert found == ToolCall("f", '{"city": "पुणे"}')


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages }}", ToolFormat.NONE),
        ("{% if tools %}<tool_call>{% endif %}", ToolFormat.HERMES),
        ("{% if tools %}[TOOL_CALLS]{% endif %}", ToolFormat.MISTRAL),
        ('{% if tools %}{"name": x, "parameters": y}{% endif %}', ToolFormat.LLAMA3),
        ("{% if tools %}unheard of{% endif %}", ToolFormat.NONE),
    ],
)
def test_the_template_says_which_format_a_model_writes(template: str, expected: ToolFormat) -> None:
    assert tool_format_of(template) is expected
