"""The images' Dockerfile, as far as it can be checked without a build; `make lint` runs hadolint."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
IGNORED = (ROOT / "docker/Dockerfile.dockerignore").read_text()
INSTRUCTIONS = [
    line.split() for line in re.sub(r"\\\n", " ", DOCKERFILE).splitlines() if line and not line.startswith("#")
]
STAGES = {words[3]: words[1] for words in INSTRUCTIONS if words[0] == "FROM"}


def test_copied_files_exist_and_are_not_ignored():
    allowed = {line[1:] for line in IGNORED.splitlines() if line.startswith("!")}
    copied = {
        source.rstrip("/")
        for words in INSTRUCTIONS
        if words[0] == "COPY" and not words[1].startswith("--from=")
        for source in words[1:-1]
    }
    assert {"bert_keras", "components", "pipeline", "serving", "requirements/py313-image.txt"} <= copied
    assert copied == allowed
    for source in copied:
        assert (ROOT / source).exists(), source


def test_the_packages_of_setup_py_are_copied():
    packages = re.search(r"include=\[(.*?)\]", (ROOT / "setup.py").read_text())[1]
    for package in re.findall(r'"([a-z_]+)\*"', packages):
        assert ["COPY", package, package] in INSTRUCTIONS


def test_the_gpu_image_adds_to_the_environment():
    """What both locks have is the same release, so pip installs it no second time."""
    locks = [(ROOT / f"requirements/py313-{name}.txt").read_text() for name in ("image", "gpu")]
    image, gpu = (dict(re.findall(r"^([a-z0-9._-]+)==([^ ]+)", lock, re.MULTILINE)) for lock in locks)
    assert {"jax", "jax-cuda12-plugin", "nvidia-cudnn-cu12"} <= gpu.keys()
    common = gpu.keys() & image.keys()
    assert "numpy" in common and all(gpu[name] == image[name] for name in common)


def test_the_boot_program_is_of_the_locked_beam():
    beam = re.search(r"^apache-beam==([^ ]+)", (ROOT / "requirements/py313-image.txt").read_text(), re.MULTILINE)[1]
    assert ["ARG", f"BEAM_SDK=apache/beam_python3.13_sdk:{beam}"] in INSTRUCTIONS


def test_every_stage_is_on_an_image_that_the_user_names():
    assert STAGES == {
        "beam": "${BEAM_SDK}",
        "sources": "${BASE}",
        "build": "sources",
        "build-serve": "sources",
        "user": "${BASE}",
        "serve": "user",
        "environment": "user",
        "worker": "environment",
        "pipeline": "environment",
        "gpu": "pipeline",
    }


def test_the_images_run_as_any_user():
    environment = DOCKERFILE.partition("AS user")[2].partition("\nFROM")[0]
    assert "\nUSER 10001:10001\n" in environment
    users = re.findall(r"^USER (.*)$", DOCKERFILE.partition("AS worker")[2], re.MULTILINE)
    assert users == ["0", "10001:10001"]  # the GPU's packages are installed as root
    assert "AS build" not in environment and "g++" not in environment


def test_the_steps_are_those_that_debian13_runs():
    run_there = (ROOT / "ci/debian13.sh").read_text()
    assert "for part in build run test; do inside docker/packages.sh $part; done" in run_there
    assert "inside scripts/setup.sh" in run_there
    runs = [" ".join(words[1:]) for words in INSTRUCTIONS if words[0] == "RUN"]
    assert runs[:4] == [
        "/usr/local/lib/bert-tfx/packages.sh build",
        "scripts/setup.sh image && rm -r .uv",
        "scripts/setup.sh serve && rm -r .uv",
        "/usr/local/lib/bert-tfx/packages.sh run",
    ]
