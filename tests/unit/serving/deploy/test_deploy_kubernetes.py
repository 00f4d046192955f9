"""The manifests are valid against Kubernetes' schemas and consistent with each other."""

import re

import kubernetes_validate
import pytest

# The oldest release whose schema has all used fields, and the newest.
KUBERNETES = ("1.27", kubernetes_validate.latest_version())


@pytest.mark.parametrize("version", KUBERNETES)
def test_each_manifest_is_valid(make, settings, version):
    kinds = make(settings, canary=8).kinds
    assert len(kinds) == 7
    for kind, manifest in kinds.items():
        if kind != "Kustomization":
            kubernetes_validate.validate(manifest, version, strict=True)
    kinds["Deployment"]["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(kinds["Deployment"], version, strict=True)


def test_the_kustomization_has_every_manifest(make, full):
    result = make(full)
    files = {name.removeprefix("kubernetes/") for name in result.files if name.startswith("kubernetes/")}
    assert set(result.kinds["Kustomization"]["resources"]) == files - {"kustomization.yaml"}


def test_references_between_manifests_match(make, settings):
    result = make(settings, name="My.Bert_2")
    kinds, pod = result.kinds, result.pod
    labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        kinds["Deployment"]["spec"]["selector"]["matchLabels"],
        kinds["Service"]["spec"]["selector"],
        kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        *(spread["labelSelector"]["matchLabels"] for spread in pod["topologySpreadConstraints"]),
    ]
    assert all(selector and selector.items() <= labels.items() for selector in selectors)
    names = {manifest["metadata"]["name"] for kind, manifest in kinds.items() if kind != "Kustomization"}
    assert all(re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in names), names
    name = kinds["Deployment"]["metadata"]["name"]
    assert name == "my-bert-2" == kinds["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"]
    assert "replicas" not in kinds["Deployment"]["spec"], "an apply would undo the autoscaler"
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(volumes) == {mount["name"] for mount in container["volumeMounts"]}
    assert volumes["config"]["configMap"]["name"] == kinds["ConfigMap"]["metadata"]["name"]
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    for flag, file in result.flags.items():
        if flag.endswith("_file"):
            place, _, file_name = file.rpartition("/")
            held = kinds["ConfigMap"]["data"] if mounted[place] == "config" else {"ssl.config"}
            assert file_name in held, flag
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": int(result.flags["port"]), "rest": int(result.flags["rest_api_port"])}
    offered = {port["targetPort"] for port in kinds["Service"]["spec"]["ports"]}
    assert offered == ({"grpc"} if settings.ssl else {"grpc", "rest"})
    started = container["startupProbe"]["httpGet"]
    assert started["port"] == "rest" and started["path"].startswith("/v1/models/My.Bert_2")


def test_probes_do_not_depend_on_rest_threads(make, settings):
    """Its threads also serve traffic; whether the stable version is loaded is checked only at startup."""
    (container,) = make(settings).pod["containers"]
    for probe in ("readinessProbe", "livenessProbe"):
        assert "httpGet" not in container[probe]
        assert container[probe]["tcpSocket"] == {"port": "grpc"}
    assert container["startupProbe"]["httpGet"]["path"].endswith("/labels/stable/metadata")
    alive = container["livenessProbe"]
    assert alive["periodSeconds"] * alive["failureThreshold"] >= 300


def test_a_pod_has_minimal_privileges(make):
    pod = make().pod
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is security["privileged"] is False
    assert container["resources"]["limits"] == container["resources"]["requests"]


def test_connections_end_before_a_pod_is_stopped(make):
    """gRPC varies the age by a tenth; the grace period starts with the wait."""
    result = make()
    age = re.search(r"max_connection_age_ms=(\d+)", result.flags["grpc_channel_arguments"])[1]
    pod = result.pod
    wait = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert 1.1 * int(age) / 1000 < wait < pod["terminationGracePeriodSeconds"]


def test_with_tls_plain_http_is_not_exposed(make, full):
    clients, prometheus = make(full).kinds["NetworkPolicy"]["spec"]["ingress"]
    assert [port["port"] for port in clients["ports"]] == [8500]
    assert [port["port"] for port in prometheus["ports"]] == [8501] and "namespaceSelector" in prometheus["from"][0]
