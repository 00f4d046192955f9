"""A pipeline as plain data for Airflow: its commands and parameters, without secrets."""

import dataclasses
import json

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from bert_keras.errors import InputError
from pipeline.cli import app
from pipeline.commands.compile.airflow import LOADER, LOADER_NAME, _parameter
from pipeline.runners.airflow_plan import AirflowPlan, AirflowTaskPolicy
from pipeline.runs.request import VOCAB_OPTION


def parameters(**defaults):
    return {name: _parameter(name, value) for name, value in defaults.items()}


PLAN = AirflowPlan(
    name="mine",
    recipe="tiny_cpu",
    command=["/env/bin/bert-tfx"],
    run_dir="/runs/mine",
    metadata="mysql://mlmd@db/mlmd",
    nodes={"CorpusGen": [], "Trainer": ["CorpusGen"]},
    parameters=parameters(corpus=["/text"], vocab=None, settings=[]),
    beam_args=[],
    schedule=None,
    tasks=AirflowTaskPolicy(),
)


def parsed(words):
    """Name and parameters of a plan's command, as `bert-tfx` parses it."""
    assert words[0] == "/env/bin/bert-tfx"
    command, rest = typer.main.get_command(app), words[1:]
    while hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    return command.name, command.make_context(command.name, rest).params


def test_a_plan_is_read_as_it_was_written(tmp_path):
    PLAN.write(tmp_path / "mine.json")
    assert AirflowPlan.read(tmp_path / "mine.json") == PLAN
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]


def test_the_first_task_compiles_with_the_trigger_s_parameters():
    asked = {"corpus": ["/a b", "gs://c/*"], "vocab": "/v.txt", "settings": ["model.vocab_size=99"]}
    name, params = parsed(PLAN.compile_words(asked, "manual__2026-01-02T03:04:05+00:00"))
    assert name == "nodes" and params["recipe"] == "tiny_cpu" and params["run_dir"] == "/runs/mine"
    assert params["run_id"] == "manual__2026-01-02T03:04:05+00:00" and params["name"] == "mine"
    assert params["corpus"] == ["/a b", "gs://c/*"] and params["vocab"] == "/v.txt"
    assert params["settings"] == ["model.vocab_size=99"] and params["metadata"] == "mysql://mlmd@db/mlmd"
    assert params["expect"] == "CorpusGen,Trainer"


@pytest.mark.parametrize(("cased", "said"), [(True, True), (False, False), (None, None)])
def test_a_fine_tuning_has_its_own_options(cased, said):
    asked = {"data": "/d", "train": ["/t"], "held_out": ["/e"], "test": [], "init": "/i", "cased": cased}
    plan = dataclasses.replace(PLAN, recipe="mrpc", parameters=parameters(**dict.fromkeys(asked)), metadata="")
    _, params = parsed(plan.compile_words(asked, "r"))
    assert (params["data"], params["train"], params["held_out"], params["test"]) == ("/d", ["/t"], ["/e"], [])
    assert (params["init"], params["cased"], params["metadata"]) == ("/i", said, "")


def test_beam_arguments_come_last():
    plan = dataclasses.replace(PLAN, beam_args=["--runner=DataflowRunner", "--project=p"])
    assert plan.compile_words({}, "r")[-3:] == ["--", "--runner=DataflowRunner", "--project=p"]


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ValueError, match="corpora: no such run parameter; there are corpus, vocab, settings"):
        PLAN.compile_words({"corpora": ["/a"]}, "r")


def test_a_node_is_run_and_the_run_finished():
    name, params = parsed(PLAN.node_words("Trainer", "r", again=False))
    assert name == "run-node"
    assert params == {"node": "Trainer", "run_dir": "/runs/mine", "run_id": "r", "again": False}
    assert parsed(PLAN.node_words("Trainer", "r", again=True))[1]["again"]
    name, params = parsed(PLAN.finish_words("r"))
    assert name == "finish"
    assert params == {"run_dir": "/runs/mine", "run_id": "r", "outcome": None}


def test_run_ids_that_are_not_file_names_are_hashed():
    names = [PLAN.finish_words(run_id)[-1] for run_id in ("a/b", "~a", "-x", "a" * 250)]
    assert len(set(names)) == 4 and all(name.startswith("run-") and len(name) == 20 for name in names)


def test_training_has_its_own_timeout_and_pool():
    tasks = AirflowTaskPolicy(training_pool="gpus")
    found = {node: (tasks.timeout_seconds(node), tasks.pool(node)) for node in ("Trainer_second_phase", "Evaluator")}
    assert found == {"Trainer_second_phase": (168 * 3600, "gpus"), "Evaluator": (6 * 3600, "default_pool")}


def test_a_schedule_is_cron_s_or_an_asset():
    assert not PLAN.follows_asset and not dataclasses.replace(PLAN, schedule="0 3 * * *").follows_asset
    assert dataclasses.replace(PLAN, schedule=PLAN.pushed_models).follows_asset
    assert dataclasses.replace(PLAN, run_dir="/runs/a b").pushed_models == "file:///runs/a%20b/serving"


def test_what_an_earlier_version_did_not_write_has_its_default(tmp_path):
    fields = dataclasses.asdict(PLAN)
    del fields["password_connection"], fields["tasks"]["training_pool"]
    (tmp_path / "mine.json").write_text(json.dumps(fields))
    assert AirflowPlan.read(tmp_path / "mine.json") == PLAN
    (tmp_path / "mine.json").write_text(json.dumps(fields | {"parameters": {"corpus": ["/text"]}}))
    with pytest.raises(ValueError, match=r"mine\.json: of another version of bert-tfx; run `bert-tfx compile airflow`"):
        AirflowPlan.read(tmp_path / "mine.json")


@pytest.mark.parametrize("content", ['{"a": 1}', "[]", "{", "\xff"])
def test_other_json_beside_the_plans_is_none(tmp_path, content):
    """Airflow's variables, for example: an error would take all DAGs away."""
    (tmp_path / "variables.json").write_text(content, "latin-1")
    assert AirflowPlan.read(tmp_path / "variables.json") is None


def read(path):
    """A compiled plan; Airflow starts no run whose parameters do not match their schemas."""
    plan = AirflowPlan.read(path)
    for parameter in plan.parameters.values():
        jsonschema.validate(parameter.default, parameter.schema)
    return plan


def test_an_initial_model_adds_two_nodes(tmp_path, monkeypatch):
    """Its folder is on the workers' volume, not on the machine that compiles."""
    monkeypatch.chdir(tmp_path)
    words = ["--run-dir", "run", "--output", tmp_path / "dags", "--name", "n", "--corpus", "text"]
    assert "DAG n, 14 nodes" in invoke("continued", *words, "--init", "/volume/bert", "--cased").stdout
    plan = read(tmp_path / "dags" / "n.json")
    assert set(plan.nodes["InitialModel"]) == {"InitialSource", "PretrainExampleGen"}
    assert "InitialModel" in plan.nodes["Trainer"] and "InitialModel" in plan.nodes["Baseline"]
    assert (plan.parameters["init"].default, plan.parameters["cased"].default) == ("/volume/bert", True)
    # Looked up in each run, with the documents that it has read.
    assert "DAG n, 15 nodes" in invoke("continued", *words, "--init", "latest").stdout
    assert read(tmp_path / "dags" / "n.json").parameters["init"].default == "latest"


def invoke(*words):
    done = CliRunner().invoke(app, ["compile", "airflow", *map(str, words)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_a_recipe_is_compiled_for_airflow(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_TFX_METADATA_PASSWORD", "planted")
    monkeypatch.chdir(tmp_path)
    words = ["--run-dir", "run", "--output", tmp_path / "dags", "--name", "n", "--corpus", "web=text", "--retries", 7]
    done = invoke("tiny_cpu", *words, "--metadata", "mysql://u@h/d", "--set", "model.vocab_size=99")
    assert "DAG n, 12 nodes" in done.stdout
    plan = read(tmp_path / "dags" / "n.json")
    assert plan.nodes["Trainer"] and set(plan.nodes["VocabGen"]) == {"CorpusGen"}
    seen = set()
    for node, upstreams in plan.nodes.items():
        assert set(upstreams) <= seen
        seen.add(node)
    assert plan.run_dir == str(tmp_path / "run") and plan.tasks.retries == 7
    given = {
        "corpus": [f"web={tmp_path}/text"],
        "reference_corpus": [],
        "replay": [],
        "settings": ["model.vocab_size=99"],
    }
    defaults = {name: parameter.default for name, parameter in plan.parameters.items()}
    assert defaults == {**dict.fromkeys(("vocab", "init", "cased", "teacher")), **given}
    assert (plan.parameters["reference_corpus"].option, plan.parameters["settings"].option) == (
        "--reference-corpus",
        "--set",
    )
    assert plan.parameters["vocab"].description == VOCAB_OPTION.help
    assert not (tmp_path / "run").exists()  # nothing has run yet
    assert not [path for path in (tmp_path / "dags").iterdir() if "planted" in path.read_text()]


def test_the_file_of_the_dags_is_the_user_s_after_the_first_time(tmp_path):
    words = ["--run-dir", tmp_path, "--output", tmp_path / "dags", "--name", "n", "--corpus", "/text"]
    invoke("tiny_cpu", *words)
    loader = tmp_path / "dags" / LOADER_NAME
    assert loader.read_text() == LOADER
    loader.write_text("mine")
    options = ["--password-connection", "mlmd", "--training-pool", "gpus", "--schedule", "file:///runs/a/serving"]
    invoke("tiny_cpu", *words, *options)
    plan = read(tmp_path / "dags" / "n.json")
    assert (plan.password_connection, plan.tasks.training_pool, plan.follows_asset) == ("mlmd", "gpus", True)
    assert loader.read_text() == "mine"


def test_a_task_is_compiled_for_airflow(tmp_path):
    invoke("mrpc", "--run-dir", tmp_path, "--output", tmp_path / "dags", "--init", "/bert", "--data", "/MRPC")
    plan = read(tmp_path / "dags" / "bert-finetune.json")
    inputs = ["data", "train", "held_out", "test", "init", "cased", "teacher", "unlabelled"]
    assert list(plan.parameters) == [*inputs, "settings"]
    assert "Trainer" in plan.nodes and "CorpusGen" not in plan.nodes
    assert (plan.parameters["init"].default, plan.parameters["held_out"].option) == ("/bert", "--eval")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["tiny_cpu", "--data", "/rows"],
            "it takes corpus, reference_corpus, replay, vocab, init, cased, teacher, settings",
        ),
        (["tiny_cpu", "--set", "model.size=1"], "model.size is not a setting"),
        (["tiny_cpu", "--set", "gate.minimal_pairs=/a.jsonl,b.jsonl"], "minimal_pairs=b.jsonl: give an absolute path"),
        (["tiny_cpu", "--set", "corpus.decontaminate=dev.tsv"], "decontaminate=dev.tsv: give an absolute path"),
        (["tiny_cpu", "--metadata", "mysql://u:secret@h/d"], "holds a password"),
    ],
)
def test_bad_input_is_refused_at_compilation(tmp_path, words, told):
    with pytest.raises(InputError, match=told):
        invoke(*words, "--run-dir", tmp_path, "--output", tmp_path / "dags")
    assert not (tmp_path / "dags").exists()
