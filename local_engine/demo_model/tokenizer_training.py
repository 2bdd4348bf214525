"""Trains the demo model's own byte-level BPE tokenizer on the written corpus."""

import random

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

from local_engine.demo_model.chat_format import SPECIAL_TOKENS
from local_engine.demo_model.conversations import ConversationMaker
from local_engine.demo_model.corpus import Corpus


VOCAB_SIZE = 1536
NUM_TASK_SAMPLES = 4000
# Digits stand alone, so that numbers are spelled the same way wherever they occur.
_PIECES = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+"


def train_tokenizer(corpus: Corpus, seed: int) -> Tokenizer:
    """A tokenizer of `VOCAB_SIZE` entries that can spell any text, byte by byte if it must."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence(
        [
            Split(Regex(_PIECES), behavior="isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(corpus, random.Random(seed)), trainer)
    return tokenizer


def _texts(corpus: Corpus, rng: random.Random) -> list[str]:
    texts: list[str] = []
    for entry in corpus.entries:
        texts += [*entry.questions, *[entry.answer] * 4]
        texts += [question.lower() for question in entry.questions]
    texts += [corpus.fillers.fill(line, rng) for line in corpus.off_topic for _ in range(2)]
    maker = ConversationMaker(corpus)
    for _ in range(NUM_TASK_SAMPLES):
        task = maker.draw_task(rng)
        texts.append(task.request)
    return texts
