"""The engine as a process: ready line, bearer key, clean end, refusal of an altered model."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from local_engine.__main__ import main
from local_engine.inspect_model import main as inspect_model
from local_engine.model.errors import ModelRefused
from local_engine.model.manifest import MANIFEST_NAME
from local_engine.runner.model_runner import choose_device
from local_engine.serve import command_line
from local_engine.serve.compute.sharing import dtype_of
from local_engine.serve.options import ServeOptions, WorkerOptions
from tests.local_engine.engine_process import EngineProcess, spawn
from tests.local_engine.models import DEMO_MODEL


def answer_of(process: EngineProcess, key: str, model: str = "demo") -> str | None:
    with openai.OpenAI(base_url=f"{process.url}/v1", api_key=key, max_retries=0) as client:
        completion = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "What is PII?"}]
        )
    return completion.choices[0].message.content


def test_the_process_answers_with_its_key_and_ends_cleanly_on_sigterm() -> None:
    arguments = ("--model", str(DEMO_MODEL), "--served-name", "demo", "--api-key-env", "DOOR")
    with EngineProcess.started(*arguments, env={"DOOR": "open sesame"}) as process:
        assert process.ready["event"] == "engine.ready"
        assert process.ready["model"] == "demo"
        assert "PII is personally identifiable" in (answer_of(process, "open sesame") or "")
        with pytest.raises(openai.AuthenticationError) as refusal:
            answer_of(process, "wrong")
        assert refusal.value.code == "invalid_api_key"
        process.process.send_signal(signal.SIGTERM)
        output, errors = process.process.communicate(timeout=20)
    assert process.process.returncode == 0
    assert json.loads(output.splitlines()[-1])["event"] == "engine.stopped"
    assert errors == ""
    assert "PII" not in output


def _running(process: EngineProcess) -> str:
    lines = httpx.get(f"{process.url}/metrics").text.splitlines()
    return next(line for line in lines if line.startswith("gatewright_engine_num_requests_running"))


def test_who_still_waits_when_the_process_ends_is_told_so_and_holds_nothing_up() -> None:
    """Whole, streamed, and a chat of which nothing is read after its first piece."""
    body = {"model": "gatewright-demo", "prompt": "Hello", "max_tokens": 2000, "ignore_eos": True}
    chat = {
        "model": "gatewright-demo",
        "messages": [{"role": "user", "content": "Hello"}],
        "logit_bias": {"1": -100},
        "stream": True,
    }
    with ExitStack() as stack:
        process = stack.enter_context(EngineProcess.started("--model", str(DEMO_MODEL)))
        client = stack.enter_context(httpx.Client(base_url=process.url, timeout=60))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        connection = HTTPConnection("127.0.0.1", process.ready["port"], timeout=60)
        stack.enter_context(closing(connection))
        connection.request("POST", "/v1/chat/completions", body=json.dumps(chat))
        assert stack.enter_context(connection.getresponse()).readline().startswith(b"data: ")
        waiting = {
            stream: pool.submit(client.post, "/v1/completions", json={**body, "stream": stream})
            for stream in (False, True)
        }
        while " 3.0" not in _running(process):
            assert not any(each.done() for each in waiting.values())
        process.process.send_signal(signal.SIGTERM)
        _, errors = process.process.communicate(timeout=60)
        assert process.process.returncode == 0
        for stream, each in waiting.items():
            answer = each.result().text
            last = answer.split("\n\n")[-2].removeprefix("data: ") if stream else answer
            assert json.loads(last)["error"]["code"] == "stopping"
            assert each.result().status_code == (200 if stream else 503)
            assert "[DONE]" not in answer
    assert "Traceback" not in errors


def test_a_killed_worker_fails_its_requests_by_name_and_is_replaced() -> None:
    with EngineProcess.started("--model", str(DEMO_MODEL)) as process:
        with openai.OpenAI(base_url=f"{process.url}/v1", api_key="x", max_retries=0) as client:
            stream = client.chat.completions.create(
                model="gatewright-demo",
                messages=[{"role": "user", "content": "Hello"}],
                logit_bias={"1": -100},
                stream=True,
            )
            next(iter(stream))
            (worker,) = psutil.Process(process.process.pid).children()
            worker.kill()
            with pytest.raises(openai.APIError) as failure:
                list(stream)
        assert failure.value.code == "worker_gone"
        assert process.process.stdout is not None
        events = (json.loads(line)["event"] for line in process.process.stdout)
        assert [next(events), next(events)] == ["engine.worker_lost", "engine.ready"]
        assert "PII is personally identifiable" in (
            answer_of(process, "x", "gatewright-demo") or ""
        )
        counted = httpx.get(f"{process.url}/metrics").text
        assert 'gatewright_engine_requests_total{finish_reason="abort"} 1.0' in counted
        assert 'gatewright_engine_requests_total{finish_reason="stop"} 1.0' in counted
        # The one that was broken off had a first token, and no end to be measured to.
        assert "gatewright_engine_time_to_first_token_seconds_count 2.0" in counted
        assert "gatewright_engine_time_per_output_token_seconds_count 1.0" in counted


def test_a_worker_for_which_nothing_is_left_is_started_as_soon_as_there_is() -> None:
    """Where a machine is short of something a worker dies first; the next one is as short of it."""
    with EngineProcess.started("--model", str(DEMO_MODEL)) as process:
        engine = psutil.Process(process.process.pid)
        (worker,) = engine.children()
        permitted = engine.rlimit(psutil.RLIMIT_NOFILE)
        engine.rlimit(psutil.RLIMIT_NOFILE, (1, permitted[1]))
        worker.kill()
        assert process.process.stdout is not None
        said = map(json.loads, process.process.stdout)
        events = [(each["event"], each.get("reason", "")) for each in (next(said), next(said))]
        assert events == [
            ("engine.worker_lost", ""),
            ("engine.model_refused", "no worker process starts: Too many open files"),
        ]

        engine.rlimit(psutil.RLIMIT_NOFILE, permitted)
        assert "engine.ready" in (each["event"] for each in said)
        assert "PII is personally identifiable" in (
            answer_of(process, "x", "gatewright-demo") or ""
        )


def test_a_worker_that_hears_nothing_does_not_keep_the_process_alive() -> None:
    prompt = {"model": "gatewright-demo", "prompt": [300] * 1900, "max_tokens": 2}
    with EngineProcess.started("--model", str(DEMO_MODEL)) as process, ExitStack() as stack:
        (worker,) = psutil.Process(process.process.pid).children()
        worker.suspend()
        # More than a socket holds: the rest waits on our side for a reader.
        for _ in range(300):
            connection = HTTPConnection("127.0.0.1", process.ready["port"])
            stack.enter_context(closing(connection))
            connection.request("POST", "/v1/completions", body=json.dumps(prompt))
        # Connections are taken in turn: the last request has been read when this is answered.
        assert httpx.get(f"{process.url}/health/live").status_code == 200
        process.process.send_signal(signal.SIGTERM)
        try:
            assert process.process.wait(timeout=20) == 0
            # Nobody may have asked yet how it ended: its parent is gone.
            with suppress(psutil.NoSuchProcess):
                assert worker.status() == psutil.STATUS_ZOMBIE
        finally:
            with suppress(psutil.NoSuchProcess):
                worker.kill()


BESIDE_A_THREAD = """
import sys, threading, time
from local_engine.__main__ import main
threading.Thread(target=time.sleep, args=(600,)).start()
sys.exit(main(sys.argv[1:]))
"""


def test_a_thread_that_reads_on_does_not_keep_the_process_alive() -> None:
    arguments = ("serve", "--port", "0", "--device", "cpu", "--model", str(DEMO_MODEL))
    with subprocess.Popen(
        [sys.executable, "-c", BESIDE_A_THREAD, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline())["event"] == "engine.ready"
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
        events = [json.loads(line)["event"] for line in process.stdout]
    assert events == ["engine.stopped", "engine.stopped_by_force"]


def test_an_altered_model_is_refused_at_the_start(tmp_path: Path) -> None:
    shutil.copytree(DEMO_MODEL, tmp_path / "m")
    with (tmp_path / "m" / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    process = spawn("--model", str(tmp_path / "m"))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    line = json.loads(output)
    assert line["event"] == "engine.model_refused"
    assert "model.safetensors does not match its sha256" in line["reason"]
    assert main(["verify", "--model", str(tmp_path / "m")]) == 2


def test_a_tokenizer_that_cannot_be_read_ends_the_process(tiny_model: Path) -> None:
    (tiny_model / "tokenizer.json").write_text("{}")
    process = spawn("--model", str(tiny_model))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "engine.ready" not in output


def test_a_missing_key_variable_ends_the_start_instead_of_opening_the_door(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--model", str(DEMO_MODEL), "--api-key-env", "NO_SUCH_VARIABLE"])
    said = "the environment variable NO_SUCH_VARIABLE is not set\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, said)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--port", "99999"], "a whole number from 0 to 65535 is expected"),
        (["--threads", "0"], "a whole number from 1 to"),
        (["--max-running", "-3"], "a whole number from 0 to"),
        (["--tensor-parallel", "0"], "a whole number from 1 to"),
        (["--tenant-share", "nan"], "a part of one is expected"),
        (["--tenant-share", "7"], "a part of one is expected"),
        (["--max-connections", "1"], "a whole number from 2 to 1048576 is expected"),
        (["--max-held-body-bytes", "9"], "as much as --max-body-bytes at least"),
        (["--header-receive-s", "0"], "seconds are expected, above 0 and up to 86400"),
        (["--unread-s", "inf"], "seconds are expected, above 0 and up to 86400"),
        (["--device", "tpu"], "auto, cpu or cuda is expected"),
        (["--overlap", "maybe"], "invalid choice: 'maybe'"),
        (["--model-public-key", "zz"], "64 digits"),
        (["--tls-key-file", "k"], "--tls-certificate-file and --tls-key-file go together"),
        (["--tls-certificate-file", "c"], "--tls-certificate-file and --tls-key-file go together"),
        (["--tls-client-ca-file", "a"], "--tls-client-ca-file needs --tls-certificate-file"),
        *(
            (["--host", host], f"--host {host} lets other machines ask and stop it")
            for host in ("0.0.0", "::", "10.0.0.1", "engine.example", "")
        ),
    ],
)
def test_an_option_that_means_nothing_is_refused_in_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(["serve", "--model", str(DEMO_MODEL), "--port", "0", *arguments]))
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert reason in said.err.splitlines()[-1]


def test_every_option_says_what_it_is_for() -> None:
    (commands,) = (each for each in command_line._parser()._actions if each.dest == "command")
    assert isinstance(commands.choices, dict)
    for name, command in commands.choices.items():
        silent = [each.option_strings for each in command._actions if not each.help]
        assert not silent, name


@pytest.mark.parametrize(
    "arguments",
    [
        ["--host", "10.0.0.1", "--without-key"],
        ["--host", "10.0.0.1", "--api-key-env", "DOOR"],
        *(["--host", host] for host in ("127.0.0.1", "127.8.0.1", "::1", "localhost")),
    ],
)
def test_a_listener_is_open_where_somebody_says_so_or_nobody_else_reaches_it(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[ServeOptions] = []

    def serve(options: ServeOptions) -> int:
        begun.append(options)
        return 0

    monkeypatch.setenv("DOOR", "open sesame")
    monkeypatch.setattr(command_line, "serve", serve)

    assert main(["serve", "--model", str(DEMO_MODEL), *arguments]) == 0
    assert [options.host for options in begun] == [arguments[1]]


def test_a_certificate_that_cannot_be_used_ends_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--tls-certificate-file", str(tmp_path / "c"), "--tls-key-file", str(tmp_path / "k")]

    assert main(["serve", "--model", str(DEMO_MODEL), "--port", "0", *files]) == 2
    said = f"{tmp_path / 'c'}: cannot be read (No such file or directory)\n"
    assert capsys.readouterr() == ("", said)


def test_an_installation_without_torch_says_what_the_engine_needs() -> None:
    """As after the two lines of docs/deployment.md without constraints/torch.txt."""
    words = "import sys; sys.modules['torch'] = None; sys.argv = ['-m', 'serve', '--model', 'm']"
    run = "; import runpy; runpy.run_module('local_engine', run_name='__main__')"
    ended = subprocess.run(
        [sys.executable, "-c", words + run], capture_output=True, text=True, check=False
    )

    assert ended.stderr == "the engine needs torch, which is not installed here\n"
    assert ended.returncode == 2


def test_a_place_where_nothing_can_listen_has_a_status_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status = main(["serve", "--model", str(DEMO_MODEL), "--port", port])
    said = f"cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert (status, capsys.readouterr().err) == (3, said)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["/no/such/model"], "the model directory /no/such/model does not exist"),
        ([__file__], f"the model directory {__file__} is no folder"),
        (["m" * 300], f"the model directory {'m' * 300} cannot be read: File name too long"),
        (
            [str(DEMO_MODEL), "--model-public-key", "zz"],
            "a public key is 32 bytes in hexadecimal: 64 digits",
        ),
    ],
)
def test_a_model_that_cannot_be_checked_is_refused_in_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect_model(arguments) == 2
    assert capsys.readouterr() == ("", f"{reason}\n")


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("model.safetensors", b"\x08" + b"\0" * 7 + b"{}      12", "and the files hold 0"),
        ("model.safetensors", b"\xff" * 8, "its header is too long"),
        ("tokenizer.json", b"{}", "tokenizer.json cannot be read"),
        ("tokenizer.json", None, "tokenizer.json is missing"),
        (
            "tokenizer_config.json",
            b"{}",
            "there is neither chat_template.jinja nor one in tokenizer_config",
        ),
    ],
)
def test_a_model_that_would_not_be_served_is_not_found_good(
    file: str, text: bytes | None, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(DEMO_MODEL, tmp_path / "model")
    model.joinpath(MANIFEST_NAME).unlink()
    assert inspect_model([str(model)]) == 0
    model.joinpath(file).unlink()
    if text is not None:
        model.joinpath(file).write_bytes(text)
    capsys.readouterr()

    assert inspect_model([str(model)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert reason in said.err
    assert said.err.count("\n") == 1


def test_what_this_machine_or_torch_lacks_is_refused_by_name() -> None:
    options = WorkerOptions(model=str(DEMO_MODEL), device="cpu", dtype="float7")
    with pytest.raises(ModelRefused, match="--dtype float7 is none of auto, float32"):
        dtype_of(options)
    with pytest.raises(ModelRefused, match="no such GPU here: cuda:99"):
        choose_device("cuda:99")


def test_a_signal_to_the_whole_group_lets_the_worker_end_what_it_began() -> None:
    with EngineProcess.started("--model", str(DEMO_MODEL)) as process:
        (worker,) = psutil.Process(process.process.pid).children()
        worker.send_signal(signal.SIGTERM)
        assert answer_of(process, "x", "gatewright-demo")
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(timeout=20) == 0
        assert process.process.stdout is not None
        events = [json.loads(line)["event"] for line in process.process.stdout]
    assert events == ["engine.stopped"]


def embedding_of(process: EngineProcess, text: str) -> list[float]:
    with openai.OpenAI(base_url=f"{process.url}/v1", api_key="x", max_retries=0) as client:
        found = client.embeddings.create(model="gatewright-demo", input=text)
    return found.data[0].embedding


def test_two_ranks_serve_as_one_and_are_replaced_together(engine_process: EngineProcess) -> None:
    name = "gatewright-demo"
    answer, embedding = (
        answer_of(engine_process, "x", name),
        embedding_of(engine_process, "a budget"),
    )
    shared = ("--model", str(DEMO_MODEL), "--tensor-parallel", "2", "--host-kv-memory-mb", "1")
    with EngineProcess.started(*shared) as process:
        assert process.ready["device"] == "2 x cpu"
        assert answer_of(process, "x", name) == answer
        # Its weights are bfloat16: sums in another order differ in the third digit.
        pairs = zip(embedding_of(process, "a budget"), embedding, strict=True)
        assert sum(one * other for one, other in pairs) > 0.999
        (worker,) = psutil.Process(process.process.pid).children()
        (rank,) = worker.children()
        rank.kill()
        assert process.process.stdout is not None
        events = (json.loads(line)["event"] for line in process.process.stdout)
        lost = [next(events) for _ in range(3)]
        assert lost == ["engine.rank_lost", "engine.worker_lost", "engine.ready"]
        assert answer_of(process, "x", name) == answer
        (worker,) = psutil.Process(process.process.pid).children()
        (rank,) = worker.children()
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(timeout=20) == 0
        assert not psutil.pid_exists(rank.pid)


def test_ranks_that_a_model_cannot_be_shared_by_are_refused() -> None:
    process = spawn("--model", str(DEMO_MODEL), "--tensor-parallel", "3")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (2, "")
    (line,) = map(json.loads, output.splitlines())
    assert line["reason"] == "8 attention heads cannot be shared by 3 ranks"
