"""Measures the trained model: how many requests get exactly the right greedy answer.

Greedy decoding writes the right answer exactly when, at every position of that answer, the most
likely token is the right one; so one forward pass per batch measures what decoding would give.
"""

import random

import torch
from tokenizers import Tokenizer
from torch.nn.utils.rnn import pad_sequence

from local_engine.demo_model.chat_format import encode_conversation
from local_engine.demo_model.conversations import (
    Conversation,
    ConversationMaker,
    Message,
    reworded,
)
from local_engine.demo_model.corpus import HONEST_ANSWER, Corpus
from local_engine.model.decoder import Decoder


DRAWS_PER_TASK = 200
_BATCH = 64


def exact_match_rates(
    decoder: Decoder,
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    seed: int,
    draws_per_task: int = DRAWS_PER_TASK,
) -> dict[str, float]:
    """Share of exactly right answers per category, on draws that training did not make."""
    return {
        name: sum(_is_exact(decoder, tokenizer, conversations)) / len(conversations)
        for name, conversations in measured_conversations(corpus, seed, draws_per_task).items()
    }


def measured_conversations(
    corpus: Corpus, seed: int, draws_per_task: int
) -> dict[str, list[Conversation]]:
    """Every written question in four settings, held-out unrelated requests, fresh task draws."""
    rng = random.Random(seed)
    pairs = [(q, entry.answer) for entry in corpus.entries for q in entry.questions]
    helpful = Message("system", "You are a helpful assistant.")
    maker = ConversationMaker(corpus)

    def second_turn(question: str, answer: str) -> Conversation:
        earlier = maker.draw_task(rng)
        return (*exchange(earlier.request, earlier.answer), *exchange(question, answer))

    sets: dict[str, list[Conversation]] = {
        "corpus questions": [exchange(q, a) for q, a in pairs],
        "corpus questions, system prompt": [(helpful, *exchange(q, a)) for q, a in pairs],
        "corpus questions, other wording": [exchange(reworded(q, rng), a) for q, a in pairs],
        "corpus questions, second turn": [second_turn(q, a) for q, a in pairs],
        "unrelated requests, held out": [
            exchange(line, HONEST_ANSWER) for line in corpus.off_topic_held_out
        ],
    }
    for name, make in maker.tasks.makers.items():
        tasks = [make(rng) for _ in range(draws_per_task)]
        sets[name] = [exchange(task.request, task.answer) for task in tasks]
    return sets


def exchange(request: str, answer: str) -> Conversation:
    """One question and its answer."""
    return (Message("user", request), Message("assistant", answer))


@torch.inference_mode()
def _is_exact(
    decoder: Decoder, tokenizer: Tokenizer, conversations: list[Conversation]
) -> list[bool]:
    verdicts: list[bool] = []
    for start in range(0, len(conversations), _BATCH):
        encoded = [
            _last_answer_only(*encode_conversation(tokenizer, conversation))
            for conversation in conversations[start : start + _BATCH]
        ]
        ids = pad_sequence([torch.tensor(ids) for ids, _ in encoded], batch_first=True)
        learned = pad_sequence([torch.tensor(flags) for _, flags in encoded], batch_first=True)
        guesses = decoder.logits(decoder(ids[:, :-1])).argmax(dim=-1)
        right = (guesses == ids[:, 1:]) | ~learned[:, 1:]
        verdicts += right.all(dim=1).tolist()
    return verdicts


def _last_answer_only(ids: list[int], learned: list[bool]) -> tuple[list[int], list[bool]]:
    """Unmark the answers of earlier turns: they are history here, not output."""
    kept = list(learned)
    at = len(kept) - 1
    while kept[at]:
        at -= 1
    kept[:at] = [False] * at
    return ids, kept
