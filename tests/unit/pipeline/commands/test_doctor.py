"""`bert-tfx doctor`: each thing that will not work is told with its remedy, from facts of the machine alone."""

import dataclasses
import importlib.metadata
import subprocess
import sys

import pytest
import typer

from pipeline.commands import doctor
from pipeline.commands.doctor import FAILS, NOTE, OK, Finding, Machine, findings

REQUIRES = [
    "typer>=0.15",
    'apache-beam==2.77.0; python_version >= "3.10"',
    'apache-beam==1.0; python_version < "3.10"',
    'tfx==1.21.0; extra == "pipeline"',
    'Keras_Tuner>=1.4.7; extra == "pipeline"',
    'kfp==2.17.3; extra == "kubeflow"',
]
MACHINE = Machine(
    python=(3, 13),
    system="Linux x86_64",
    glibc="2.41",
    processor="A processor",
    instructions=frozenset({"avx", "avx2", "avx512f", "avx512_bf16"}),
    cores=2,
    memory=4_100_000_000,
    disk=50_000_000_000,
    gpus=(),
    packages={"bert-tfx": "0.1.0", "typer": "0.20", "apache-beam": "2.77.0", "tfx": "1.21.0", "keras-tuner": "1.4.8"},
)
L4 = "NVIDIA L4, 23034 MiB, 550.54"


def judged(lock="", **facts):
    return {f.subject: f for f in findings(dataclasses.replace(MACHINE, **facts), REQUIRES, lock)}


def test_a_machine_that_fits_says_what_is_missing_only():
    found = judged()
    assert [f.subject for f in found.values() if f.level != OK] == [
        f"bert-tfx[{extra}]" for extra in ("serve", "jax", "keras-hub", "onnx", "kubeflow")
    ]
    assert found["bert-tfx[kubeflow]"].remedy.endswith("pip install 'bert-tfx[kubeflow]'")
    assert found["bert-tfx"].value == "bert-tfx 0.1.0; all packages fit"
    assert found["bert-tfx[pipeline]"].value == "tfx 1.21.0; all packages fit"


@pytest.mark.parametrize(
    "facts, subject, level, words",
    [
        ({"python": (3, 14)}, "Python", FAILS, "3.12 or 3.13"),
        ({"python": (3, 9)}, "Python", FAILS, "3.12 or 3.13"),
        ({"python": (3, 10)}, "Python", FAILS, "take 3.11"),
        ({"glibc": "2.36"}, "glibc", FAILS, "take Python 3.11"),
        ({"glibc": "2.36", "python": (3, 11)}, "glibc", OK, ""),
        ({"glibc": "", "system": "Darwin arm64"}, "system", NOTE, "Linux x86_64"),
        ({"instructions": frozenset({"sse4_2"})}, "processor", FAILS, "AVX"),
        ({"instructions": frozenset({"avx", "avx2"})}, "processor", NOTE, "twice"),
        ({"instructions": frozenset({"avx", "avx512f"})}, "processor", NOTE, "bfloat16"),
        ({"memory": 2_000_000_000}, "memory", NOTE, "4 GB"),
        ({"disk": 1_000_000_000}, "free disk", NOTE, "5 GB"),
        ({"gpus": (L4,)}, "GPU", NOTE, "docs/gpus.md"),
        ({"packages": {**MACHINE.packages, "keras-tuner": "1.4.6"}}, "bert-tfx[pipeline]", FAILS, "pip install"),
        ({"packages": {"bert-tfx": "0.1.0", "typer": "0.20"}}, "bert-tfx", FAILS, "pip install"),
        ({"jax_devices": ("cpu", "cpu")}, "JAX's devices", OK, ""),
        ({"jax_devices": ("cpu", "cpu"), "gpus": (L4,)}, "JAX's devices", NOTE, "jax[cuda12]"),
        ({"jax_devices": ("gpu", "NVIDIA L4"), "gpus": (L4,)}, "JAX's devices", OK, ""),
        ({"jax_devices": ("RuntimeError: no backend",)}, "JAX's devices", NOTE, "unset JAX_PLATFORMS"),
        ({"lock": "typer==0.20 \\\n    --hash=sha256:0\nabsl-py==2.0\n"}, "lock", NOTE, "make setup"),
    ],
)
def test_what_will_not_work_has_a_remedy(facts, subject, level, words):
    finding = judged(**facts)[subject]
    assert finding.level == level and words in finding.remedy
    assert bool(finding.remedy) == (level != OK)
    assert "lock" not in judged(lock="typer==0.20 \\\n    --hash=sha256:0\n")


def test_versions_that_do_not_fit_are_named():
    packages = {**MACHINE.packages, "keras-tuner": "1.4.6", "apache-beam": "2.72.0"}
    found = judged(packages=packages)
    assert found["bert-tfx[pipeline]"].value == "tfx 1.21.0; 1 wrong: Keras_Tuner is 1.4.6, needed >=1.4.7"
    assert found["bert-tfx"].value == "bert-tfx 0.1.0; 1 wrong: apache-beam is 2.72.0, needed ==2.77.0"


def test_the_command_ends_with_1_only_if_something_fails(monkeypatch, capsys):
    monkeypatch.setattr(doctor.Machine, "here", lambda: MACHINE)
    for level, code in ((NOTE, 0), (FAILS, 1)):
        found = [Finding(level, "bert-tfx[x]", "found [bold]", "remedy")]
        monkeypatch.setattr(doctor, "findings", lambda *_, found=found: found)
        try:
            doctor.doctor()
            assert code == 0
        except typer.Exit as ended:
            assert ended.exit_code == code == 1
        assert [level, "bert-tfx[x]", "found", "[bold]", "remedy"] == capsys.readouterr().out.split()[-5:]


def test_devices_of_jax_are_counted_by_kind(monkeypatch):
    kinds = ("gpu", "NVIDIA L4", "NVIDIA L4")
    assert judged(jax_devices=kinds)["JAX's devices"].value == "gpu: 2 x NVIDIA L4"
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert doctor._jax_devices() == ("cpu", "cpu")
    monkeypatch.setenv("JAX_PLATFORMS", "abacus")
    (error,) = doctor._jax_devices()
    assert "abacus" in error


def test_every_extra_has_its_commands():
    requires = importlib.metadata.metadata("bert-tfx").get_all("Provides-Extra")
    assert doctor.EXTRAS.keys() == set(requires)


def test_it_imports_nothing_heavy():
    code = "import sys; from pipeline.commands.doctor import Machine; print(Machine.here()); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"tensorflow", "tfx", "keras", "jax", "apache_beam", "numpy"} & set(told.splitlines()[-1].split())
