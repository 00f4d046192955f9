"""User settings of a deployment; all other numbers are derived (`serving.deploy.sizing`)."""

import re
from dataclasses import dataclass

# A registry with its port, a path, a tag, a digest.
_REPOSITORY = r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*"
_IMAGE = re.compile(rf"{_REPOSITORY}(:(?!latest)[\w.-]+)?(@sha256:[0-9a-f]{{64}})?")
_UNPINNED = re.compile(_REPOSITORY)
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class CannotDeploy(ValueError):
    """A deployment that cannot be written; the message is one line with the cause and the remedy."""


@dataclass(frozen=True)
class DeploySettings:
    """Images, resources and batching of a TensorFlow Serving deployment.

    Attributes:
        base_image: image of TensorFlow Serving, with a tag or digest; None for the release of the installed
            tensorflow-serving-api, if it matches the TensorFlow that exported the models.
        repository: name of the built image without tag (the tag lists its versions); None for
            `<model>-tf-serving`, which is known only on this machine.
        min_replicas: minimum number of pods.
        max_replicas: maximum number of pods, for the HorizontalPodAutoscaler.
        cpus: CPU request and limit of each pod.
        memory_mib: memory request and limit of each pod, in MiB; None to derive it from the models.
        max_batch_size: maximum number of rows of a batch, and of a request (TensorFlow Serving refuses larger ones).
        merge_requests: whether the server batches; None: only if input shapes cannot differ between requests, because
            otherwise one request can fail all others of its batch.
        ssl: whether gRPC uses TLS with client certificates.
        namespace: Kubernetes namespace, which is created as well; None leaves it to kubectl.
    """

    base_image: str | None = None
    repository: str | None = None
    min_replicas: int = 2
    max_replicas: int = 8
    cpus: int = 2
    memory_mib: int | None = None
    max_batch_size: int = 32
    merge_requests: bool | None = None
    ssl: bool = False
    namespace: str | None = None

    def __post_init__(self) -> None:
        for name in ("min_replicas", "cpus", "max_batch_size", "memory_mib"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CannotDeploy(f"{name} is {value}; it must be 1 or more")
        if self.max_replicas < self.min_replicas:
            raise CannotDeploy(f"max_replicas is {self.max_replicas}, below min_replicas, {self.min_replicas}")
        image = self.base_image  # with a tag other than `latest`, or a digest
        if image is not None and (not _IMAGE.fullmatch(image) or _UNPINNED.fullmatch(image)):
            raise CannotDeploy(f"base_image {image!r} is not pinned: give it a tag or a digest")
        if self.repository is not None and not _UNPINNED.fullmatch(self.repository):
            raise CannotDeploy(f"repository {self.repository!r}: give HOST/PATH in lower case, without a tag")
        if self.namespace is not None and not _NAMESPACE.fullmatch(self.namespace):
            raise CannotDeploy(f"namespace {self.namespace!r}: give at most 63 of a-z 0-9 -, no - first or last")
