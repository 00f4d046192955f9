"""`bert-tfx doctor`: what is installed, what the machine has, and what will not work, each with its remedy.

It imports none of what it looks at: it must answer fast, and where an import fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import psutil
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipeline.runs.exit_codes import Exit

OK, NOTE, FAILS = "ok", "note", "fails"
# TFX 1.21's ml-metadata: its wheels are tagged manylinux_2_39 (scripts/setup.sh has the same limit).
GLIBC_OF_TFX_121 = (2, 39)
# What the README asks for; a machine of 4 GB reports a little less.
MEMORY, DISK = 4e9, 5e9
PORTS = {8500: "--grpc-port", 8501: "--rest-port"}
# What the commands need which an extra brings; the extra's first package stands for it.
EXTRAS = {
    "pipeline": ("tfx", "all but examples and tokenize"),
    "keras-hub": ("keras-hub", "convert from and to keras-hub"),
    "onnx": ("onnx", "convert to onnx and serve with onnxruntime"),
    "kubeflow": ("kfp", "compile kubeflow, run-steps and submit"),
}
_LOCKS = Path(__file__).parents[2] / "requirements"


class Finding(NamedTuple):
    """One line: level (`ok`, `note`, `fails`), subject, what was found, and the remedy of what is not ok."""

    level: str
    subject: str
    found: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Machine:
    """What `doctor` judges; `packages` are versions by canonical name, `gpus` as nvidia-smi names them."""

    python: tuple[int, int]
    system: str
    glibc: str
    processor: str
    instructions: frozenset[str]
    cores: int
    memory: int
    disk: int
    used_ports: tuple[int, ...]
    gpus: tuple[str, ...]
    packages: Mapping[str, str]

    @classmethod
    def here(cls) -> Machine:
        """This machine, with the disk of the working folder."""
        cpu = dict(re.findall(r"^(model name|flags)\s*: (.*)$", _text("/proc/cpuinfo"), re.MULTILINE))
        limit = _text("/sys/fs/cgroup/memory.max").strip()
        return cls(
            python=sys.version_info[:2],
            system=f"{platform.system()} {platform.machine()}",
            glibc=platform.libc_ver()[1],
            processor=cpu.get("model name", platform.processor()),
            instructions=frozenset(cpu.get("flags", "").split()),
            cores=len(psutil.Process().cpu_affinity())
            if hasattr(psutil.Process, "cpu_affinity")
            else os.cpu_count() or 1,
            memory=min(psutil.virtual_memory().total, int(limit) if limit.isdigit() else sys.maxsize),
            disk=shutil.disk_usage(".").free,
            used_ports=tuple(port for port in PORTS if _is_used(port)),
            gpus=_gpus(),
            packages={
                canonicalize_name(found.metadata["Name"]): found.version for found in importlib.metadata.distributions()
            },
        )


def findings(machine: Machine, requires: list[str], lock: str = "") -> Iterator[Finding]:
    """Judge a machine.

    Args:
        requires: requirements of the installed package, with the marker `extra == "..."` for those of its extras.
        lock: text of the lock of this Python, where there is a checkout; empty: there is none.
    """
    yield from _python(machine)
    yield from _packages(machine, requires)
    if lock:
        locked = dict(re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", lock, re.MULTILINE))
        others = sorted(name for name, version in locked.items() if machine.packages.get(name) != version)
        found = _named("another version or missing", others) if others else f"{len(locked)} packages as locked"
        yield Finding(NOTE if others else OK, "lock", found, "make setup installs the lock" if others else "")
    yield from _hardware(machine)
    for port, option in PORTS.items():
        used = port in machine.used_ports
        yield Finding(
            NOTE if used else OK,
            f"port {port}",
            "in use" if used else "free",
            f"a server is running; serve {option} N takes another port" if used else "",
        )


def _python(machine: Machine) -> Iterator[Finding]:
    version = "{}.{}".format(*machine.python)
    if not (3, 10) <= machine.python < (3, 14):
        yield Finding(FAILS, "Python", version, "TFX has wheels for 3.11 (any glibc), 3.12 and 3.13 (glibc 2.39)")
    else:
        untested = "has no lock and no tests; take 3.11, 3.12 or 3.13" if machine.python == (3, 10) else ""
        yield Finding(NOTE if untested else OK, "Python", version, untested)
    if machine.system != "Linux x86_64":
        yield Finding(NOTE, "system", machine.system, "only Linux x86_64 is tried; TFX may have no wheels for others")
    glibc = tuple(int(n) for n in machine.glibc.split(".")[:2] if n)
    old = machine.python >= (3, 12) and () < glibc < GLIBC_OF_TFX_121
    remedy = f"Python {version} needs glibc 2.39 (Debian 13, Ubuntu 24.04); take Python 3.11 here" if old else ""
    yield Finding(FAILS if old else OK, "glibc", machine.glibc or "none", remedy)


def _packages(machine: Machine, requires: list[str]) -> Iterator[Finding]:
    for extra, (lead, commands) in {"": ("bert-tfx", ""), **EXTRAS}.items():
        subject = f"bert-tfx[{extra}]" if extra else "bert-tfx"
        install = f"pip install '{subject}'"
        if lead not in machine.packages:
            yield Finding(NOTE, subject, "not installed", f"for {commands}: {install}")
            continue
        wanted = [requirement for requirement in map(Requirement, requires) if _is_of(requirement, extra)]
        wrong = []
        for requirement in wanted:
            there = machine.packages.get(canonicalize_name(requirement.name))
            if there is None or not requirement.specifier.contains(there, prereleases=True):
                wrong.append(f"{requirement.name} is {there or 'missing'}, needed {requirement.specifier}")
        found = f"{lead} {machine.packages[lead]}; " + (
            _named("wrong", wrong) if wrong else f"{len(wanted)} packages fit"
        )
        yield Finding(FAILS if wrong else OK, subject, found, install if wrong else "")


def _is_of(requirement: Requirement, extra: str) -> bool:
    """Whether the package asks for it here with this extra, and not without; with none: without any."""
    plain, chosen = (requirement.marker is None or requirement.marker.evaluate({"extra": name}) for name in ("", extra))
    return chosen and plain == (not extra)


def _hardware(machine: Machine) -> Iterator[Finding]:
    has = machine.instructions
    names = {"avx": "AVX", "avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX"}
    level, remedy = OK, ""
    if has and "avx" not in has:
        level, remedy = FAILS, "TensorFlow's wheels need AVX, and end with `Illegal instruction` without"
    elif has and "avx512f" not in has:
        level, remedy = NOTE, "large matrix products take twice the time of AVX-512 (docs/results.md)"
    elif has and not has & {"avx512_bf16", "amx_bf16"}:
        level, remedy = NOTE, "mixed_bfloat16 is slower than float32 here"
    found = ", ".join(name for flag, name in names.items() if flag in has) or "no AVX"
    yield Finding(level, "processor", f"{machine.cores} cores, {machine.processor}: {found}", remedy)
    for subject, there, needed in (("memory", machine.memory, MEMORY), ("free disk", machine.disk, DISK)):
        remedy = f"the demo asks for {needed / 1e9:.0f} GB" if there < needed * 0.9 else ""
        yield Finding(NOTE if remedy else OK, subject, f"{there / 1e9:.1f} GB", remedy)
    if not machine.gpus:
        yield Finding(OK, "GPU", "none; all runs on the processor")
    libraries = any(name.startswith("nvidia-cudnn") for name in machine.packages)
    for gpu in machine.gpus:
        remedy = "" if libraries else "TensorFlow does not see it: docs/gpus.md installs NVIDIA's libraries"
        yield Finding(OK if libraries else NOTE, "GPU", gpu, remedy)


def _imported_tensorflow() -> Finding:
    """TensorFlow and its devices, from a process of its own: a wheel for another processor kills it."""
    code = "import tensorflow as t; print(t.__version__, *(d.name for d in t.config.list_physical_devices()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode == 0:
        return Finding(OK, "TensorFlow", done.stdout.splitlines()[-1].replace("/physical_device:", ""))
    last = (done.stderr.strip() or "no message").splitlines()[-1]
    ended = signal.Signals(-done.returncode).name if done.returncode < 0 else last
    return Finding(FAILS, "TensorFlow", f"cannot be imported: {ended}", "see the lines on processor and packages")


def _named(what: str, names: list[str], most: int = 5) -> str:
    return f"{len(names)} {what}: {', '.join(names[:most])}{', ...' if len(names) > most else ''}"


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _is_used(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            return True
    return False


def _gpus() -> tuple[str, ...]:
    words = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(words, capture_output=True, text=True, timeout=20)
        if done.returncode == 0:
            return tuple(done.stdout.splitlines())
    return ()


def doctor(
    tensorflow: Annotated[
        bool, typer.Option("--tensorflow", help="Import TensorFlow too, and list its devices (10 seconds).")
    ] = False,
) -> None:
    """Say what is installed, what the machine has, and what will not work and why; exit code 1 if anything fails."""
    from rich.console import Console
    from rich.table import Table

    machine = Machine.here()
    lock = _text(str(_LOCKS / "py{}{}.txt".format(*machine.python)))
    found = list(findings(machine, importlib.metadata.requires("bert-tfx") or [], lock))
    found += [_imported_tensorflow()] if tensorflow else []
    table = Table("", "", "found", "remedy", box=None, pad_edge=False)
    colours = {OK: "green", NOTE: "yellow", FAILS: "bold red"}
    for level, *cells in found:
        table.add_row(f"[{colours[level]}]{level}[/]", *(cell.replace("[", r"\[") for cell in cells))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    if any(finding.level == FAILS for finding in found):
        raise typer.Exit(Exit.FAILED)
