"""`corpus.decontaminate` from the request to the stages, and what `finetune` says."""

import json

import pytest

from bert_keras.convert import detect
from components.corpus_gen.filters.leaks import LeakTable
from components.corpus_gen.settings import CorpusSettings
from pipeline.runs.request import RunRequest
from pipeline.workflows.finetune import FineTuneWorkflow
from pipeline.workflows.pretrain import PretrainWorkflow

ARGS = ["--runner=FnApiRunner"]


@pytest.fixture
def pipelines(tmp_path):
    """`pipelines(content)` writes dev.tsv and gives the components of the pipeline that is checked against it."""
    (tmp_path / "text.txt").write_text("A sentence.")

    def pipelines(content, **options):
        (tmp_path / "dev.tsv").write_text(content)
        settings = (f"corpus.decontaminate={tmp_path}/dev.tsv",) if content else ()
        request = RunRequest(
            "tiny_cpu", str(tmp_path / "run"), corpus=(f"{tmp_path}/text.txt",), settings=settings, **options
        )
        workflow = PretrainWorkflow()
        made = workflow.create_pipeline(request, workflow.find_inputs(request), ARGS)
        return {component.id: component.exec_properties for component in made.components}

    return pipelines


def settings_of(properties):
    return json.loads(properties["settings"])


def test_the_stages_get_the_table_and_the_record(pipelines, tmp_path):
    properties = pipelines("sentence\tlabel\nit 's fun\t1\n", replay=(f"{tmp_path}/text.txt",))
    (table,) = settings_of(properties["CorpusGen"])["decontaminate"]
    (one,) = LeakTable.read(table).sets
    assert table.startswith(f"{tmp_path}/run/inputs/leaks-") and one["texts"] == 1
    assert settings_of(properties["CorpusGen_replay"])["decontaminate"] == [table]
    checked = json.loads(properties["ModelPush"]["custom_config"])["decontaminated"]
    assert checked == [{"name": "dev.tsv", "sha256": one["sha256"], "unread": 0}]


def test_other_content_of_a_set_misses_the_cache(pipelines):
    first, again, other = (pipelines(f"sentence\tlabel\n{text}\t1\n")["CorpusGen"] for text in ("a b", "a b", "a c"))
    assert first == again != other


def test_without_sets_nothing_is_checked(pipelines):
    properties = pipelines("")
    assert settings_of(properties["CorpusGen"])["decontaminate"] == list(CorpusSettings().decontaminate) == []
    assert json.loads(properties["ModelPush"]["custom_config"]) == {"decontaminated": []}


def test_finetune_warns_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(detect, "format_of", lambda directory: "bert-tfx")
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("sentence\tlabel\nit 's fun\t1\n")
    init = tmp_path / "serving/1"
    (init / "assets.extra").mkdir(parents=True)
    request = RunRequest("sst-2", str(tmp_path / "run"), data=str(tmp_path), init=str(init))
    for lineage, says in (({"decontaminated": []}, "was not checked"), ({}, "unknown whether"), (None, "")):
        (init / "assets.extra/lineage.json").unlink(missing_ok=True)
        if lineage is not None:
            (init / "assets.extra/lineage.json").write_text(json.dumps(lineage))
        FineTuneWorkflow().find_inputs(request)
        said = capsys.readouterr().err
        assert says in said and said.count("\n") == bool(says)
