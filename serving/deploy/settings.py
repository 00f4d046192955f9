"""What can be chosen of a deployment; everything else is derived (`serving.deploy.sizing`)."""

from dataclasses import dataclass

from serving.deploy.errors import CannotDeploy


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
        batching: whether the server batches; None: unless an input's shape may differ between requests, because then
            one request fails all that were batched with it.
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
    batching: bool | None = None
    ssl: bool = False
    namespace: str | None = None

    def __post_init__(self) -> None:
        for name in ("min_replicas", "cpus", "max_batch_size"):
            if getattr(self, name) < 1:
                raise CannotDeploy(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.max_replicas < self.min_replicas:
            raise CannotDeploy(f"max_replicas is {self.max_replicas}, below min_replicas, {self.min_replicas}")
        if self.memory_mib is not None and self.memory_mib < 1:
            raise CannotDeploy(f"memory_mib is {self.memory_mib}; it must be 1 or more")
