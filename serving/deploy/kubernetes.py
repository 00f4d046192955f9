"""Kubernetes manifests and their kustomization: dictionaries, printed as YAML."""

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
    ready_path,
    server_flags,
)
from serving.deploy.settings import DeploySettings
from serving.deploy.sizing import Sizing

# User of the server in the image and in a pod, unknown to any machine.
USER_ID = 10001
# Time from a pod's removal from the Service until it is stopped: by then every connection has reached its maximum age,
# plus a tenth. The server does not drain, and ignores SIGTERM as process 1.
DRAIN_SECONDS = CONNECTION_AGE_SECONDS + 10
_TARGET_CPU_PERCENT = 70
_CONFIG_NAME_DIGITS = 10
# Namespace from which Prometheus may read metrics.
MONITORING_NAMESPACE = "monitoring"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class App:
    """Data for the manifests.

    Attributes:
        name: name of every object, a DNS label.
        model_name: name in requests.
        image: name of the image, with its tag.
        config: files in CONFIG_PATH, by name.
    """

    name: str
    model_name: str
    image: str
    settings: DeploySettings
    sizing: Sizing
    config: Mapping[str, str]

    @property
    def selector(self) -> dict[str, str]:
        """Labels that select its pods."""
        return {"app.kubernetes.io/name": "tf-serving", "app.kubernetes.io/instance": self.name}

    @property
    def client_label(self) -> str:
        """Label of pods that may send requests; its value is "true"."""
        return f"{self.name}-client"

    @property
    def ssl_secret(self) -> str:
        """Name of the Secret that holds SSL_FILE."""
        return f"{self.name}-ssl"

    @property
    def config_name(self) -> str:
        """Name of the ConfigMap, with a hash of its content: a change of it changes the Deployment."""
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
        # The namespace refuses pods that run as root or could escalate privileges.
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
    """Deployment without `replicas`: the autoscaler sets it, and every apply would reset it."""
    return _object(app, "apps/v1", "Deployment", app.name) | {
        "spec": {
            "selector": {"matchLabels": app.selector},
            # A new pod must be ready before an old one is stopped; if it never is, the old ones stay.
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
    # Limits equal requests: memory is not returned, and threads beyond the cores would be throttled.
    resources = {"cpu": str(app.settings.cpus), "memory": f"{app.sizing.memory_mib}Mi"}
    return {
        "name": "tf-serving",
        "image": app.image,
        "imagePullPolicy": "IfNotPresent",
        "args": server_flags(app.sizing, app.settings.ssl),
        "ports": [{"name": "grpc", "containerPort": GRPC_PORT}, {"name": "rest", "containerPort": REST_PORT}],
        "resources": {"requests": resources, "limits": dict(resources)},
        # The ports open after the newest version is loaded and warm; the stable one may take longer.
        "startupProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": 60},
        # REST's threads also serve traffic: HTTP probes would fail under overload, and take out or restart one healthy
        # pod after the other. After its start a pod always serves the same, so it is enough that the port is open.
        "readinessProbe": {
            "tcpSocket": {"port": "grpc"},
            "periodSeconds": 5,
            "timeoutSeconds": 2,
            "failureThreshold": 2,
        },
        # A connection fails while the queue of new ones is full, too: hence five minutes.
        "livenessProbe": {
            "tcpSocket": {"port": "grpc"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 30,
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
    # TLS applies to gRPC only: with it, the plain REST port is not exposed.
    rest_ports = [] if app.settings.ssl else [{"name": "rest", "port": REST_PORT, "targetPort": "rest"}]
    spec = {"type": "ClusterIP", "selector": app.selector, "ports": [grpc, *rest_ports]}
    return _object(app, "v1", "Service", app.name) | {"spec": spec}


def _autoscaler(app: App) -> Manifest:
    target = {"type": "Utilization", "averageUtilization": _TARGET_CPU_PERCENT}
    return _object(app, "autoscaling/v2", "HorizontalPodAutoscaler", app.name) | {
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": app.name},
            "minReplicas": app.settings.min_replicas,
            "maxReplicas": app.settings.max_replicas,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            # Loading a model takes CPU as well, which must not be mistaken for traffic.
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
        }
    }


def _disruption_budget(app: App) -> Manifest:
    spec = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": app.selector}}
    return _object(app, "policy/v1", "PodDisruptionBudget", app.name) | {"spec": spec}


def _network_policy(app: App) -> Manifest:
    """NetworkPolicy: clients in the namespace reach the ports, Prometheus the metrics; the server reaches nothing.

    A node always reaches its own pods, so the kubelet's probes work.
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
            {"from": [{"namespaceSelector": monitoring}], "ports": [{"protocol": "TCP", "port": REST_PORT}]},
        ],
        "egress": [],
    }
    return _object(app, "networking.k8s.io/v1", "NetworkPolicy", app.name) | {"spec": spec}


class _Dumper(yaml.SafeDumper):
    """Dumper that keeps multi-line texts readable and writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def to_yaml(content: Manifest) -> str:
    """One YAML document, with keys in the given order."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=120)
