"""The manifests of Kubernetes, and a kustomization of them: dictionaries, printed as YAML."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from serving.deploy.configs import (
    CONFIG_PATH,
    CONNECTION_AGE_SECONDS,
    GRPC_PORT,
    METRICS_PATH,
    REST_PORT,
    SSL_FILE,
    SSL_PATH,
    alive_path,
    ready_path,
    server_flags,
)
from serving.deploy.settings import DeploySettings
from serving.deploy.sizing import Sizing

# Who the server runs as, in the image and in a pod: nobody that a machine knows.
USER_ID = 10001
# From the moment that a pod is no longer offered to clients until it is told to stop: every connection has ended by
# then, with a tenth more than its age. The server does not drain, and as process 1 ignores SIGTERM.
DRAIN_SECONDS = CONNECTION_AGE_SECONDS + 10
_TARGET_CPU_PERCENT = 70
_CONFIG_NAME_DIGITS = 10
# Where Prometheus is: the namespace from which metrics may be read.
MONITORING_NAMESPACE = "monitoring"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class App:
    """What the manifests are made of.

    Attributes:
        name: of every object, a DNS label.
        model_name: the name that clients ask for.
        image: with its tag.
        settings: what was chosen.
        sizing: what was derived.
        config: the files of CONFIG_PATH, by name.
    """

    name: str
    model_name: str
    image: str
    settings: DeploySettings
    sizing: Sizing
    config: Mapping[str, str]

    @property
    def selector(self) -> dict[str, str]:
        """The labels that tell its pods from others."""
        return {"app.kubernetes.io/name": "tf-serving", "app.kubernetes.io/instance": self.name}

    @property
    def client_label(self) -> str:
        """The label, with the value "true", of pods that may ask."""
        return f"{self.name}-client"

    @property
    def ssl_secret(self) -> str:
        """The Secret that holds SSL_FILE."""
        return f"{self.name}-ssl"

    @property
    def config_name(self) -> str:
        """The ConfigMap's: a hash of its content, so that a change of it is a change of the Deployment."""
        content = "".join(f"{name}\0{text}\0" for name, text in sorted(self.config.items()))
        return f"{self.name}-config-{hashlib.sha256(content.encode()).hexdigest()[:_CONFIG_NAME_DIGITS]}"


def manifests(app: App) -> dict[str, str]:
    """YAML by file name; `kustomization.yaml` lists the others."""
    objects = {
        "configmap.yaml": _object(app, "v1", "ConfigMap", app.config_name)
        | {"immutable": True, "data": dict(sorted(app.config.items()))},
        "deployment.yaml": _deployment(app),
        "service.yaml": _service(app),
        "hpa.yaml": _autoscaler(app),
        "pdb.yaml": _disruption_budget(app),
        "networkpolicy.yaml": _network_policy(app),
    }
    if app.settings.namespace:
        namespace: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": app.settings.namespace}}
        # Any pod of the namespace that would run as root, or escalate, is refused.
        namespace["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
        objects = {"namespace.yaml": namespace, **objects}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(objects),
    }
    return {name: to_yaml(content) for name, content in {**objects, "kustomization.yaml": kustomization}.items()}


def _object(app: App, version: str, kind: str, name: str) -> Manifest:
    metadata: Manifest = {"name": name}
    if app.settings.namespace:
        metadata["namespace"] = app.settings.namespace
    metadata["labels"] = {**app.selector, "app.kubernetes.io/managed-by": "bert-tfx"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _deployment(app: App) -> Manifest:
    """Without `replicas`: that is the autoscaler's, and each apply would set it back."""
    return _object(app, "apps/v1", "Deployment", app.name) | {
        "spec": {
            "selector": {"matchLabels": app.selector},
            # A new pod answers before an old one goes; if it never does, the old ones stay.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "minReadySeconds": 5,
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10,
            "template": {
                "metadata": {
                    "labels": app.selector,
                    "annotations": {
                        "prometheus.io/scrape": "true",
                        "prometheus.io/port": str(REST_PORT),
                        "prometheus.io/path": METRICS_PATH,
                    },
                },
                "spec": _pod(app),
            },
        }
    }


def _pod(app: App) -> Manifest:
    volumes: list[Manifest] = [
        {"name": "config", "configMap": {"name": app.config_name}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    if app.settings.ssl:
        secret = {"secretName": app.ssl_secret, "items": [{"key": SSL_FILE, "path": SSL_FILE}], "defaultMode": 0o440}
        volumes.append({"name": "ssl", "secret": secret})
    spread = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": app.selector}}
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": DRAIN_SECONDS + 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {"topologyKey": key, **spread} for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        "containers": [_container(app)],
        "volumes": volumes,
    }


def _container(app: App) -> Manifest:
    ready = {"httpGet": {"path": ready_path(app.model_name), "port": "rest"}}
    mounts: list[Manifest] = [
        {"name": "config", "mountPath": CONFIG_PATH, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    if app.settings.ssl:
        mounts.append({"name": "ssl", "mountPath": SSL_PATH, "readOnly": True})
    # Limits equal requests: memory is not taken back, and threads beyond the cores would be throttled.
    resources = {"cpu": str(app.settings.cpus), "memory": f"{app.sizing.memory_mib}Mi"}
    return {
        "name": "tf-serving",
        "image": app.image,
        "imagePullPolicy": "IfNotPresent",
        "args": server_flags(app.sizing, app.settings.ssl),
        "ports": [{"name": "grpc", "containerPort": GRPC_PORT}, {"name": "rest", "containerPort": REST_PORT}],
        "resources": {"requests": resources, "limits": dict(resources)},
        # The ports open once the newest version is loaded and warm; the stable one may need longer.
        "startupProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": 2},
        # A server that is busy answers this late; only one that hangs for a minute is killed.
        "livenessProbe": {
            "httpGet": {"path": alive_path(app.model_name), "port": "rest"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(DRAIN_SECONDS)]}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _service(app: App) -> Manifest:
    grpc: Manifest = {"name": "grpc", "port": GRPC_PORT, "targetPort": "grpc"}
    if not app.settings.ssl:
        grpc["appProtocol"] = "kubernetes.io/h2c"
    # TLS is of gRPC alone: with it, the plain REST port is not offered.
    rest = [] if app.settings.ssl else [{"name": "rest", "port": REST_PORT, "targetPort": "rest"}]
    spec = {"type": "ClusterIP", "selector": app.selector, "ports": [grpc, *rest]}
    return _object(app, "v1", "Service", app.name) | {"spec": spec}


def _autoscaler(app: App) -> Manifest:
    target = {"type": "Utilization", "averageUtilization": _TARGET_CPU_PERCENT}
    return _object(app, "autoscaling/v2", "HorizontalPodAutoscaler", app.name) | {
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": app.name},
            "minReplicas": app.settings.min_replicas,
            "maxReplicas": app.settings.max_replicas,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            # Loading a model is work as well: it must not look like traffic that has to be followed down and up.
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
        }
    }


def _disruption_budget(app: App) -> Manifest:
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": app.selector},
    }
    return _object(app, "policy/v1", "PodDisruptionBudget", app.name) | {"spec": spec}


def _network_policy(app: App) -> Manifest:
    """Clients of the same namespace reach what is offered, Prometheus the metrics; the server reaches nobody.

    A node reaches its own pods always, and so do the kubelet's probes.
    """
    offered = [GRPC_PORT] if app.settings.ssl else [GRPC_PORT, REST_PORT]
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": MONITORING_NAMESPACE}}
    spec = {
        "podSelector": {"matchLabels": app.selector},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [{"podSelector": {"matchLabels": {app.client_label: "true"}}}],
                "ports": [{"protocol": "TCP", "port": port} for port in offered],
            },
            {
                "from": [{"namespaceSelector": monitoring}],
                "ports": [{"protocol": "TCP", "port": REST_PORT}],
            },
        ],
        "egress": [],
    }
    return _object(app, "networking.k8s.io/v1", "NetworkPolicy", app.name) | {"spec": spec}


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are; what occurs twice is written twice, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def to_yaml(content: Manifest) -> str:
    """One document, its keys in the order given."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=120)
