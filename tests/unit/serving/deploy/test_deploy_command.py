"""`bert-tfx deploy tf-serving`: written files, refused arguments, and the README."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bert_keras.errors import InputError
from pipeline.cli import app
from serving.deploy.generate import generate, write_folder
from serving.deploy.settings import CannotDeploy, DeploySettings

ROOT = Path(__file__).parents[4]


def deploy(*words):
    result = CliRunner().invoke(app, ["deploy", "tf-serving", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def contents(path):
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


# The command.


def test_the_command_writes_a_deployment_of_a_run(push, tmp_path):
    for version in (3, 4):
        push(tmp_path / "run" / "serving", version)
    message = deploy("--run-dir", tmp_path / "run", "--output", tmp_path / "out", "--canary", 4, "--cpus", 3)
    assert "bert-tf-serving:3-4" in message and "stable is 3, canary 4; 3 cores" in message
    files = contents(tmp_path / "out")
    assert {"README.md", "Dockerfile", "compose.yaml", "config/models.config"} <= set(files)
    assert not [name for name, text in files.items() if str(tmp_path).encode() in text], "a path of this machine"
    again = tmp_path / "again"
    deploy("--model-dir", tmp_path / "run/serving", "--output", again, "--canary", 4, "--cpus", 3)
    assert contents(again) == files


@pytest.mark.parametrize(
    ("model", "name"), [("123", "model-123"), ("On", "model-on"), ("20.News", "model-20-news"), ("one", "one")]
)
def test_names_are_kubernetes_s(push, tmp_path, model, name):
    """Of a Service they begin with a letter; in YAML `on` is no string."""
    push(tmp_path / "serving", 1)
    deploy("--model-dir", tmp_path / "serving", "--output", tmp_path / "out", "--model-name", model)
    for file in ("kubernetes/service.yaml", "compose.yaml"):
        text = (tmp_path / "out" / file).read_text()
        assert re.search(rf"^ *name: {name}$", text, re.MULTILINE)
    assert f"/models/{model}/".encode() in b"".join(contents(tmp_path / "out").values())


def test_the_command_needs_no_tensorflow(push, tmp_path):
    push(tmp_path / "serving", 1)
    words = f"deploy tf-serving --model-dir {tmp_path}/serving --output {tmp_path}/out --ssl".split()
    heavy = ("tensorflow", "keras", "tfx", "apache_beam")
    code = f"import sys; from pipeline.cli import app; app({words}, standalone_mode=False)\n"
    code += f"print([module for module in {heavy} if module in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == "[]" and (tmp_path / "out" / "ssl.config.template").is_file()


@pytest.mark.parametrize(
    "words, message",
    [
        (["--stable", "5"], r"no version 5 for stable; there are: 7, 8, 9"),
        (["--canary", "5"], r"no version 5 for canary; there are: 7, 8, 9"),
        (["--model-name", "../x"], r"'../x' is not a model name"),
        (["--base-image", "tensorflow/serving"], r"not pinned"),
        (["--base-image", "tensorflow/serving:latest"], r"not pinned"),
        (["--base-image", "a:1\nRUN x"], r"not pinned"),
        (["--repository", "host/bert:1"], r"without a tag"),
        (["--cpus", "0"], r"cpus is 0; it must be 1 or more"),
    ],
)
def test_invalid_options_are_refused_in_one_line(base, tmp_path, words, message):
    with pytest.raises(InputError, match=message) as refused:
        deploy("--model-dir", base, "--output", tmp_path / "out", *words)
    assert "\n" not in str(refused.value) and not (tmp_path / "out").exists()


def test_a_folder_without_versions_is_refused(push, tmp_path):
    for base in (tmp_path / "none", tmp_path):
        with pytest.raises(CannotDeploy, match="contains no version"):
            generate(base, tmp_path / "out", "bert", DeploySettings(), None, None)
    path = push(tmp_path, 1)
    with pytest.raises(CannotDeploy, match="1 is its only version"):
        generate(tmp_path, tmp_path / "out", "bert", DeploySettings(), None, 1)
    (path / "saved_model.pb").write_bytes(b"no proto")
    with pytest.raises(CannotDeploy, match=r"1: not a version that can be served .*; push it again"):
        generate(tmp_path, tmp_path / "out", "bert", DeploySettings(), None, None)


@pytest.mark.parametrize("exported, by", [("1.2.3", "TensorFlow 1.2.3"), ("", "TensorFlow .unknown")])
def test_the_base_image_matches_the_exporting_tensorflow(push, tmp_path, exported, by):
    push(tmp_path, 1, tensorflow=exported)
    with pytest.raises(CannotDeploy, match=rf"{by}.* give --base-image"):
        generate(tmp_path, tmp_path / "out", "bert", DeploySettings(), None, None)
    chosen = DeploySettings(base_image="tensorflow/serving:1.2.3")
    assert generate(tmp_path, tmp_path / "out", "bert", chosen, None, None).base_image == chosen.base_image


def test_the_base_image_is_that_of_the_newest_tensorflow(push, tmp_path):
    for exported, release in (("2.16.2", "2.16.1"), ("2.21.0", "2.21.0"), ("2.16.2", "2.21.0")):
        push(tmp_path, len(list(tmp_path.iterdir())) + 1, tensorflow=exported)
        versions = sorted(int(path.name) for path in tmp_path.iterdir())
        made = generate(tmp_path, tmp_path.parent / "out", "bert", DeploySettings(), versions[-1], versions[-2:][0])
        assert made.base_image == f"tensorflow/serving:{release}"


def test_a_change_of_the_configuration_is_a_new_revision(make):
    def revision(**settings):
        result = make(DeploySettings(**settings))
        return result.kinds["ConfigMap"]["metadata"]["name"], result.kinds["ConfigMap"]["immutable"]

    assert revision() == revision(repository="host/bert")
    assert revision() != revision(max_batch_size=16)


# The folder.


def test_only_a_new_or_empty_folder_is_written(tmp_path):
    output = tmp_path / "new" / "out"
    output.mkdir(parents=True)
    write_folder(output, {"a": "1", "b/c": "2"})
    assert contents(output) == {"a": b"1", "b/c": b"2"}
    for there in (output, output / "a"):
        with pytest.raises(CannotDeploy, match="not an empty folder; remove it, or give another --output"):
            write_folder(there, {"a": "3"})
    assert contents(output) == {"a": b"1", "b/c": b"2"}


# The README.


def test_files_named_in_the_readme_exist(make, settings):
    result = make(settings, canary=8)
    table = re.findall(r"^\| `([^`]+)` \|", result.files["README.md"], re.MULTILINE)
    names = set(result.files)
    assert len(table) >= 4
    for named in table:
        assert any(name == named or (named.endswith("/") and name.startswith(named)) for name in names), named
    top = {name.split("/")[0] for name in names} - {"README.md"}
    assert top == {named.rstrip("/") for named in table}, "a file that is not in the table"
    assert f"-t {result.deployment.image} ." in result.files["README.md"]


def test_the_commands_of_the_readme_are_shell(make, settings):
    blocks = re.findall(r"^```sh\n(.*?)^```", make(settings).files["README.md"], re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        subprocess.run(["bash", "-n", "-c", block], check=True)


def test_steps_are_numbered_without_a_gap(make, settings):
    numbers = [int(n) for n in re.findall(r"^## (\d)\.", make(settings).files["README.md"], re.MULTILINE)]
    assert numbers == list(range(1, 4 + settings.ssl))
