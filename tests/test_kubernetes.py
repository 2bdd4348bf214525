"""The Kubernetes manifests: all they name exists, and no pod may do more than it has to."""

import ipaddress
import re
from typing import Any

import pytest
import yaml

from gateway.cli.listening import SHUTDOWN_S
from gateway.configuration.reading import load_settings
from tests.manifests import APPLIED, FOLDER, Applied, Pod, applied
from tests.test_docs import OPERATIONS, page


PAGE = f"{OPERATIONS}/kubernetes.md"
NOT_FOR_PROVIDERS = (
    "10.96.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "172.20.0.10",
    "192.168.1.1",
    "::1",
    "fd00:ec2::254",
    "fe80::1",
)


@pytest.fixture(params=APPLIED)
def sent(request: pytest.FixtureRequest) -> Applied:
    return applied(FOLDER / request.param)


def _told_secrets() -> dict[str, set[str]]:
    """The Secrets that the page tells people to make, with their keys."""
    found = re.findall(
        r"create secret generic (\S+)((?: +--from-(?:file|literal)=\S+)+)",
        page(PAGE).replace("\\\n", " "),
    )
    told: dict[str, set[str]] = {}
    for name, options in found:
        keys = re.findall(r"--from-\w+=(\S+)", options)
        told[name] = {each.partition("=")[0].rpartition("/")[2] for each in keys}
    return told


def test_every_file_is_part_of_what_is_applied() -> None:
    named = {FOLDER / name / "kustomization.yaml" for name in (*APPLIED, "foundation", "image")}
    for custom in sorted(named):
        parts = yaml.safe_load(custom.read_text(encoding="utf-8"))
        named |= {custom.parent / each for each in parts.get("resources", ())}
        for made in parts.get("configMapGenerator", ()):
            named |= {custom.parent / each for each in made["files"]}

    assert {each for each in FOLDER.rglob("*") if each.is_file()} <= named
    assert all(each.exists() for each in named)


def test_no_two_documents_have_one_name_and_none_says_its_namespace_itself(sent: Applied) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in sent.documents]
    assert len(names) == len(set(names)) > 8
    assert not any("namespace" in each["metadata"] for each in sent.documents)


def test_what_a_pod_mounts_and_reads_is_there(sent: Applied) -> None:
    claims = {each["metadata"]["name"] for each in sent.of("PersistentVolumeClaim")}
    claims.add("gatewright-model")
    assert "name: gatewright-model" in page(PAGE)
    told = _told_secrets()
    assert len(told) > 2
    for pod in sent.pods:
        mounted = {m["name"] for each in pod.containers for m in each["volumeMounts"]}
        assert mounted == set(pod.volumes), pod.name
        for volume in pod.volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in sent.configuration
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
        for name, keys in pod.secrets():
            assert set(keys) <= told[name], (pod.name, name)


def test_each_file_that_the_configuration_names_is_mounted_where_it_is_read(sent: Applied) -> None:
    told = _told_secrets()
    (configuration,) = sent.configuration.values()
    named = set(re.findall(r'file = "/run/gatewright/([^"]+)"', configuration.read_text()))
    lie = {
        key
        for pod in sent.pods
        for name, keys in pod.secrets()
        for key in (keys or told[name])
        if pod.kind != "Job"
    }

    assert named
    assert not [each for each in named if lie and each not in lie]


def test_every_selector_meets_pods_and_every_port_is_one_of_theirs(sent: Applied) -> None:
    for service in sent.of("Service"):
        (pod,) = sent.selected(service["spec"]["selector"])
        for port in service["spec"]["ports"]:
            assert port["port"] == pod.ports[port["targetPort"]]
    for one in [*sent.of("PodDisruptionBudget"), *(each.maker for each in sent.pods)]:
        if one["kind"] != "Job":
            assert len(sent.selected(one["spec"]["selector"]["matchLabels"])) == 1
    for each in sent.of("StatefulSet"):
        services = {one["metadata"]["name"]: one["spec"] for one in sent.of("Service")}
        assert services[each["spec"]["serviceName"]]["clusterIP"] == "None"
    for pod in sent.pods:
        for spread in pod.spec.get("topologySpreadConstraints", ()):
            assert sent.selected(spread["labelSelector"]["matchLabels"]) == [pod]


def test_who_asks_whom_is_named_by_labels_and_ports_that_there_are() -> None:
    sent = applied(FOLDER / "engine")
    for policy in sent.of("NetworkPolicy"):
        name, spec = policy["metadata"]["name"], policy["spec"]
        chosen = sent.selected(spec["podSelector"].get("matchLabels", {}))
        assert chosen, name
        for rule in spec.get("ingress", ()):
            assert {each["port"] for each in rule["ports"]} <= set.union(
                *(set(pod.ports) for pod in chosen)
            )
            assert rule["from"]
        for rule in spec.get("egress", ()):
            for peer in rule["to"]:
                if "podSelector" in peer and "namespaceSelector" not in peer:
                    (asked,) = sent.selected(peer["podSelector"]["matchLabels"])
                    assert {each["port"] for each in rule["ports"]} <= set(asked.ports)
            assert rule["to"]
            assert rule["ports"]


def test_without_a_policy_that_says_so_nothing_goes_in_or_out(sent: Applied) -> None:
    (deny,) = (p for p in sent.of("NetworkPolicy") if p["metadata"]["name"] == "deny-all")
    assert deny["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_what_asks_for_the_world_asks_by_https_and_for_no_address_of_the_house(
    sent: Applied,
) -> None:
    blocks: list[dict[str, Any]] = []
    for policy in sent.of("NetworkPolicy"):
        for rule in policy["spec"].get("egress", ()):
            found = [each["ipBlock"] for each in rule["to"] if "ipBlock" in each]
            assert not found or rule["ports"] == [{"protocol": "TCP", "port": 443}]
            blocks += found
    assert len(blocks) == 2
    for text in NOT_FOR_PROVIDERS:
        address = ipaddress.ip_address(text)
        for block in blocks:
            if address in ipaddress.ip_network(block["cidr"]):
                assert any(address in ipaddress.ip_network(each) for each in block["except"])


def test_no_pod_has_more_rights_than_the_strictest_standard_gives(sent: Applied) -> None:
    for pod in sent.pods:
        whole = pod.spec["securityContext"]
        assert whole["runAsNonRoot"]
        assert whole["runAsUser"] == whole["runAsGroup"] == whole["fsGroup"] == 10001
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec)
        for container in pod.containers:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
        for volume in pod.volumes.values():
            assert "hostPath" not in volume


def test_the_user_is_the_one_that_the_image_makes() -> None:
    uid = re.search(r"useradd --uid (\d+)", page("docs/deployment.md"))
    assert uid is not None
    for pod in applied(FOLDER / "engine").pods:
        assert pod.spec["securityContext"]["runAsUser"] == int(uid[1])


def test_every_image_is_pinned_in_one_place_by_a_digest_that_is_plainly_none(
    sent: Applied,
) -> None:
    for pod in sent.pods:
        for container in pod.containers:
            pin = sent.images[container["image"]]
            assert pin["newName"].startswith("registry.invalid/")
            assert pin["digest"] == "sha256:" + 64 * "0"
            assert "newTag" not in pin


def _pre_stop_s(pod: Pod) -> int:
    hook = pod.container.get("lifecycle", {}).get("preStop")
    if hook is None:
        return 0
    sleep, seconds = hook["exec"]["command"]
    assert sleep == "sleep"
    return int(seconds)


def test_whoever_is_told_to_end_has_the_time_that_it_takes(sent: Applied) -> None:
    told = re.search(r"Wait (\d+) seconds before you kill it", page("docs/deployment.md"))
    assert told is not None
    assert int(told[1]) > SHUTDOWN_S
    for pod in sent.pods:
        grace_s = pod.spec["terminationGracePeriodSeconds"]
        assert grace_s >= _pre_stop_s(pod) + int(told[1]), pod.name
        if sent.selected(pod.labels) and pod.name in {"gatewright", "gatewright-engine"}:
            # A Service leads callers there until all nodes have heard of the end.
            assert _pre_stop_s(pod) >= 5


def test_probes_ask_the_ports_and_listeners_of_the_configuration(sent: Applied) -> None:
    (configuration,) = sent.configuration.values()
    settings = load_settings(configuration, {})
    for pod in sent.pods:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe := pod.container.get(name):
                asked = probe["httpGet"]
                assert asked["port"] in pod.ports
                assert asked["path"] == (
                    "/health/ready" if name == "readinessProbe" else "/health/live"
                )
            else:
                assert pod.kind == "Job"
        if pod.name == "gatewright":
            plane = settings.data_plane
            assert pod.ports == {"callers": plane.port, "probes": plane.probe_port}
            assert plane.host == plane.probe_host == "0.0.0.0"  # noqa: S104
        if pod.name == "gatewright-admin":
            assert pod.ports == {"pages": settings.admin.port, "probes": settings.admin.probe_port}


def test_a_worker_s_name_is_its_pod_s_and_fits() -> None:
    (pod,) = (each for each in applied(FOLDER / "gateway").pods if each.kind == "StatefulSet")
    (name,) = (e for e in pod.container["env"] if e["name"] == "GATEWRIGHT_AUDIT__WORKER")
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    (configuration,) = applied(FOLDER / "gateway").configuration.values()
    for number in (0, 9_999):
        worker = f"{pod.name}-{number}"
        settings = load_settings(configuration, {"GATEWRIGHT_AUDIT__WORKER": worker})
        assert settings.audit.worker == worker
    assert pod.maker["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }


def test_the_engine_s_configuration_is_the_other_one_and_the_engine() -> None:
    plain = FOLDER.joinpath("foundation", "gatewright.toml").read_text(encoding="utf-8")
    whole = FOLDER.joinpath("engine", "gatewright.toml").read_text(encoding="utf-8")
    assert whole.startswith(plain)

    settings = load_settings(FOLDER / "engine" / "gatewright.toml", {})
    service = settings.providers["engine"].base_url
    (found,) = (
        each
        for each in applied(FOLDER / "engine").of("Service")
        if service.startswith(f"http://{each['metadata']['name']}.gatewright.svc.")
    )
    assert service.endswith(f":{found['spec']['ports'][0]['port']}")
