"""Compilation for Kubeflow: steps, order, commands, parameters, volumes."""

import itertools

import kfp.components
import pytest
import typer

from bert_keras.errors import InputError
from pipeline.cli import app
from pipeline.runs.request import FINETUNE, PRETRAIN
from tests.support.pipeline.compiled_for_kubeflow import GRAPH, STEPS, compiled, containers

PLANTED = "planted-metadata-password"
# A graph for tests that do not depend on the order of steps.
SHORT_GRAPH = {"CorpusGen": (), "Trainer": ("CorpusGen",)}
TASK_GRAPH = {"TaskExampleGen": (), "Trainer": ("TaskExampleGen",), "ModelPush": ("Trainer",)}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled") / "pipeline.yaml"


@pytest.fixture(scope="module")
def documents(file):
    return compiled(file, password_secret="metadata/password")


def option(words, name):
    return words[words.index(name) + 1]


def test_kubeflows_own_client_reads_it(documents, file):
    component = kfp.components.load_component_from_file(str(file))
    assert component.name == "bert-pretrain"
    assert set(component.component_spec.inputs) == {"recipe", "corpus", "settings", *PRETRAIN.tuned}


def test_compilation_is_reproducible(documents, file, tmp_path):
    compiled(tmp_path / "again.yaml", password_secret="metadata/password")
    assert (tmp_path / "again.yaml").read_bytes() == file.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.yaml"]


def test_every_step_is_a_container_and_nothing_else(documents):
    """An open-source backend may lack importers and resolvers."""
    executors = documents[0]["deploymentSpec"]["executors"]
    assert {kind for executor in executors.values() for kind in executor} == {"container"}
    assert set(containers(documents[0])) == {*STEPS, "pushed"}
    assert {container["image"] for container in containers(documents[0]).values()} == {"bert-tfx:0.1.0"}


def test_steps_follow_the_upstream_nodes(documents):
    tasks = documents[0]["root"]["dag"]["tasks"]
    names = dict(zip(GRAPH, STEPS[1:-1], strict=True))
    for node, upstream in GRAPH.items():
        after = {names[name] for name in upstream} or {"compile"}
        assert set(tasks[names[node]]["dependentTasks"]) == after, node
    assert tasks["finish"]["dependentTasks"] == ["model-push"]
    (last,) = set(tasks) - set(STEPS)
    assert tasks[last]["triggerPolicy"]["condition"].endswith("finish-outcome'] == 'pushed'")


def test_metadata_in_one_file_takes_one_step_at_a_time(tmp_path):
    spec, _ = compiled(tmp_path / "p.yaml", request={"metadata": "sqlite:/runs/metadata.sqlite"})
    tasks = spec["root"]["dag"]["tasks"]
    assert [tasks[step]["dependentTasks"] for step in STEPS[1:]] == [[step] for step in STEPS[:-1]]


@pytest.mark.parametrize("step", [*STEPS, "pushed"])
def test_commands_are_those_of_the_command_line(documents, step):
    container = containers(documents[0])[step]
    assert container["command"] == ["bert-tfx"]
    # Filled in like a backend does; `command` has no placeholders.
    words = [word if "{{$" not in word else filled(word) for word in container["args"]]
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    context = command.make_context(step, words)  # raises on an unknown option or a missing argument
    assert context.params["run_dir"] == "/runs/bert-pretrain"
    assert context.params.get("run_id") == (None if step == "pushed" else "RUN")


def filled(word):
    for name, value in {"run_id": "RUN", "settings": "[]", "corpus": '["a"]'}.items():
        word = word.replace(f"{{{{$.inputs.parameters['{name}']}}}}", value)
    return word


def test_the_run_id_comes_from_the_backend(documents):
    """As a whole input: backends do not replace placeholders inside longer texts."""
    for name, task in documents[0]["root"]["dag"]["tasks"].items():
        if name in STEPS:
            assert task["inputs"]["parameters"]["run_id"] == {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}


def test_parameters_default_to_the_recipe_s_values(tmp_path):
    settings = ("training.num_train_steps=600", "gate.min_mlm_accuracy=0.02", "model.hidden_size=32")
    request = {"settings": settings, "corpus": ("gs://text/*.txt", "/runs/more.txt")}
    spec, _ = compiled(tmp_path / "p.yaml", graph=SHORT_GRAPH, request=request)
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert {name: about["defaultValue"] for name, about in parameters.items()} == {
        "recipe": "tiny_cpu",
        "corpus": ["gs://text/*.txt", "/runs/more.txt"],
        "settings": ["model.hidden_size=32"],
        "num_train_steps": 600,
        "max_mlm_perplexity": 100.0,
        "min_mlm_accuracy": 0.02,
        "min_nsp_accuracy": 0.5,
    }
    assert {name: about["parameterType"] for name, about in parameters.items()} == {
        "recipe": "STRING",
        "corpus": "LIST",
        "settings": "LIST",
        "num_train_steps": "NUMBER_INTEGER",
        **dict.fromkeys(("max_mlm_perplexity", "min_mlm_accuracy", "min_nsp_accuracy"), "NUMBER_DOUBLE"),
    }
    words = containers(spec)["compile"]["args"]
    sets = [after for word, after in itertools.pairwise(words) if word == "--set"]
    assert sets == [f"{s}={{{{$.inputs.parameters['{n}']}}}}" for n, s in PRETRAIN.tuned.items()]


def test_a_budget_takes_the_place_of_the_number_of_steps(tmp_path):
    """Both would be refused in the first step."""
    spec, _ = compiled(tmp_path / "p.yaml", graph=SHORT_GRAPH, request={"settings": ("training.budget=2h",)})
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert parameters["settings"]["defaultValue"] == ["training.budget=2h"]
    assert set(parameters) == {"recipe", "corpus", "settings", *PRETRAIN.tuned} - {"num_train_steps"}
    assert not any("num_train_steps" in word for word in containers(spec)["compile"]["args"])


def test_a_task_takes_its_data_its_model_and_its_score(tmp_path):
    path = tmp_path / "p.yaml"
    spec, _ = compiled(path, "sst-2", TASK_GRAPH, request={"init": "/runs/bert/serving/1", "cased": False})
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert set(parameters) == {"recipe", "data", "init", "settings", *FINETUNE.tuned}
    assert parameters["min_score"]["defaultValue"] == 0.55
    assert parameters["init"]["defaultValue"] == "/runs/bert/serving/1"
    words = containers(spec)["compile"]["args"]
    assert option(words, "--data") == "{{$.inputs.parameters['data']}}"
    assert option(words, "--run-dir") == "/runs/bert-finetune"
    assert "--uncased" in words
    assert "defaultValue" not in parameters["data"] and not parameters["data"].get("isOptional")


def test_files_of_rows_take_the_place_of_a_folder(tmp_path):
    rows = {"train": ("a.tsv", "b.tsv"), "held_out": ("c.tsv",), "init": "m"}
    spec, _ = compiled(tmp_path / "p.yaml", "sst-2", TASK_GRAPH, request=rows)
    words = containers(spec)["compile"]["args"]
    assert "data" not in spec["root"]["inputDefinitions"]["parameters"] and "--data" not in words
    start = words.index("--train")
    assert words[start : start + 6] == ["--train", "a.tsv", "--train", "b.tsv", "--eval", "c.tsv"]
    spec, _ = compiled(tmp_path / "p.yaml", "sst-2", TASK_GRAPH, request=rows | {"data": "/d"})
    assert spec["root"]["inputDefinitions"]["parameters"]["data"]["defaultValue"] == "/d"
    assert option(containers(spec)["compile"]["args"], "--data") == "{{$.inputs.parameters['data']}}"


def test_arguments_of_beam_come_last(tmp_path):
    spec, _ = compiled(tmp_path / "p.yaml", graph=SHORT_GRAPH, request={"beam_args": ("--runner=DataflowRunner",)})
    assert containers(spec)["compile"]["args"][-2:] == ["--", "--runner=DataflowRunner"]
    assert "--" not in containers(spec)["corpus-gen"]["args"]


def test_kubeflows_cache_is_off_and_failures_are_tried_again(tmp_path):
    spec, _ = compiled(tmp_path / "p.yaml", graph=SHORT_GRAPH)
    tasks = spec["root"]["dag"]["tasks"]
    for step in ("compile", "corpus-gen", "trainer", "finish"):
        assert tasks[step]["cachingOptions"] == {}
        assert tasks[step].get("retryPolicy", {}).get("maxRetryCount", 0) == (0 if step == "compile" else 2)


def test_steps_see_the_volume_and_the_secret(documents):
    executors = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(executors) == {f"exec-{step}" for step in [*STEPS, "pushed"]}
    for label, executor in executors.items():
        (mount,) = executor["pvcMount"]
        assert (mount["constant"], mount["mountPath"]) == ("bert-tfx", "/runs")
        if label != "exec-pushed":
            (secret,) = executor["secretAsEnv"]
            assert secret["secretName"] == "metadata"
            assert secret["keyToEnv"] == [{"secretKey": "password", "envVar": "BERT_TFX_METADATA_PASSWORD"}]


def test_no_password_is_compiled_in(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_TFX_METADATA_PASSWORD", PLANTED)
    path = tmp_path / "p.yaml"
    compiled(
        path,
        graph=SHORT_GRAPH,
        password_secret="metadata/password",
        request={"metadata": "mysql://root@mysql:3306/metadb"},
    )
    assert "mysql://root@mysql:3306/metadb" in path.read_text()
    assert PLANTED not in path.read_text()


def test_stages_have_the_file_s_resources(tmp_path):
    asked = tmp_path / "resources.yaml"
    asked.write_text("""
Trainer:
  cpu: 24
  memory: 48Gi
  accelerator: google.com/tpu
  accelerator_count: 4
  node_selector:
    cloud.google.com/gke-tpu-topology: 2x2
    cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice
  tolerations:
    - {key: google.com/tpu, operator: Exists, effect: NoSchedule}
""")
    spec, platform = compiled(tmp_path / "p.yaml", graph=SHORT_GRAPH, resources=str(asked))
    resources = containers(spec)["trainer"]["resources"]
    assert resources["resourceCpuRequest"] == "24" and "resourceCpuLimit" not in resources
    assert resources["resourceMemoryRequest"] == resources["resourceMemoryLimit"] == "48Gi"
    accelerator = resources["accelerator"]
    assert (accelerator["resourceType"], accelerator["resourceCount"]) == ("google.com/tpu", "4")
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executors["exec-trainer"]["nodeSelector"]["labels"] == {
        "cloud.google.com/gke-tpu-topology": "2x2",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
    }
    assert executors["exec-trainer"]["tolerations"] == [
        {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert not [label for label, executor in executors.items() if "nodeSelector" in executor and "trainer" not in label]
    assert "accelerator" not in containers(spec)["corpus-gen"]["resources"]
    assert containers(spec)["finish"]["resources"]["resourceMemoryRequest"] == "2Gi"


def test_for_vertex_there_is_a_bucket_and_nothing_of_kubernetes(tmp_path):
    request = {"metadata": "grpc://10.0.0.2:8080"}
    (spec,) = compiled(
        tmp_path / "p.yaml", graph=SHORT_GRAPH, bucket="my-bucket", request=request
    )  # one document: Vertex AI reads only the first
    assert option(containers(spec)["trainer"]["args"], "--run-dir") == "/gcs/my-bucket/bert-pretrain"
    assert containers(spec)["trainer"]["resources"]["resourceCpuLimit"] == "8"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mount_path": "runs"}, "--mount-path runs: give an absolute path"),
        ({"password_secret": "metadata"}, "give the Secret's name and its key, as NAME/KEY"),
        ({"bucket": "b", "password_secret": "a/b"}, "Vertex AI has no Secrets"),
        ({"request": {"name": "Mine"}}, "--name Mine: give at most 128 of a-z"),
    ],
)
def test_invalid_settings_are_refused(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        compiled(tmp_path / "p.yaml", **settings)
    assert not list(tmp_path.iterdir())
