"""Real parts for the engine's tests: the shipped demo model, tiny random ones, a served process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from local_engine.model.manifest import open_model
from local_engine.text.tokenizer import ChatTokenizer, load_chat_tokenizer
from tests.local_engine.engine_process import EngineProcess
from tests.local_engine.models import DEMO_MODEL, tiny_spec, write_model_directory


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def demo_tokenizer() -> ChatTokenizer:
    with open_model(DEMO_MODEL) as files:
        return load_chat_tokenizer(files)


@pytest.fixture(scope="session")
def demo_raw_tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    """A directory with a random model of the smallest shape."""
    directory = tmp_path / "tiny"
    write_model_directory(directory, tiny_spec())
    return directory


TOOL_TEMPLATE = (
    "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}"
    "{% if mood is defined %}{{ mood }}{% endif %}"
)
ONE_AT_A_TIME = ("--max-running", "1", "--max-waiting", "1")


@pytest.fixture(scope="session")
def engine_process() -> Iterator[EngineProcess]:
    """The demo model behind a real socket, with room for one waiting request."""
    with EngineProcess.started("--model", str(DEMO_MODEL), *ONE_AT_A_TIME) as process:
        yield process


@pytest.fixture(scope="module")
def tiny_model_for_module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, for tests that only read."""
    directory = tmp_path_factory.mktemp("models") / "tiny"
    write_model_directory(directory, tiny_spec(context_window=512))
    (directory / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    return directory
