"""Beam's arguments for Dataflow: region, machines, and installation of this package on the workers.

Pass them after `--` of `bert-tfx examples`, or as a pipeline's `beam_pipeline_args`. All jobs here are batch jobs: Beam
chooses Runner v2, Dataflow provides its shuffle service, and Streaming Engine does not apply. docs/scaling.md lists
needs and costs of a job.
"""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Annotated

import typer

from bert_keras.errors import InputError

SETUP_FILE = Path(__file__).parents[2] / "setup.py"
# Memory of a worker process, one per core: measured multiple of a bucket's text, for text, tokens and plans ...
BUCKET_FACTOR = 25
# ... plus a constant for imports, a sorted run, and word counts.
PROCESS_BYTES = 600 << 20
# Dataflow's own processes on a worker.
SYSTEM_BYTES = 1 << 30
# n2-standard-4, n2d-highmem-8; e2-custom-4-8192, custom-4-8192-ext.
_MACHINE_TYPE = re.compile(r"(?:[a-z]\w*-[a-z]+-|(?:[a-z]\w*-)?custom-)(\d+)(?:-\d+(?:-ext)?)?")


@dataclasses.dataclass(frozen=True)
class DataflowSettings:
    """Place and machines of a Dataflow job; the fields are options of `bert-tfx beam-args dataflow`."""

    project: Annotated[str, typer.Option(help="Project that is billed.")]
    region: Annotated[str, typer.Option(help="Region of the workers, best that of the data.")]
    temp_location: Annotated[str, typer.Option(metavar="GS_FOLDER", help="Folder of temporary files.")]
    staging_location: Annotated[
        str, typer.Option(metavar="GS_FOLDER", help="Folder of the package; default: --temp-location.")
    ] = ""
    sdk_container_image: Annotated[
        str,
        typer.Option(
            "--image",
            help="Image of the workers, with bert-tfx; default: Beam's, where each worker installs it.",
        ),
    ] = ""
    machine_type: Annotated[str, typer.Option(help="Machine type of the workers.")] = "n2-standard-4"
    max_num_workers: Annotated[int, typer.Option("--max-workers", help="Maximum number of workers.")] = 20
    service_account_email: Annotated[
        str, typer.Option("--service-account", metavar="EMAIL", help="Account of the workers (the project's default).")
    ] = ""
    network: Annotated[str, typer.Option(help="Network of the workers (the project's default).")] = ""
    subnetwork: Annotated[str, typer.Option(help="regions/REGION/subnetworks/NAME.")] = ""
    public_ips: Annotated[
        bool,
        typer.Option(
            "--public-ips/--no-public-ips",
            help="Public addresses of workers; without, the subnetwork needs Private Google Access.",
        ),
    ] = True

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str) and re.search(r"\s", value):
                raise ValueError(f"{field.name} is {value!r}; it must not contain spaces")
        for name in ("project", "region"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; Dataflow needs one")
        for name, value in (
            ("temp_location", self.temp_location),
            ("staging_location", self.staging_location or self.temp_location),
        ):
            if not re.fullmatch(r"gs://[^/]+/.+", value):
                raise ValueError(f"{name} is {value!r}; it must be a folder, gs://BUCKET/FOLDER")
        if not _MACHINE_TYPE.fullmatch(self.machine_type):
            raise ValueError(f"machine_type is {self.machine_type!r}; give one with its cores, such as n2-standard-4")
        if self.max_num_workers < 1:
            raise ValueError(f"max_num_workers is {self.max_num_workers}; it must be at least 1")

    @property
    def cores(self) -> int:
        """Cores of a worker, each with a process of its own: the first number of the machine's type."""
        match = _MACHINE_TYPE.fullmatch(self.machine_type)
        assert match
        return int(match[1])


def process_bytes(bucket_bytes: int) -> int:
    """Memory of one worker process for a bucket size, in bytes."""
    return PROCESS_BYTES + BUCKET_FACTOR * bucket_bytes


def min_ram_gigabytes(settings: DataflowSettings, bucket_bytes: int) -> int:
    """Memory that a worker needs for all its processes and Dataflow's own, in whole gigabytes."""
    return math.ceil((SYSTEM_BYTES + settings.cores * process_bytes(bucket_bytes)) / 1e9)


def dataflow_args(settings: DataflowSettings, bucket_bytes: int) -> list[str]:
    """Beam's arguments, one per string, without spaces; InputError if there is neither an image nor a setup.py."""
    args = [
        "--runner=DataflowRunner",
        f"--project={settings.project}",
        f"--region={settings.region}",
        f"--temp_location={settings.temp_location}",
        f"--staging_location={settings.staging_location or settings.temp_location}",
        f"--worker_machine_type={settings.machine_type}",
        "--autoscaling_algorithm=THROUGHPUT_BASED",
        f"--max_num_workers={settings.max_num_workers}",
        # Per worker, not per core. FlexRS ignores hints.
        f"--resource_hint=min_ram={min_ram_gigabytes(settings, bucket_bytes)}GB",
    ]
    if settings.sdk_container_image:
        args.append(f"--sdk_container_image={settings.sdk_container_image}")
    elif SETUP_FILE.is_file():
        args.append(f"--setup_file={SETUP_FILE}")
    else:
        raise InputError(
            f"{SETUP_FILE}: no such file; Beam needs it to package the code for its workers: give an image"
        )
    for name in ("service_account_email", "network", "subnetwork"):
        if value := getattr(settings, name):
            args.append(f"--{name}={value}")
    if not settings.public_ips:
        args.append("--no_use_public_ips")
    return args
