"""The pods of the manifests, as processes of this machine: started by their own commands."""

import asyncio
import json
import os
import re
import secrets
import signal
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import openai
import pytest
from anyio import to_thread

from tests.free_ports import free_port
from tests.local_engine.models import DEMO_MODEL
from tests.manifests import FOLDER, Applied, Pod, applied


pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
WATCHED = """
import os
import sys
import threading

TOLD = int(os.environ["TEST_TOLD"])
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.truncate"}
BOTH = {"os.rename", "os.link", "os.symlink"}
BESIDE = threading.local()  # The folder that a name is looked up in; the event does not have it.

def looked_up_in(call):
    def told(*args, dir_fd=None, **named):
        BESIDE.folder = "" if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        try:
            return call(*args, dir_fd=dir_fd, **named)
        finally:
            BESIDE.folder = ""
    return told

os.open, os.mkdir = map(looked_up_in, (os.open, os.mkdir))

def hook(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & WRITES:
        paths = args[:1]
    elif event in CHANGES or event == "sqlite3.connect":
        paths = args[:1]
    elif event in BOTH:
        paths = args[:2]
    else:
        return
    for path in paths:
        if not isinstance(path, int):
            named = os.path.join(getattr(BESIDE, "folder", ""), os.fsdecode(path))
            os.write(TOLD, os.fsencode(os.path.abspath(named)) + b"\\n")

sys.addaudithook(hook)
from gateway.__main__ import main
main()
"""
"""The program, which says of each file that it would write to or change."""


class Started(NamedTuple):
    process: asyncio.subprocess.Process
    pod: "Staged"

    async def ends(self) -> bytes:
        """As a kubelet ends it, in the time that it would give it beside `preStop`."""
        hook = self.pod.pod.container.get("lifecycle", {}).get("preStop")
        before_s = int(hook["exec"]["command"][1]) if hook else 0
        grace_s = self.pod.pod.spec["terminationGracePeriodSeconds"] - before_s
        self.process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(self.process.communicate(), grace_s)
        return errors


class Staged:
    """One pod: its volumes are folders, and paths and ports of its own lead there."""

    def __init__(self, folder: Path, pod: Pod, name: str, cluster: "Cluster") -> None:
        self.pod, self.name = pod, name
        self._cluster = cluster
        self._root = folder / name
        self.rest = self._root / "rest"
        self.told = self._root / "told"
        self.rest.mkdir(parents=True)
        self.places = {each: self._root / each for each in pod.volumes}
        for place in self.places.values():
            place.mkdir()
        self.ports = {number: free_port() for number in pod.ports.values()}
        self._put_volumes()

    def _put_volumes(self) -> None:
        for name, volume in self.pod.volumes.items():
            if "configMap" in volume:
                (file,) = self._cluster.sent.configuration.values()
                text = self._cluster.configured(file.read_text(encoding="utf-8"))
                self.places[name].joinpath(file.name).write_text(self._here(text))
            for source in volume.get("projected", {}).get("sources", ()):
                asked = source["secret"]
                held = self._cluster.secrets[asked["name"]]
                items = asked.get("items") or [{"key": each, "path": each} for each in held]
                for item in items:
                    made = self.places[name] / item["path"]
                    made.write_text(held[item["key"]])
                    # So a kubelet leaves it to the group of the pod.
                    made.chmod(volume["projected"]["defaultMode"])

    def _mounts(self, container: dict[str, Any]) -> dict[str, Path]:
        return {each["mountPath"]: self.places[each["name"]] for each in container["volumeMounts"]}

    @property
    def written(self) -> set[Path]:
        """Where the staying container may write."""
        mounts = self.pod.container["volumeMounts"]
        return {self.places[each["name"]] for each in mounts if not each.get("readOnly")}

    def _here(self, text: str) -> str:
        mounts = {p: m for each in self.pod.containers for p, m in self._mounts(each).items()}
        # In one go, since what stands there instead may lie below another of these paths.
        known = "|".join(re.escape(each) for each in mounts)
        text = re.sub(rf"({known})(?![\w-])", lambda found: str(mounts[found[1]]), text)
        for number, here in self.ports.items():
            text = re.sub(rf"(port ?= ?){number}\b", rf"\g<1>{here}", text)
        return text

    def _environment(self, container: dict[str, Any]) -> dict[str, str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.rest),
            "TMPDIR": str(self.rest),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for each in container.get("env", ()):
            if "value" in each:
                environment[each["name"]] = self._here(each["value"])
            elif "fieldRef" in each["valueFrom"]:
                environment[each["name"]] = self.name
            else:
                asked = each["valueFrom"]["secretKeyRef"]
                environment[each["name"]] = self._cluster.secrets[asked["name"]][asked["key"]]
        if "/tmp" in self._mounts(container):  # noqa: S108
            environment["TMPDIR"] = environment["HOME"]
        return environment

    async def _run(
        self, container: dict[str, Any], *instead: str, errors: int = asyncio.subprocess.PIPE
    ) -> asyncio.subprocess.Process:
        program, *words = instead or (self._here(each) for each in container["command"])
        command = [program, *words]
        environment = self._environment(container)
        with self.told.open("ab") as told:
            if program == "gatewright":
                command = [sys.executable, "-c", WATCHED, *words]
                environment["TEST_TOLD"] = str(told.fileno())
            return await asyncio.create_subprocess_exec(
                *command,
                cwd=self.rest,
                env=environment,
                pass_fds=[told.fileno()],
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )

    async def prepared(self) -> None:
        for container in self.pod.spec.get("initContainers", ()):
            process = await self._run(container)
            _, errors = await process.communicate()
            assert process.returncode == 0, errors.decode()

    async def done(self, *instead: str) -> str:
        """What its command, or another one that is typed in it, printed; it has to succeed."""
        process = await self._run(self.pod.container, *instead)
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()

    @asynccontextmanager
    async def started(self) -> AsyncIterator[Started]:
        """Once its probes say that it has started and is ready; killed if nobody ended it."""
        process = await self._run(self.pod.container)
        try:
            async with aiohttp.ClientSession() as http:
                for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                    while not await self._answers(http, self.pod.container[name]["httpGet"]):
                        if process.returncode is not None:
                            output, errors = await process.communicate()
                            pytest.fail(f"{self.name}: {(output + errors).decode()}")
                        await asyncio.sleep(0.05)
            yield Started(process, self)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _answers(self, http: aiohttp.ClientSession, asked: dict[str, Any]) -> bool:
        port = self.ports[self.pod.ports[asked["port"]]]
        try:
            async with http.get(f"http://127.0.0.1:{port}{asked['path']}") as answer:
                return answer.ok
        except aiohttp.ClientError:
            return False

    def strays(self) -> set[str]:
        """What it would write outside of its volumes, where its root is read-only."""
        allowed = {*self.written, Path("/dev/null")}
        told = set(self.told.read_text().splitlines())
        found = {
            each
            for each in told
            if not any(Path(each).is_relative_to(place) for place in allowed)
            and not each.startswith(self._cluster.database_file)
        }
        return found | {str(each) for each in self.rest.iterdir()}


class Cluster(NamedTuple):
    folder: Path
    sent: Applied
    secrets: dict[str, dict[str, str]]
    database_url: str

    @property
    def database_file(self) -> str:
        """Of SQLite, which a pod would have on its volume."""
        kind, _, path = self.database_url.partition(":///")
        return path if kind.startswith("sqlite") else "no file at all"

    def configured(self, text: str) -> str:
        changed, count = re.subn(r'(?m)^url = ".*"$', f'url = "{self.database_url}"', text)
        assert count == 1
        # A machine that tests run on may have less room than a volume.
        return changed.replace("[audit]", "[audit]\nfree_bytes_min = 1")

    def staged(self, name: str, number: int | None = None) -> Staged:
        (pod,) = (each for each in self.sent.pods if each.name == name)
        return Staged(self.folder, pod, name if number is None else f"{name}-{number}", self)


def _secrets() -> dict[str, dict[str, str]]:
    """As the page says to make them."""
    return {
        "gatewright-keys": {
            "pepper.key": secrets.token_urlsafe(32) + "\n",
            "master.key": b64encode(secrets.token_bytes(32)).decode() + "\n",
            "admin.token": secrets.token_urlsafe(32) + "\n",
        },
        "gatewright-database": {
            "pgpass": f"postgres.database.svc.cluster.local:5432:*:*:{secrets.token_hex(8)}\n"
        },
        "gatewright-providers": {
            "anthropic.key": secrets.token_hex(20),
            "engine.key": secrets.token_hex(20),
        },
    }


@pytest.fixture
def cluster(tmp_path: Path, empty_database_url: str) -> Cluster:
    return Cluster(tmp_path, applied(FOLDER / "gateway"), _secrets(), empty_database_url)


async def _migrated(cluster: Cluster) -> None:
    migration = cluster._replace(sent=applied(FOLDER / "migration")).staged("gatewright-migration")
    await migration.prepared()
    said = await migration.done()
    assert "claude-opus-5-5: frontier, us, configured" in said
    assert migration.strays() == set()


@pytest.mark.either
async def test_the_pods_get_ready_serve_and_end_and_write_nowhere_but_on_their_volumes(
    cluster: Cluster,
) -> None:
    await _migrated(cluster)
    one_file = cluster.database_url.startswith("sqlite")
    workers = [cluster.staged("gatewright", number) for number in range(1 if one_file else 2)]
    admin = cluster.staged("gatewright-admin")
    for each in (*workers, admin):
        await each.prepared()
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(each.started()) for each in (*workers, admin)]
        place = ("--organisation", "acme", "--workspace", "research", "--project", "bot")
        key = await admin.done("gatewright", "keys", "issue", *place, "--name", "first")
        for worker in workers:
            port = worker.ports[worker.pod.ports["callers"]]
            assert await _known(port, key.split()[-1]) == ["claude-opus-5-5"]
        for one in running:
            errors = await one.ends()
            assert json.loads(errors.splitlines()[-1])["event"] == "process:stopped"

    for each in (*workers, admin):
        assert each.strays() == set()
    for worker in workers:
        (evidence,) = worker.written
        assert evidence.joinpath("audit", worker.name, "00000001.log").exists()


async def _known(port: int, key: str) -> list[str]:
    """The models, once this worker has heard of the key."""
    while True:
        try:
            return await to_thread.run_sync(_listed, port, key)
        except openai.AuthenticationError:
            await asyncio.sleep(0.05)


def _listed(port: int, key: str) -> list[str]:
    url = f"http://127.0.0.1:{port}/v1"
    with openai.OpenAI(base_url=url, api_key=key, max_retries=20) as client:
        return [each.id for each in client.models.list() if not each.id.startswith("auto")]


@pytest.mark.either
async def test_a_worker_does_not_start_before_the_schema_is_there(cluster: Cluster) -> None:
    worker = cluster.staged("gatewright", 0)
    await worker.prepared()
    process = await worker._run(worker.pod.container)
    _, errors = await process.communicate()

    assert process.returncode == 2
    assert b"has no schema" in errors


async def test_what_the_first_container_copies_nobody_else_can_read(cluster: Cluster) -> None:
    worker = cluster.staged("gatewright", 0)
    await worker.prepared()

    copied = {
        each.name: each.stat().st_mode & 0o777 for each in worker.places["own-secrets"].iterdir()
    }
    assert copied == dict.fromkeys(
        ("pepper.key", "master.key", "pgpass", "anthropic.key", "engine.key"), 0o600
    )


async def test_the_engine_s_pod_serves_the_model_that_the_target_names(tmp_path: Path) -> None:
    sent = applied(FOLDER / "engine")
    engine = Cluster(tmp_path, sent, _secrets(), "").staged("gatewright-engine")
    engine.places["model"].rmdir()
    engine.places["model"].symlink_to(DEMO_MODEL)
    async with engine.started() as running:
        port = engine.ports[engine.pod.ports["requests"]]
        key = engine._cluster.secrets["gatewright-providers"]["engine.key"]
        assert await to_thread.run_sync(_listed, port, key) == ["house-model"]
        await running.ends()
    assert list(engine.rest.iterdir()) == []
