"""The contract of translation as a table: each rule in one line, and the tests that hold it.

`python -m tests.conformance.contract` prints the table that stands in docs/translation.md.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from gateway.money.catalogue import PARAMETERS, shipped_catalogue


ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"^(?:async )?def test_rules?_(\d+(?:_and_\d+)*)_", re.MULTILINE)

RULES: Mapping[int, str] = {
    1: "System and developer texts become separate system blocks",
    2: "A later system text stays in place where the model can, else it is hoisted, reported",
    3: "System blocks become instructions, and instructions the system",
    4: "Turns of one role in a row stay as they are; blank texts are left out, reported",
    5: "A `function` message answers the call before it, else it becomes text, reported; the older "
    "`functions` are tools of which one is called at a time, and calls of them come back as "
    "`function_call`",
    6: "Images cross inline, as a type that the target takes, and by address; `detail` crosses "
    "between OpenAI's dialects and is reported elsewhere",
    7: "Images and texts have each dialect's own words in a response's input",
    8: "Inline documents cross, and by address where there is a word for that; results of one's "
    "own search cross as texts; audio, video and files held elsewhere are refused",
    9: "Images in tool results follow in a user's message, marked",
    10: "Tools keep their schema, and their strictness where the target enforces such a schema",
    11: "Names of tools that the target does not allow are renamed, and restored in answers",
    12: "Tool choice and parallel calls cross, `allowed_tools` between OpenAI's own dialects; "
    "elsewhere no other tool is offered; who cannot be made to call one is asked last, reported",
    13: "Results in a row and the text after them are one user's turn",
    14: "A call without a result, or a result without a call, is refused",
    15: "A history with calls gets definitions of its tools, and no new calls",
    16: "Broken or empty arguments cost no answer",
    17: "Failed results are marked, and unmarked on the way back",
    18: "Ids of calls are kept byte for byte, or where Messages refuses one the same other one "
    "for call and result; a missing one, or one that another call has, is made once",
    19: "Tools that only another vendor runs are refused, or left out, reported, where the target "
    "is set to that, and so are its vendor's without a price; a paused turn is no finished answer",
    20: "Thinking, text and calls keep their order",
    21: "Who names no limit gets a moderate one, not the model's",
    22: "Sampling is capped or dropped as the model needs, in its own dialect too, reported",
    23: "Stop sequences cross or are refused; which one matched is kept where there is a word",
    24: "Answers, probabilities and audio that a model does not give are refused, else reported",
    25: "An end user is a keyed digest to another dialect, and no name",
    26: "Between vendors only the tier `auto` crosses, between OpenAI's dialects any with a known "
    "price; the one that served is echoed and billed; so is a place of inference",
    27: "A prefill goes only to models that know it; where it is none but a turn, the answer is "
    "another one, reported",
    28: "Effort and budgets cross per model, in its own dialect too, and leave room for the answer",
    29: "Signed thinking survives a chat client unchanged, and is never shown as text",
    30: "Sealed reasoning items, and seals of calls, survive clients of other dialects",
    31: "Another vendor's signatures are stripped, tool pairs stay",
    32: "Reasoning of compatible servers becomes a thinking block before the text, and goes back "
    "to engines and to who takes it",
    33: "A JSON schema crosses, by its older name (`output_format`), too, and is enforced where "
    "the target enforces such a one; an older model is asked by a tool, others are not asked",
    34: "`json_object` becomes an instruction; what nobody enforces is reported and checked",
    35: "Stop reasons become finish reasons",
    36: "Finish reasons become stop reasons",
    37: "An incomplete response says why, a failed one is an error",
    38: "Input counts cached tokens once, and keeps the kinds of cache writes apart",
    39: "Reasoning is part of the output and never added to it",
    40: "Usage in streams is cumulative, always asked for, and hidden from who did not ask",
    41: "A message opens with an estimate and closes with the truth",
    42: "What an upstream does not count, or not in numbers, we estimate, flagged, never zero",
    43: "A stream of chunks becomes a message event by event",
    44: "Interleaved calls become whole blocks",
    45: "A message's events become chunks",
    46: "Every response event is one of the official types, numbered",
    47: "A broken stream ends with one error, no reason to stop and no end; a chat body is cut",
    48: "Events are the same however the bytes are cut",
    49: "Until content comes an error can fall back; after that never",
    50: "Errors keep their meaning in each vendor's words",
    51: "The caller's protocol version and harmless features go on",
    52: "Cache markers cross, at most four; the prefix stays the same from turn to turn",
    53: "Tokens are counted by a target that counts, else estimated and flagged; for free",
    54: "Responses are kept for their project only; upstreams hold nothing",
    55: "Unknown fields are kept within a dialect and reported across",
    56: "Threads, containers and stores that only an upstream holds are refused as clients expect",
    57: "U+2028 and its kin are text",
    58: "`retry-after` and the code for a full context keep their names",
    59: "What official clients insist on is there",
    60: "What peers fail at: pauses, full windows, refusals, broken lines",
    61: "Our credentials, an upstream's words and a caller's key go nowhere",
    62: "What is legal for the caller stays legal upstream",
    63: "Plain calls are cancelled upstream too",
    64: "Bare text for a chat model that was named is one user's turn, reported",
    65: "Namespaces and custom tools become functions, and calls of them come back as what they "
    "were; between OpenAI's own dialects custom tools stay what they are",
    66: "Built-in tools of responses that the caller runs become functions of what their calls "
    "say, and calls of them come back as items of their own kinds",
    67: "Tools of messages that the caller runs and Claude knows by their types become functions "
    "that are told what the type says, and calls of them come back by their names",
    68: "What both of OpenAI's dialects have a word for crosses between them as it is; what asks "
    "nothing of another vendor is not missed there",
    69: "Who wants to be told what was thought is told, where a model keeps that to itself",
}


def files_by_rule() -> dict[int, list[str]]:
    """Which test files have a test named after each rule."""
    found: dict[int, set[str]] = {}
    for file in sorted(ROOT.joinpath("tests").rglob("test_*.py")):
        for numbers in _NAMED.findall(file.read_text(encoding="utf-8")):
            for number in numbers.split("_and_"):
                found.setdefault(int(number), set()).add(file.stem)
    return {number: sorted(files) for number, files in found.items()}


def table() -> str:
    """The table of docs/translation.md."""
    tests = files_by_rule()
    lines = ["| rule | what holds | tests in |", "|---|---|---|"]
    for number, sentence in RULES.items():
        files = ", ".join(f"`{name}`" for name in tests.get(number, ()))
        lines.append(f"| {number} | {sentence} | {files} |")
    return "\n".join(lines)


def parameter_table() -> str:
    """Which model takes which parameter, of docs/translation.md."""
    lines = [f"| model | {' | '.join(f'`{name}`' for name in PARAMETERS)} |"]
    lines.append("|---" * (len(PARAMETERS) + 1) + "|")
    for name, entry in shipped_catalogue().models.items():
        if entry.parameters:
            stances = " | ".join(_SHORT[entry.parameters[each]] for each in PARAMETERS)
            lines.append(f"| `{name}` | {stances} |")
    return "\n".join(lines)


_SHORT: Mapping[str, str] = {
    "yes": "yes",
    "no": "no",
    "unknown": "?",
    "without_reasoning": "resting",
    "without_temperature": "alone",
}


if __name__ == "__main__":
    print(table())  # noqa: T201
    print(parameter_table())  # noqa: T201
