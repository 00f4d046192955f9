"""What can be chosen of a deployment; everything else is derived (`serving.deploy.sizing`)."""

import re
from dataclasses import dataclass

from serving.deploy.errors import CannotDeploy

# A registry with its port, a path, a tag, a digest.
_REPOSITORY = r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*"
_IMAGE = re.compile(rf"{_REPOSITORY}(:(?!latest)[\w.-]+)?(@sha256:[0-9a-f]{{64}})?")
_UNPINNED = re.compile(_REPOSITORY)
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class DeploySettings:
    """Where TensorFlow Serving runs, on how much, and how it batches.

    Attributes:
        base_image: the image of TensorFlow Serving, with its tag or digest; None takes the release of the installed
            tensorflow-serving-api, if that is of the TensorFlow that exported the models.
        repository: what the built image is called, without tag: the versions in it are the tag; None calls it
            `<model>-tf-serving`, which only this machine knows.
        min_replicas: fewest pods.
        max_replicas: most pods, to which the HorizontalPodAutoscaler scales.
        cpus: of each pod, requested and its limit.
        memory_mib: of each pod, requested and its limit, in MiB; None derives it from the models.
        max_batch_size: most rows that the server puts into one batch, and most of one request (TensorFlow Serving
            refuses a larger one).
        merge_requests: whether the server batches; None: unless an input's shape may differ between requests, because
            then one request fails all that were batched with it.
        ssl: whether gRPC asks for client certificates and shows its own.
        namespace: of Kubernetes, which is made as well; None leaves it to kubectl.
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
            given = getattr(self, name)
            if given is not None and given < 1:
                raise CannotDeploy(f"{name} is {given}; it must be 1 or more")
        if self.max_replicas < self.min_replicas:
            raise CannotDeploy(f"max_replicas is {self.max_replicas}, below min_replicas, {self.min_replicas}")
        if self.base_image is not None and not _pinned(self.base_image):
            raise CannotDeploy(f"base_image {self.base_image!r} is not pinned: give it a tag, or a digest")
        if self.repository is not None and not _UNPINNED.fullmatch(self.repository):
            raise CannotDeploy(f"repository {self.repository!r}: give HOST/PATH in lower case, without a tag")
        if self.namespace is not None and not _NAMESPACE.fullmatch(self.namespace):
            raise CannotDeploy(f"namespace {self.namespace!r}: give at most 63 of a-z 0-9 -, no - first or last")


def _pinned(image: str) -> bool:
    """Whether an image has a tag other than `latest`, or a digest."""
    return bool(_IMAGE.fullmatch(image)) and not _UNPINNED.fullmatch(image)
