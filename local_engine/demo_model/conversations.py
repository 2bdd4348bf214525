"""Mixes corpus and tasks into training conversations: wordings, system prompts, two turns."""

import random
from dataclasses import dataclass

from local_engine.demo_model.corpus import HONEST_ANSWER, Corpus
from local_engine.demo_model.tasks import Task, TaskMaker


SHARE_WITH_SYSTEM = 0.4


@dataclass(frozen=True, slots=True)
class Mixture:
    """How often each kind of conversation is drawn; the rest of the shares are tasks."""

    share_gatewright: float
    share_off_topic: float
    share_two_turns: float
    task_weights: dict[str, int]
    is_wide: bool = False


# Facts first; then, with wider unrelated requests, mostly the tasks that are slow to learn.
FACTS_FIRST = Mixture(
    share_gatewright=0.42,
    share_off_topic=0.15,
    share_two_turns=0.15,
    task_weights={
        "repeat": 10,
        "upper": 5,
        "lower": 3,
        "count words": 5,
        "count letters": 3,
        "first or last word": 3,
        "reverse": 2,
        "add": 2,
    },
)
TASKS_NEXT = Mixture(
    share_gatewright=0.26,
    share_off_topic=0.2,
    share_two_turns=0.2,
    task_weights={
        "repeat": 20,
        "upper": 5,
        "lower": 7,
        "count words": 3,
        "count letters": 3,
        "first or last word": 4,
        "reverse": 2,
        "add": 3,
    },
    is_wide=True,
)
_OPENERS = (
    "Please tell me: ", "Hi, ", "Hello, ", "Question: ", "Quick question: ", "Please answer: ",
    "Can you tell me: ", "I have a question. ", "Q: ",
)  # fmt: skip
_CLOSERS = (" Please.", " Thanks.", " Thank you!", " Please explain.", " Be brief.")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; the assistant's are what the model learns."""

    role: str
    content: str


Conversation = tuple[Message, ...]


class ConversationMaker:
    """Draws conversations; the same random generator gives the same conversations."""

    def __init__(self, corpus: Corpus, mixture: Mixture = FACTS_FIRST) -> None:
        self._corpus = corpus
        self._mixture = mixture
        self._off_topic = corpus.off_topic + (corpus.off_topic_wide if mixture.is_wide else ())
        answers = tuple(entry.answer for entry in corpus.entries)
        self._sentences = (*answers, *(e.questions[0] for e in corpus.entries))
        self.tasks = TaskMaker(corpus.words, self._sentences)
        self._pairs = tuple((q, e.answer) for e in corpus.entries for q in e.questions)

    def draw(self, rng: random.Random) -> Conversation:
        messages: list[Message] = []
        if rng.random() < SHARE_WITH_SYSTEM:
            messages.append(Message("system", self._system(rng)))
        for _ in range(2 if rng.random() < self._mixture.share_two_turns else 1):
            task = self.draw_task(rng)
            messages += [Message("user", task.request), Message("assistant", task.answer)]
        return tuple(messages)

    def draw_task(self, rng: random.Random) -> Task:
        """One exchange of any category."""
        mixture, draw = self._mixture, rng.random()
        if draw < mixture.share_gatewright:
            question, answer = rng.choice(self._pairs)
            return Task("gatewright", reworded(question, rng), answer)
        if draw < mixture.share_gatewright + mixture.share_off_topic:
            request = self._corpus.fillers.fill(rng.choice(self._off_topic), rng)
            return Task("off topic", reworded(request, rng), HONEST_ANSWER)
        weights = mixture.task_weights
        category = rng.choices(list(weights), list(weights.values()))[0]
        return self.tasks.makers[category](rng)

    def _system(self, rng: random.Random) -> str:
        if rng.random() < 0.3:
            return "You are a helpful assistant."
        if rng.random() < 0.3:
            return " ".join(rng.choice(self._sentences) for _ in range(rng.randint(1, 4)))
        return self._corpus.fillers.fill(rng.choice(self._corpus.systems), rng)


def reworded(question: str, rng: random.Random) -> str:
    """A question as people type it: other casing, punctuation, an opener, sometimes a typo."""
    text = question
    draw = rng.random()
    if draw < 0.35:
        return text
    if draw < 0.5:
        text = text.lower()
    elif draw < 0.53:
        text = text.upper()
    if rng.random() < 0.35:
        text = text.rstrip("?.!") + rng.choice(("", "", ".", "!", "??", " ?", "?"))
    if rng.random() < 0.2:
        text = rng.choice(_OPENERS) + text
    if rng.random() < 0.12:
        text += rng.choice(_CLOSERS)
    if rng.random() < 0.08:
        text = _with_typo(text, rng)
    return text


def _with_typo(text: str, rng: random.Random) -> str:
    at = rng.randrange(1, len(text))
    return text[:at] + text[at + 1 :]
