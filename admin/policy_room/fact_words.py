"""One sentence for the card about each fact that a condition may name."""

from collections.abc import Mapping
from typing import Final


FACT_WORDS: Final[Mapping[str, str]] = {
    "budget_left_microusd": "The least that is left on any limited account of the key, in "
    "millionths of a dollar. None where nothing is limited.",
    "complexity": "How likely the request needs a strong model, from 0 to 1.",
    "complexity_tier": "The smallest tier that is probably enough.",
    "data_class": "How sensitive the most sensitive thing in the request is. The highest one "
    "if something could not be read.",
    "dialect": "The API format of the caller, such as openai_chat or anthropic_messages.",
    "findings": "How many of a label were found in the request. Which says the label; one that "
    "is not there counts 0.",
    "has_documents": "Whether documents, such as PDF files, are in the request.",
    "has_images": "Whether images are in the request.",
    "has_tools": "Whether the request offers tools.",
    "headers": "A request header that the settings let policies see. Which says its name, with _ "
    "for -; one that is not there is an empty text.",
    "hour_utc": "The hour of the day in UTC, from 0 to 23.",
    "injection": "How much the worst result of a tool, or document, reads like instructions to a "
    "model, from 0 to 1.",
    "injection_suspected": "Whether that is higher than in almost any harmless text.",
    "input_tokens_estimate": "About how many tokens the input has.",
    "inspection_complete": "Whether all of the request could be read.",
    "key_id": "The virtual key's id, never its secret.",
    "labels": "What the key was issued with; includes asks for one of them.",
    "longest_tokens_estimate": "Of several texts that are read one by one about how many tokens "
    "the longest has; else those of all of the input.",
    "max_output_tokens": "How many tokens the caller allows for the answer. None where the "
    "request does not say.",
    "model_requested": "The model as the caller wrote it, such as auto.",
    "organisation": "The organisation of the key.",
    "project": "The project of the key.",
    "sealed": "In which dialect the conversation's reasoning is sealed; empty where none is.",
    "service_tier": "priority, standard or batch: what the request asks for, as far as its key "
    "may.",
    "stream": "Whether the caller wants the answer piece by piece.",
    "warm_target": "The target that last read the beginning of this conversation; known where a "
    "preference has stay_warm.",
    "warm_tokens": "How many tokens of it that target has read.",
    "weekday": "The day of the week in UTC; 0 is Monday.",
    "workspace": "The team, or workspace, of the key.",
}
