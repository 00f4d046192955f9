"""`bert-tfx doctor` checks the installation and the machine, and suggests fixes.

It imports nothing that it checks, so it is fast and works where an import fails.
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipeline.runs.exit_codes import Exit
from serving.scheduling.cores import cores

OK, NOTE, FAILS = "ok", "note", "fails"
# TFX 1.21's ml-metadata: its wheels are tagged manylinux_2_39 (scripts/setup.sh has the same limit).
GLIBC_OF_TFX_121 = (2, 39)
# What the README asks for, in GB.
MEMORY, DISK = 4, 5
# What the commands need which an extra brings; the extra's first package stands for it.
EXTRAS = {
    "serve": ("uvicorn", "serve of a folder with model.onnx"),
    "pipeline": ("tfx", "all but examples, tokenize and train on JAX"),
    "jax": ("jax", "training.backend=jax"),
    "keras-hub": ("keras-hub", "convert from and to keras-hub"),
    "onnx": ("onnx", "convert to onnx and serve it"),
    "kubeflow": ("kfp", "compile kubeflow"),
}
INSTRUCTIONS = {"avx": "AVX", "avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX"}
# Prints the platform of the devices that JAX takes, and their kinds. It must not take their memory.
_JAX_DEVICES = "import jax; d = jax.devices(); print(d[0].platform, *(x.device_kind for x in d), sep=chr(10))"
_LOCKS = Path(__file__).parents[2] / "requirements"


class Finding(NamedTuple):
    """One line of the answer; `remedy` is empty if all is well."""

    level: str
    subject: str
    value: str
    remedy: str


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine; `packages` are versions by canonical name, memory and disk bytes, `gpus` nvidia-smi's lines.

    `jax_devices` are the platform and the kinds of the devices that JAX takes, or its error alone; empty without JAX.
    """

    python: tuple[int, int]
    system: str
    glibc: str
    processor: str
    instructions: frozenset[str]
    cores: int
    memory: int
    disk: int
    gpus: tuple[str, ...]
    packages: Mapping[str, str]
    jax_devices: tuple[str, ...] = ()

    @classmethod
    def here(cls) -> "Machine":
        """This machine, with the disk of the working folder."""
        cpu = dict(re.findall(r"^(model name|flags)\s*: (.*)$", _text("/proc/cpuinfo"), re.MULTILINE))
        limit = _text("/sys/fs/cgroup/memory.max").strip()
        packages = importlib.metadata.distributions()
        return cls(
            python=sys.version_info[:2],
            system=f"{platform.system()} {platform.machine()}",
            glibc=platform.libc_ver()[1],
            processor=cpu.get("model name", platform.processor()),
            instructions=frozenset(cpu.get("flags", "").split()),
            cores=cores(),
            memory=min(psutil.virtual_memory().total, int(limit) if limit.isdigit() else sys.maxsize),
            disk=shutil.disk_usage(".").free,
            gpus=_gpus(),
            packages={canonicalize_name(package.metadata["Name"]): package.version for package in packages},
            jax_devices=_jax_devices() if importlib.util.find_spec("jax") else (),
        )


def findings(machine: Machine, requires: Sequence[str], lock: str = "") -> Iterator[Finding]:
    """Judge a machine by the requirements of the installed package and its extras, and by the text of its lock."""
    version = "{}.{}".format(*machine.python)
    few = "" if (3, 11) <= machine.python < (3, 14) else "take 3.11 (any glibc), or 3.12 or 3.13 (glibc 2.39)"
    yield _finding("Python", version, few, FAILS)
    glibc = tuple(int(n) for n in machine.glibc.split(".")[:2] if n)
    old = machine.python >= (3, 12) and () < glibc < GLIBC_OF_TFX_121
    remedy = f"Python {version} needs 2.39 (Debian 13, Ubuntu 24.04); take Python 3.11 here" if old else ""
    yield _finding("glibc", machine.glibc or "none", remedy, FAILS)
    tried = machine.system == "Linux x86_64"
    yield _finding("system", machine.system, "" if tried else "TFX may have no wheels: only Linux x86_64 is tried")
    yield from _packages(machine, [Requirement(text) for text in requires])
    locked = re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", lock, re.MULTILINE)
    if others := sorted(name for name, wanted in locked if machine.packages.get(name) != wanted):
        yield _finding("lock", _named("missing or another version", others), "make setup installs the lock")
    yield from _hardware(machine)


def _finding(subject: str, value: str, remedy: str = "", level: str = NOTE) -> Finding:
    return Finding(level if remedy else OK, subject, value, remedy)


def _packages(machine: Machine, requires: Sequence[Requirement]) -> Iterator[Finding]:
    for extra, (lead, commands) in {"": ("bert-tfx", ""), **EXTRAS}.items():
        subject = f"bert-tfx[{extra}]" if extra else "bert-tfx"
        install = f"pip install '{subject}'"
        if lead not in machine.packages:
            yield _finding(subject, "not installed", f"for {commands}: {install}")
            continue
        wrong = []
        for requirement in requires:
            plain, chosen = (
                requirement.marker is None or requirement.marker.evaluate({"extra": name}) for name in ("", extra)
            )
            there = machine.packages.get(canonicalize_name(requirement.name))
            fits = there is not None and requirement.specifier.contains(there, prereleases=True)
            if chosen and plain == (not extra) and not fits:
                wrong.append(f"{requirement.name} is {there or 'missing'}, needed {requirement.specifier}")
        value = f"{lead} {machine.packages[lead]}; {_named('wrong', wrong) if wrong else 'all packages fit'}"
        yield _finding(subject, value, install if wrong else "", FAILS)


def _hardware(machine: Machine) -> Iterator[Finding]:
    has, remedy = machine.instructions, ""
    if has and "avx" not in has:
        remedy = "TensorFlow's wheels need AVX, and end with `Illegal instruction` without"
    elif has and "avx512f" not in has:
        remedy = "large matrix products take twice the time of AVX-512 (docs/results.md)"
    elif has and not has & {"avx512_bf16", "amx_bf16"}:
        remedy = "mixed_bfloat16 is slower than float32 here"
    value = ", ".join(name for flag, name in INSTRUCTIONS.items() if flag in has) or "no AVX"
    level = NOTE if "avx" in has else FAILS
    yield _finding("processor", f"{machine.cores} cores, {machine.processor}: {value}", remedy, level)
    for subject, there, needed in (("memory", machine.memory, MEMORY), ("free disk", machine.disk, DISK)):
        # A machine of 4 GB reports a little less.
        remedy = f"the demo asks for {needed} GB" if there < needed * 0.9e9 else ""
        yield _finding(subject, f"{there / 1e9:.1f} GB", remedy)
    libraries = any(name.startswith("nvidia-cudnn") for name in machine.packages)
    remedy = "" if libraries or not machine.gpus else "TensorFlow does not see it: docs/gpus.md installs the libraries"
    for gpu in machine.gpus or ("none; all runs on the processor",):
        yield _finding("GPU", gpu, remedy)
    if machine.jax_devices:
        platform_name, *kinds = machine.jax_devices
        counts = ", ".join(f"{count} x {kind}" for kind, count in Counter(kinds).items())
        remedy = "" if kinds else "JAX finds no device: unset JAX_PLATFORMS, or install its plugin (docs/gpus.md)"
        if machine.gpus and platform_name == "cpu":
            remedy = "JAX does not use the GPU: pip install 'jax[cuda12]' (docs/gpus.md), unset JAX_PLATFORMS"
        yield _finding("JAX's devices", f"{platform_name}: {counts}" if kinds else platform_name, remedy)


def _named(what: str, names: Sequence[str], most: int = 5) -> str:
    return f"{len(names)} {what}: {', '.join(names[:most])}{', ...' if len(names) > most else ''}"


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _gpus() -> tuple[str, ...]:
    words = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(done.stdout.splitlines()) if done.returncode == 0 else ()


def _jax_devices() -> tuple[str, ...]:
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    words = [sys.executable, "-c", _JAX_DEVICES]
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return ("no answer in 120 s",)
    lines = done.stdout.splitlines() if done.returncode == 0 else done.stderr.strip().splitlines()[-1:]
    return tuple(lines) or ("no answer",)


def doctor() -> None:
    """Check the machine and suggest fixes; exit code 1 if anything fails."""
    from rich.console import Console
    from rich.table import Table

    machine = Machine.here()
    lock = _text(_LOCKS / "py{}{}.txt".format(*machine.python))
    rows = list(findings(machine, importlib.metadata.requires("bert-tfx") or [], lock))
    table = Table("", "", "found", "remedy", box=None, pad_edge=False)
    colours = {OK: "green", NOTE: "yellow", FAILS: "bold red"}
    for level, *cells in rows:
        table.add_row(f"[{colours[level]}]{level}[/]", *(cell.replace("[", r"\[") for cell in cells))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    if any(finding.level == FAILS for finding in rows):
        raise typer.Exit(Exit.FAILED)
