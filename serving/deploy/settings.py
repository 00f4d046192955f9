"""User settings of a deployment; all other numbers are derived (`serving.deploy.sizing`)."""

import re
from dataclasses import dataclass
from typing import Annotated

import typer

# A registry with its port, a path, a tag, a digest.
_REPOSITORY = r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*"
_IMAGE = re.compile(rf"{_REPOSITORY}(:(?!latest)[\w.-]+)?(@sha256:[0-9a-f]{{64}})?")
_UNPINNED = re.compile(_REPOSITORY)


class CannotDeploy(ValueError):
    """A deployment that cannot be written; the message is one line with the cause and the remedy."""


@dataclass(frozen=True)
class DeploySettings:
    """Images, resources and batching. CannotDeploy: an image is not pinned, a number is below 1.

    Without `merge_requests` the server batches if no input's shape can differ between requests, because then one
    request can fail all others of its batch.
    """

    base_image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="TensorFlow Serving's image (that of the model's TensorFlow).")
    ] = None
    repository: Annotated[str | None, typer.Option(help="Name of the built image, no tag (NAME-tf-serving).")] = None
    cpus: Annotated[int, typer.Option(help="Cores per pod.")] = 2
    memory_mib: Annotated[int | None, typer.Option(help="MiB per pod (derived from the models).")] = None
    max_batch_size: Annotated[int, typer.Option(help="Maximum texts per batch and per request.")] = 32
    merge_requests: Annotated[
        bool | None,
        typer.Option("--batching/--no-batching", help="Batch requests (yes, unless an input's shape differs)."),
    ] = None
    ssl: Annotated[bool, typer.Option("--ssl", help="gRPC with TLS and client certificates.")] = False

    def __post_init__(self) -> None:
        for name in ("cpus", "max_batch_size", "memory_mib"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CannotDeploy(f"{name} is {value}; it must be 1 or more")
        image = self.base_image  # with a tag other than `latest`, or a digest
        if image is not None and (not _IMAGE.fullmatch(image) or _UNPINNED.fullmatch(image)):
            raise CannotDeploy(f"base_image {image!r} is not pinned: give it a tag or a digest")
        if self.repository is not None and not _UNPINNED.fullmatch(self.repository):
            raise CannotDeploy(f"repository {self.repository!r}: give HOST/PATH in lower case, without a tag")
