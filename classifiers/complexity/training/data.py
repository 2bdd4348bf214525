"""Labelled prompts for training: the permissively licensed sets, and the domain of each task."""

import gzip
import hashlib
from pathlib import Path

import msgspec


_ROUTELLM = ("mixtral-8x7b-instruct-v0.1", "gpt-4-1106-preview")
PAIRS = {
    "routellm_mmlu": _ROUTELLM,
    "routellm_gsm8k": _ROUTELLM,
    "ulab9": ("mistral-7b-instruct-v0.3", "llama-3.1-nemotron-51b-instruct"),
}
"""Data set → (weak, strong) model. Only these sets have a licence to ship weights from."""

REQUESTS = "requests"
"""The set drawn from templates of this project: its gains were not measured."""
_PAIRS = PAIRS | {REQUESTS: ("weak", "strong")}
ACCEPTABLE = 0.5

TASKS = {
    "word_problems": "gsm8k agentverse-mgsm elementary_mathematics",
    "mathematics": "abstract_algebra college_mathematics high_school_mathematics "
    "high_school_statistics math",
    "code": "mbpp human_eval",
    "science": "astronomy college_physics college_chemistry conceptual_physics "
    "electrical_engineering high_school_physics high_school_chemistry gpqa machine_learning "
    "college_computer_science high_school_computer_science computer_security",
    "life": "anatomy clinical_knowledge college_biology college_medicine high_school_biology "
    "human_aging human_sexuality medical_genetics nutrition professional_medicine virology",
    "law": "international_law jurisprudence professional_law",
    "business": "business_ethics econometrics high_school_macroeconomics "
    "high_school_microeconomics management marketing professional_accounting public_relations",
    "humanities": "high_school_european_history high_school_us_history "
    "high_school_world_history philosophy prehistory world_religions moral_disputes "
    "logical_fallacies",
    "moral": "moral_scenarios",
    "logic": "formal_logic agentverse-logicgrid",
    "society": "high_school_geography high_school_government_and_politics "
    "high_school_psychology professional_psychology security_studies sociology "
    "us_foreign_policy",
    "everyday": "commonsense_qa openbook_qa arc_challenge commongen",
    "facts": "natural_qa trivia_qa miscellaneous global_facts",
    "proving": "proving",
    "engineering": "engineering",
    "judging": "judging",
    "making": "making",
    "handling": "handling",
}
DOMAINS = tuple(TASKS)
DOMAIN_OF_TASK = {task: domain for domain, tasks in TASKS.items() for task in tasks.split()}


class Row(msgspec.Struct, frozen=True):
    """A prompt with the quality of each model on it. `domain` is the task: a label, no input."""

    id: str
    dataset: str
    domain: str
    prompt: str
    scores: dict[str, float]
    split: str

    @property
    def weak(self) -> float:
        return self.scores[_PAIRS[self.dataset][0]]

    @property
    def strong(self) -> float:
        return self.scores[_PAIRS[self.dataset][1]]

    @property
    def task(self) -> str:
        return f"{self.dataset}:{self.domain}"


def read(directory: Path) -> tuple[list[Row], dict[str, str]]:
    """All rows of the permissive sets, and the sha256 of each packed file."""
    rows: list[Row] = []
    digests: dict[str, str] = {}
    for name in PAIRS:
        packed = (directory / f"{name}.jsonl.gz").read_bytes()
        digests[name] = hashlib.sha256(packed).hexdigest()
        rows += [
            msgspec.json.decode(line, type=Row) for line in gzip.decompress(packed).splitlines()
        ]
    return rows, digests


class Answered(msgspec.Struct, frozen=True):
    """The cheap models' answers to one prompt."""

    id: str
    answers: dict[str, str]


def read_answers(directory: Path) -> tuple[dict[str, str], str]:
    """The weak model's answer to each prompt of a permissive set, and the packed file's sha256."""
    packed = (directory / "answers_cheap.json.gz").read_bytes()
    lines = [
        msgspec.json.decode(line, type=Answered) for line in gzip.decompress(packed).splitlines()
    ]
    answers = {
        line.id: line.answers[PAIRS[name][0]]
        for line in lines
        if (name := line.id.partition(":")[0]) in PAIRS and PAIRS[name][0] in line.answers
    }
    return answers, hashlib.sha256(packed).hexdigest()
