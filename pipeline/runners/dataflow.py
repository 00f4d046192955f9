"""Beam's arguments for Dataflow: where a job runs, on what machines, and how this package comes to the workers.

They go where any of Beam's arguments go: after `--` of `bert-tfx examples`, or into a pipeline's `beam_pipeline_args`.
All jobs here are batch jobs. Beam puts them on Runner v2 by itself, and Dataflow gives them its shuffle service;
Streaming Engine is for streaming jobs. docs/scaling.md says what a job needs and costs.
"""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

from bert_keras.errors import InputError

SETUP_FILE = Path(__file__).parents[2] / "setup.py"
# A worker process, of which there is one a core: memory for a bucket's text, tokens and plans, as measured ...
BUCKET_FACTOR = 25
# ... and for its imports, a sorted run, and the words that it counts.
PROCESS_BYTES = 600 << 20
# What Dataflow itself runs on a worker.
SYSTEM_BYTES = 1 << 30
# n2-standard-4, n2d-highmem-8; e2-custom-4-8192, custom-4-8192-ext.
_MACHINE_TYPE = re.compile(r"(?:[a-z]\w*-[a-z]+-|(?:[a-z]\w*-)?custom-)(\d+)(?:-\d+(?:-ext)?)?")


@dataclasses.dataclass(frozen=True)
class DataflowSettings:
    """Where a Dataflow job runs, and on what.

    Attributes:
        project: the project that runs the job and pays.
        region: of the workers; text and output in another one cost time and money.
        temp_location: a gs:// folder for what the job needs while it runs.
        staging_location: a gs:// folder for the package and the job's description; empty: `temp_location`.
        sdk_container_image: the image of the workers, with Beam and this package in it; empty: Beam's own, on which
            each worker installs the package that setup.py makes, without TFX, when it starts.
        machine_type: of the workers.
        max_num_workers: most workers; Dataflow starts and stops them as the work asks for.
        service_account_email: as whom the workers run; empty: the project's default account.
        network: empty: the project's default network.
        subnetwork: regions/REGION/subnetworks/NAME; empty: the network's own.
        public_ips: whether workers have public addresses; without, the subnetwork needs Private Google Access.
    """

    project: str
    region: str
    temp_location: str
    staging_location: str = ""
    sdk_container_image: str = ""
    machine_type: str = "n2-standard-4"
    max_num_workers: int = 20
    service_account_email: str = ""
    network: str = ""
    subnetwork: str = ""
    public_ips: bool = True

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str) and re.search(r"\s", value):
                raise ValueError(f"{field.name} is {value!r}; it cannot have blanks")
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
            raise ValueError(f"machine_type is {self.machine_type!r}; it must tell its cores, as n2-standard-4 does")
        if self.max_num_workers < 1:
            raise ValueError(f"max_num_workers is {self.max_num_workers}; it must be at least 1")

    @property
    def cores(self) -> int:
        """Cores of a worker, each with a process of its own: the first number of the machine's type."""
        match = _MACHINE_TYPE.fullmatch(self.machine_type)
        assert match
        return int(match[1])


def process_bytes(bucket_bytes: int) -> int:
    """Memory of one worker process, for buckets of so many bytes of text."""
    return PROCESS_BYTES + BUCKET_FACTOR * bucket_bytes


def min_ram_gigabytes(settings: DataflowSettings, bucket_bytes: int) -> int:
    """Memory that a worker must have: all its processes and Dataflow's own, in whole gigabytes."""
    return math.ceil((SYSTEM_BYTES + settings.cores * process_bytes(bucket_bytes)) / 1e9)


def dataflow_args(settings: DataflowSettings, bucket_bytes: int) -> list[str]:
    """The arguments, one a string, none with a blank.

    Args:
        bucket_bytes: `corpus.bucket_bytes` of the job: how much memory it takes.

    Raises:
        InputError: there is neither an image nor a setup.py.
    """
    args = [
        "--runner=DataflowRunner",
        f"--project={settings.project}",
        f"--region={settings.region}",
        f"--temp_location={settings.temp_location}",
        f"--staging_location={settings.staging_location or settings.temp_location}",
        f"--worker_machine_type={settings.machine_type}",
        "--autoscaling_algorithm=THROUGHPUT_BASED",
        f"--max_num_workers={settings.max_num_workers}",
        # Of a worker, not of a core. FlexRS does not take hints.
        f"--resource_hint=min_ram={min_ram_gigabytes(settings, bucket_bytes)}GB",
    ]
    if settings.sdk_container_image:
        args.append(f"--sdk_container_image={settings.sdk_container_image}")
    elif SETUP_FILE.is_file():
        args.append(f"--setup_file={SETUP_FILE}")
    else:
        raise InputError(f"{SETUP_FILE}: no such file, so Beam cannot make the package for its workers; give an image")
    for name in ("service_account_email", "network", "subnetwork"):
        if value := getattr(settings, name):
            args.append(f"--{name}={value}")
    if not settings.public_ips:
        args.append("--no_use_public_ips")
    return args
