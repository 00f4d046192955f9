"""The image and Docker Compose; the Dockerfile's COPY instructions are executed."""

import http.server
import json
import os
import re
import shutil
import subprocess
import threading

import yaml
from google.protobuf import text_format

from serving.deploy.generate import generate, health_command, write_folder
from serving.deploy.settings import DeploySettings
from tests.support.serving.tf_serving_configs import ModelServerConfig


def instructions(dockerfile):
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE)).splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line]


def test_the_image_contains_all_files_that_the_server_reads(make, base, settings, tmp_path):
    """Execute the Dockerfile's COPY instructions; every file and folder named by a flag or a file must exist."""
    result = make(settings, stable=7, canary=8)
    lines = instructions(result.files["Dockerfile"])
    assert {name for name, _ in lines} == {"FROM", "COPY", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    context = tmp_path / "context"
    write_folder(context, result.files)
    root = tmp_path / "root"
    for _, line in (pair for pair in lines if pair[0] == "COPY"):
        options, _, words = line.partition("[")
        source, target = json.loads(f"[{words}")
        assert "--chown=10001:10001" in options
        source, place = (base if "--from=models" in options else context) / source, root / target[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, place) if source.is_dir() else shutil.copy(source, place)
    (model,) = text_format.Parse(
        (root / "etc/tf-serving/models.config").read_text(), ModelServerConfig()
    ).model_config_list.config
    for version in model.model_version_policy.specific.versions:
        place = root / model.base_path[1:] / str(version)
        there = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
        # Not model.weights.h5.
        assert there == {"saved_model.pb", "variables/variables.index", "assets.extra/tf_serving_warmup_requests"}
    flags = json.loads(dict(lines)["CMD"])
    assert flags == result.pod["containers"][0]["args"]
    for flag, file in (flag.removeprefix("--").split("=", 1) for flag in flags if "_file=" in flag):
        assert flag == "ssl_config_file" or (root / file[1:]).is_file(), flag


def test_the_image_is_pinned_and_does_not_run_as_root(make):
    lines = dict(instructions(make().files["Dockerfile"]))
    assert lines["FROM"] == "tensorflow/serving:2.16.1"  # of the TensorFlow that exported, not of the one here
    assert lines["USER"] == "10001:10001"
    pinned = DeploySettings(base_image="registry.example.com:5000/tf/serving@sha256:" + "0" * 64)
    assert dict(instructions(make(pinned).files["Dockerfile"]))["FROM"] == pinned.base_image


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()

    def log_message(self, *args):
        pass


def test_the_health_check_succeeds_only_on_a_200():
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        ready = subprocess.run(health_command("/ready", port), capture_output=True)
        loading = subprocess.run(health_command("/loading", port), capture_output=True)
        server.shutdown()
    gone = subprocess.run(health_command("/ready", port), capture_output=True)
    assert ready.returncode == 0, ready.stderr
    assert loading.returncode and gone.returncode


def test_the_image_checks_its_own_health(make):
    (check,) = re.findall(r"CMD (\[.*\])", dict(instructions(make().files["Dockerfile"]))["HEALTHCHECK"])
    assert json.loads(check) == health_command("/v1/models/bert/labels/stable/metadata", 8501)


def test_compose_publishes_its_ports_on_loopback_only(make, base, settings):
    result = make(settings)
    (service,) = yaml.safe_load(result.files["compose.yaml"])["services"].values()
    offered = ["127.0.0.1:8500:8500"] if settings.ssl else ["127.0.0.1:8500:8500", "127.0.0.1:8501:8501"]
    assert service["ports"] == offered
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["user"] == "10001:10001"
    assert service["image"] == result.deployment.image == result.pod["containers"][0]["image"]
    models = service["build"]["additional_contexts"]["models"]
    assert not os.path.isabs(models) and (base.parent / "out" / models).resolve() == base.resolve()
    assert (service.get("secrets") is not None) == settings.ssl


def test_the_tag_depends_on_the_content(push, tmp_path):
    """Nodes cache images by tag: a patched base image or a re-pushed version needs another one."""

    def tag(settings=None):
        made = generate(tmp_path / "serving", tmp_path / "out", "bert", settings or DeploySettings(), None, None)
        assert f"image: {made.image}" in made.files["kubernetes/deployment.yaml"]
        assert made.image in made.files["compose.yaml"] and made.image in made.files["README.md"]
        return made.image

    version = push(tmp_path / "serving", 7, size=10)
    first = tag()
    assert re.fullmatch(r"bert-tf-serving:7-[0-9a-f]{10}", first) and tag() == first
    bases = [f"tensorflow/serving:2.99.0@sha256:{digit * 64}" for digit in "12"]
    others = {tag(DeploySettings(base_image=base)) for base in bases}
    (version / "variables" / "variables.index").write_bytes(b"0123456789")
    others.add(tag())
    (version / "variables" / "variables.index").rename(version / "variables" / "other")
    others.add(tag())
    others.add(tag(DeploySettings(max_batch_size=8)))
    assert len({first, *others}) == 6
    (version / "model.weights.h5").write_bytes(b"not in the image")
    assert tag() in others
