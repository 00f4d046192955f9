"""`bert-tfx models`: the list, the configuration written for servers, and refusals."""

import json
import os
import subprocess
import sys

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from bert_keras.errors import InputError
from pipeline.runs import served_versions
from pipeline.runs.served_versions import CONFIG_FILE, read_labels, served_version, write_labels
from tests.support.pipeline.command_line import bert_tfx

LINEAGE = {
    "version": "2",
    "pushed": "2026-01-02T03:04:05Z",
    "blessed": "2026-01-02T03:03:59Z",
    "pipeline": "bert-pretrain",
    "run": "2026-01-02T02:50:01",
    "model": 41,
    "steps": 3000,
    "scores": {"mlm_perplexity": 46.234},
}


@pytest.fixture
def run_dir(tmp_path):
    """A run directory with versions 1, 2 and 10; version 2 has a lineage."""
    for version in ("1", "2", "10"):
        (tmp_path / "serving" / version / "assets.extra").mkdir(parents=True)
    (tmp_path / "serving/2/assets.extra/lineage.json").write_text(json.dumps(LINEAGE))
    (tmp_path / "serving/.pushing").mkdir()
    return tmp_path


def models(run_dir, *words):
    return bert_tfx("models", *words, "--run-dir", run_dir)


def config_of(run_dir):
    text = (run_dir / "serving" / CONFIG_FILE).read_text()
    (config,) = text_format.Parse(text, model_server_config_pb2.ModelServerConfig()).model_config_list.config
    return config


def test_the_list_has_each_version_s_lineage_and_marks_the_served_one(run_dir):
    code, out, _ = models(run_dir, "list")
    assert code == 0
    unknown = "no lineage (converted, copied, or pushed by an older bert-tfx)"
    assert out.splitlines() == [
        f"10  newest    {unknown}",
        "2            blessed 2026-01-02T03:03:59Z, pushed 2026-01-02T03:04:05Z; bert-pretrain run 2026-01-02T02:50:01,"
        " model #41, 3000 steps; mlm_perplexity 46.23",
        f"1            {unknown}",
    ]


def test_a_promoted_version_is_served_alone_as_tensorflow_serving_reads_it(run_dir):
    code, out, _ = models(run_dir, "promote", "2")
    assert (code, out) == (0, "serving version 2 as stable; a newer one is served once it is promoted\n")
    config = config_of(run_dir)
    assert (config.name, config.base_path) == ("bert", str(run_dir / "serving"))
    assert list(config.model_version_policy.specific.versions) == [2]
    assert dict(config.version_labels) == {"stable": 2}
    assert "\n2  stable    blessed" in "\n" + models(run_dir, "list")[1]
    assert served_version(str(run_dir / "serving")) == 2
    # No temporary files, and readable by a server that runs as another user.
    assert sorted(os.listdir(run_dir / "serving")) == sorted([".pushing", "1", "10", "2", CONFIG_FILE])
    assert (run_dir / "serving" / CONFIG_FILE).stat().st_mode & 0o777 == 0o644


def test_a_canary_is_served_beside_the_stable_version_until_it_is_promoted(run_dir):
    models(run_dir, "promote", "2")
    code, _, err = models(run_dir, "promote", "2", "--label", "canary")
    assert code == 2 and "version 2 cannot be the canary beside itself" in err
    code, out, _ = models(run_dir, "promote", "10", "--label", "canary")
    assert (code, out) == (
        0,
        "serving version 2 as stable, version 10 as canary; a newer one is served once it is promoted\n",
    )
    config = config_of(run_dir)
    assert list(config.model_version_policy.specific.versions) == [2, 10]
    assert dict(config.version_labels) == {"stable": 2, "canary": 10}
    models(run_dir, "promote", "10")
    assert dict(config_of(run_dir).version_labels) == {"stable": 10}


def test_latest_removes_the_labels(run_dir):
    models(run_dir, "promote", "1")
    assert models(run_dir, "promote", "latest")[0] == 0
    config = config_of(run_dir)
    assert config.model_version_policy.latest.num_versions == 1 and not config.version_labels
    assert served_version(str(run_dir / "serving")) == 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["promote", "3"], "3: no such version in"),
        (["promote", "3"], "there are 1, 2, 10"),
        (["promote", "../1"], "../1: no such version in"),
        (
            ["promote", "10", "--label", "canary"],
            "version 10 cannot be the canary beside itself: promote another version",
        ),
        (["promote", "latest", "--label", "canary"], "`latest` cannot be combined with --label"),
        (["list", "--model-dir", "no/such/folder"], "no/such/folder: no such folder; bert-tfx pretrain pushes"),
    ],
)
def test_bad_arguments_are_one_line_and_change_nothing(run_dir, words, message):
    code, _, err = models(run_dir, *words)
    assert code == 2 and message in err and len(err.strip().splitlines()) == 1
    assert not (run_dir / "serving" / CONFIG_FILE).exists()


@pytest.mark.parametrize("text", ["model_config_list { config {", "model_config_list {}", "\0"])
def test_a_damaged_configuration_is_one_line(run_dir, text):
    (run_dir / "serving" / CONFIG_FILE).write_text(text)
    with pytest.raises(InputError, match=r"models\.config: is not the configuration of one model"):
        read_labels(str(run_dir / "serving"))


def test_the_list_shows_deleted_versions_and_damaged_lineages(run_dir):
    write_labels(str(run_dir / "serving"), {"stable": 5})
    (run_dir / "serving/2/assets.extra/lineage.json").write_text("[]")
    out = models(run_dir, "list")[1]
    assert "5  stable    deleted" in out and "lineage.json is damaged (TypeError" in out


def test_a_configuration_is_replaced_atomically(run_dir, monkeypatch):
    folder = run_dir / "serving"
    write_labels(str(folder), {"stable": 1})
    before, names = (folder / CONFIG_FILE).read_bytes(), sorted(os.listdir(folder))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(served_versions.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_labels(str(folder), {"stable": 2})
    assert (folder / CONFIG_FILE).read_bytes() == before and sorted(os.listdir(folder)) == names


def test_the_versions_are_listed_without_the_heavy_libraries(run_dir):
    code = (
        "import sys; from pipeline.commands.server.models import list_versions; "
        f"list_versions({str(run_dir)!r}, None); "
        "sys.exit(','.join({'tensorflow', 'tfx', 'apache_beam'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
