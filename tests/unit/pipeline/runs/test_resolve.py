"""A request resolved: its recipe, its files with their fingerprints, its initial model; and what is refused."""

import dataclasses
import hashlib
import json
import re
import shutil

import pytest
from apache_beam.io.filesystems import FileSystems

from bert_keras.convert import formats
from bert_keras.errors import InputError
from bert_keras.notices import recorded
from components.corpus_gen.filters.leaks import LeakTable
from components.corpus_gen.inputs import read_input_list
from components.corpus_gen.settings import CorpusSettings
from components.evaluator.minimal_pairs import read_pairs
from components.task_example_gen.evaluation_sets import with_leak_table
from pipeline import stages
from pipeline.recipes.settings import settings_of
from pipeline.runners.run_steps import graph_of
from pipeline.runs import resolve as resolving
from pipeline.runs.request import FINETUNE, PRETRAIN, RunRequest
from pipeline.runs.resolve import checked_sets, leak_warning, resolve, without_inputs
from pipeline.runs.run_dir import notices_file
from pipeline.runs.spec import InitialFiles, RunSpec
from tests.support.examples.object_stores import in_memory

SECOND_PHASE = ("second_phase.num_train_steps=10", "second_phase.max_seq_length=128")
DECLARED = {value for name, value in vars(stages).items() if name.isupper() and isinstance(value, str)}


@pytest.fixture
def inputs_of(tmp_path):
    """`inputs_of(*settings, **request)`: the inputs of a pre-training on one sentence."""
    (tmp_path / "text.txt").write_text("A sentence.")

    def inputs_of(*settings, **request):
        values = {"corpus": (f"{tmp_path}/text.txt",), "settings": settings} | request
        return resolve(RunRequest("tiny_cpu", str(tmp_path / "run"), **values), "1").inputs

    return inputs_of


@pytest.mark.parametrize(("recipe", "workflow"), [("tiny_cpu", PRETRAIN), ("bert_base", PRETRAIN), ("sst-2", FINETUNE)])
def test_a_recipe_has_its_workflow(recipe, workflow):
    spec = without_inputs(RunRequest(recipe, "/runs"))
    assert spec.workflow is workflow and spec.request.name == f"bert-{workflow.name}"
    assert set(workflow.tuned.values()) <= set(settings_of(spec.recipe))
    assert without_inputs(RunRequest(recipe, "/runs", name="mine")).request.name == "mine"
    assert set(PRETRAIN.inputs) & set(FINETUNE.inputs) == {"init", "cased", "teacher"}


@pytest.mark.parametrize(
    ("recipe", "settings", "read"),
    [
        ("tiny_cpu", (), "PretrainExampleGen"),
        ("tiny_cpu", SECOND_PHASE, "PretrainExampleGen_second_phase"),
        ("sst-2", ("search.enabled=true",), "TaskExampleGen"),
    ],
)
def test_the_nodes_are_the_declared_stages(recipe, settings, read):
    """What is not declared is TFX's own: nothing here reads its artifacts. The Evaluator reads the judged phase's."""
    spec = without_inputs(RunRequest(recipe, "/runs", settings=settings))
    graph = graph_of(spec)
    assert {stages.stage_of(node) for node in graph} - DECLARED <= {"StatisticsGen", "ExampleValidator"}
    phase = getattr(spec.recipe, "judged_phase", stages.FIRST_PHASE)
    generator = stages.PRETRAIN_EXAMPLE_GEN if recipe == "tiny_cpu" else stages.TASK_EXAMPLE_GEN
    assert generator + phase == read
    assert [node for node in graph[stages.EVALUATOR] if "ExampleGen" in node] == [read]


def test_a_spec_is_read_as_it_was_written(inputs_of, tmp_path):
    """With the fingerprints of all texts, and their lists."""
    (tmp_path / "old.txt").write_text("Old words.")
    (tmp_path / "vocab.txt").write_text("a\n")
    request = RunRequest(
        "tiny_cpu",
        str(tmp_path / "run"),
        corpus=(f"{tmp_path}/text.txt",),
        replay=(f"{tmp_path}/old.txt",),
        vocab=f"{tmp_path}/vocab.txt",
        settings=("training.seed=7", "training.budget=2h"),
    )
    spec = resolve(request, "1")
    spec.write("1")
    assert RunSpec.read(str(tmp_path / "run"), "1") == spec
    assert [file.path for file in read_input_list(spec.inputs.corpus.path)] == [f"{tmp_path}/text.txt"]
    assert spec.inputs.vocabulary.path == f"{tmp_path}/vocab.txt"
    assert set(spec.inputs.fingerprints.values()) == {spec.inputs.corpus.fingerprint, spec.inputs.replay.fingerprint}
    (tmp_path / "text.txt").write_text("A sentencE.")
    assert resolve(request, "2").inputs.corpus.fingerprint != spec.inputs.corpus.fingerprint


def test_a_spec_of_another_version_is_one_line(tmp_path):
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "1.json").write_text('{"recipe": "tiny_cpu", "run_dir": "/runs"}')
    with pytest.raises(InputError, match=r"1\.json: another version of bert-tfx compiled this run; start a new run$"):
        RunSpec.read(str(tmp_path), "1")


def test_the_initial_model_is_its_files(tmp_path):
    """Their names below the folder, their contents, and a licence among them."""
    folder = tmp_path / "a[b]"
    (folder / "a").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    before = resolving._initial_files(str(folder))
    of_file = hashlib.sha256(b"{}").hexdigest()
    assert before == InitialFiles(str(folder), hashlib.sha256(f"config.json\0{of_file}\0".encode()).hexdigest(), "")
    shutil.copytree(folder, tmp_path / "copy")
    assert resolving._initial_files(str(tmp_path / "copy")).sha256 == before.sha256
    (folder / "a" / "Licence.md").write_text("MIT")
    after = resolving._initial_files(str(folder))
    assert after.licence == "a/Licence.md" and after.sha256 != before.sha256


def test_a_corpus_is_checked_against_a_table_of_evaluation_sets(inputs_of, tmp_path):
    tables = set()
    for text in ("a b", "a b", "a c"):
        (tmp_path / "dev.tsv").write_text(f"sentence\tlabel\n{text}\t1\n")
        inputs = inputs_of(f"corpus.decontaminate={tmp_path}/dev.tsv")
        tables.add(inputs.leaks)
        (evaluation_set,) = LeakTable.read(inputs.leaks).sets
        assert inputs.checked == [{"name": "dev.tsv", "sha256": evaluation_set["sha256"], "unread": 0}]
        assert inputs.leaks.startswith(f"{tmp_path}/run/inputs/leaks-") and evaluation_set["texts"] == 1
    assert len(tables) == 2
    assert (inputs_of().leaks, inputs_of().checked) == ("", [])


def pair(good):
    return {"sentence_good": good, "sentence_bad": "a a", "UID": "u", "linguistics_term": "t"}


def test_minimal_pairs_are_read_before_any_stage(inputs_of, tmp_path):
    def pairs(*rows):
        (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return inputs_of(f"gate.minimal_pairs={tmp_path}/*.jsonl").pairs

    first, again, other = pairs(pair("a b")), pairs(pair("a b")), pairs(pair("a c"))
    assert first == again != other and first.startswith(f"{tmp_path}/run/inputs/minimal_pairs-")
    assert read_pairs([other], "") == read_pairs([f"{tmp_path}/pairs.jsonl"], "")
    with pytest.raises(InputError, match=r"pairs\.jsonl, line 2: has no text under 'UID'"):
        pairs(pair("a b"), pair("a b") | {"UID": ""})
    assert inputs_of().pairs == ""


@pytest.mark.parametrize(
    ("given", "settings", "line"),
    [
        (
            {"corpus": ("web={0}",)},
            ("training.source_weights=web:1,law:2",),
            "training.source_weights: law is no source of the examples; the sources are web",
        ),
        (
            {"corpus": ("web={0}", "law={1}")},
            ("training.source_weights=web:1",),
            "training.source_weights: law has no number; the sources are law, web",
        ),
        ({"corpus": ("{0}",)}, ("corpus.source_power=0.3",), "corpus.source_power: the text has no sources; name them"),
        (
            {"corpus": ("{0}",)},
            ("gate.max_source_perplexity_increase=0.1",),
            "gate.max_source_perplexity_increase: the text has no sources; name them with --corpus NAME=GLOB",
        ),
        ({"corpus": ("{0}",), "replay": ("old={1}",)}, (), "old=: only --corpus has sources with names"),
        ({}, ("vocabulary.extend=3",), "vocabulary.extend adds words to a vocabulary: give --init or --vocab"),
        ({"reference_corpus": ("{0}",)}, (), "--reference-corpus: shows what an initial model forgets; give --init"),
        ({}, ("gate.max_forgetting=0.1",), "gate.max_forgetting: is measured on general text; give it with"),
        ({"vocab": "{0}x"}, (), "a.txtx: no such file; --vocab takes a vocab.txt"),
        ({"init": "latest"}, (), "has no pushed version; give a model for the first run"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_stage(inputs_of, tmp_path, given, settings, line):
    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    for path in paths:
        path.write_text("A sentence.\n")
    given = {
        option: patterns.format(*paths)
        if isinstance(patterns, str)
        else tuple(pattern.format(*paths) for pattern in patterns)
        for option, patterns in given.items()
    }
    with pytest.raises(InputError, match=re.escape(line)):
        inputs_of(*settings, **given)


@pytest.fixture
def task(tmp_path, monkeypatch):
    """A fine-tuning on two rows, from a folder whose format is not looked at."""
    monkeypatch.setattr(resolving, "format_of", lambda directory: "bert-tfx")
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("sentence\tlabel\nit 's fun\t1\n")
    (tmp_path / "serving/1/assets.extra").mkdir(parents=True)
    return RunRequest("sst-2", str(tmp_path / "run"), data=str(tmp_path), init=str(tmp_path / "serving/1"))


def test_a_model_whose_corpus_was_not_checked_is_a_notice(task, tmp_path, capsys):
    lineage_file = tmp_path / "serving/1/assets.extra/lineage.json"
    for number, (lineage, says) in enumerate(
        (({"decontaminated": []}, "was not checked"), ({}, "unknown whether"), (None, ""))
    ):
        lineage_file.unlink(missing_ok=True)
        if lineage is not None:
            lineage_file.write_text(json.dumps(lineage))
        spec = resolve(task, str(number))
        said = capsys.readouterr().err
        assert says in said and said.count("\n") == bool(says)
        assert len(recorded(notices_file(task.run_dir, spec.request.run_name(str(number))))) == bool(says)


def test_a_directory_that_serves_another_task_is_refused(task, inputs_of, tmp_path):
    """Once a model is pushed, whatever ran since."""
    resolve(task, "1").write("1")
    inputs_of()
    pushed = tmp_path / "run" / "serving" / "1"
    pushed.mkdir(parents=True)
    inputs_of()
    with pytest.raises(InputError, match=r"/run: serves models of pre-training; give sst-2 another --run-dir \("):
        resolve(task, "2")
    (pushed / "task_spec.json").write_text('{"task": "sst-2"}')
    resolve(task, "2")
    with pytest.raises(InputError, match=r"/run: serves models of sst-2; give pre-training another --run-dir \("):
        inputs_of()


def test_rows_are_fingerprinted(task, tmp_path):
    before = resolve(task, "1").inputs
    assert before.rows == {"train": [f"{tmp_path}/train.tsv"], "eval": [f"{tmp_path}/dev.tsv"]}
    assert set(before.fingerprints.values()) == {before.rows_fingerprint, before.initial_model.sha256}
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nit 's bad\t0\n")
    assert resolve(task, "2").inputs.rows_fingerprint != before.rows_fingerprint


def test_a_fine_tuning_needs_a_model(task, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="give the initial checkpoint, --init DIR"):
        resolve(dataclasses.replace(task, init=None), "1")
    monkeypatch.setattr(resolving, "format_of", formats.format_of)
    (tmp_path / "empty").mkdir()
    for init, line in (
        ("empty", "unknown model format"),
        ("nothing", "no such folder"),
        (".", rf"is a folder of several versions, not a model; give --init {tmp_path}/\./serving/1"),
    ):
        with pytest.raises(InputError, match=line):
            resolve(dataclasses.replace(task, init=f"{tmp_path}/{init}"), "1")


def test_the_rows_of_a_task_may_lie_in_a_bucket(tmp_path, monkeypatch):
    """Beam's S3 asks for the pipeline's options, which a command has not set before."""
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    in_memory(monkeypatch, "s3").write("s3://bucket/SST-2/train.tsv", b"sentence\tlabel\na\t1\n")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    request = RunRequest("sst-2", str(tmp_path / "run"), init=str(tmp_path), data="s3://bucket/SST-2")
    assert resolve(request, "1").inputs.rows == {"train": ["s3://bucket/SST-2/train.tsv"]}


@pytest.fixture
def data(tmp_path):
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.tsv").write_text(f"sentence\tlabel\nthis is {name}\t1\n")
    return lambda name: str(tmp_path / f"{name}.tsv")


def version(tmp_path, name, lineage):
    """A pushed version with this lineage."""
    extra = tmp_path / name / "assets.extra"
    extra.mkdir(parents=True)
    (extra / "lineage.json").write_text(lineage if isinstance(lineage, str) else json.dumps(lineage))
    return str(tmp_path / name)


def checked(tmp_path, *paths, init=None):
    (table,) = with_leak_table(CorpusSettings(decontaminate=paths), str(tmp_path)).decontaminate
    return checked_sets(table, init)


def test_a_version_that_was_checked_needs_no_warning(tmp_path, data):
    sets = checked(tmp_path, data("dev"), data("test"))
    assert [one["name"] for one in sets] == ["dev.tsv", "test.tsv"] and {*sets[0]} == {"name", "sha256", "unread"}
    init = version(tmp_path, "1", {"decontaminated": sets})
    assert leak_warning(init, {"train": [data("train")], "eval": [data("dev")], "test": [data("test")]}) == ""


def test_rows_that_could_not_be_read_are_named(tmp_path, data):
    with open(data("dev"), "ab") as file:
        file.write(b"caf\xe9\t1\n")
    (checked_set,) = checked(tmp_path, data("dev"))
    splits = {"train": [data("train")], "eval": [data("dev")]}
    line = leak_warning(version(tmp_path, "1", {"decontaminated": [checked_set]}), splits)
    assert checked_set["unread"] == 1 and f"not checked for texts of 1 unreadable row(s) of {data('dev')}, so" in line


def test_files_that_were_not_checked_are_named(tmp_path, data):
    init = version(tmp_path, "1", {"decontaminated": checked(tmp_path, data("dev"))})
    line = leak_warning(init, {"train": [data("train")], "eval": [data("dev")], "test": [data("test")]})
    assert line.startswith(f"--init {init}: its corpus was not checked for texts of {data('test')}, so scores may be")
    # Rows are held out from the training file.
    line = leak_warning(init, {"train": [data("train")], "test": [data("test")]})
    assert f"texts of {data('train')}, {data('test')}, so" in line and "\n" not in line
    never = version(tmp_path, "2", {"decontaminated": checked_sets("", None)})
    assert f"texts of {data('dev')}, so" in leak_warning(never, {"train": [data("train")], "eval": [data("dev")]})


@pytest.mark.parametrize("lineage", [{"version": "1"}, {"decontaminated": None}, "[]", "{"])
def test_a_version_without_the_record_is_unknown(tmp_path, data, lineage):
    init = version(tmp_path, "1", lineage)
    assert leak_warning(init, {"train": [data("train")], "eval": [data("dev")]}) == (
        f"--init {init}: unknown whether its corpus has texts of {data('dev')} (docs/corpus.md)"
    )


def test_nothing_is_said_of_models_that_were_not_pushed_here(tmp_path, data):
    assert leak_warning(str(tmp_path), {"train": [data("train")]}) == ""


def test_a_continued_model_lacks_only_what_both_corpora_lack(tmp_path, data):
    init = version(tmp_path, "1", {"decontaminated": checked(tmp_path, data("dev"))})
    both = checked(tmp_path, data("dev"), data("test"), init=init)
    assert [one["name"] for one in both] == ["dev.tsv"]
    assert checked(tmp_path, data("dev"), init=str(tmp_path)) is None
    assert checked_sets("", init) == []
