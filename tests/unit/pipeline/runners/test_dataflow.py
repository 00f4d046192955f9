"""Dataflow jobs built by Beam with the arguments of `pipeline.runners.dataflow`, but not sent."""

import dataclasses
import io
import json
import pickle
import re
import tarfile

import pytest
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, StandardOptions, WorkerOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.portability.common_urns import resource_hints
from apache_beam.runners.dataflow.dataflow_runner import DataflowRuntimeException
from apache_beam.runners.dataflow.internal import apiclient
from typer.testing import CliRunner

from bert_keras.errors import InputError
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS
from components.corpus_gen.inputs import find_inputs
from components.corpus_gen.readers import read_units
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.transforms import generate_documents, serialize
from components.io.shards import write_shard
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.transforms import generate_examples
from components.vocab_gen.files import import_vocabulary
from components.vocab_gen.settings import VocabularySettings
from pipeline.cli import app
from pipeline.examples import generate
from pipeline.examples.beam_jobs import input_errors
from pipeline.runners import dataflow
from pipeline.runners.dataflow import DataflowSettings, dataflow_args, min_ram_gigabytes

SETTINGS = DataflowSettings("a-project", "europe-west4", "gs://bucket/temp", staging_location="gs://bucket/staging")
BUCKET_BYTES = 16 << 20


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Build a job; return its description and the files to upload, {name: bytes}."""
    uploaded = {}
    stage_file = apiclient.DataflowApplicationClient.stage_file

    def stage(self, folder, name, stream, *args, **more):
        if folder.startswith("gs://bucket/staging"):
            uploaded[name] = stream.read()
        else:
            stage_file(self, folder, name, stream, *args, **more)

    # All that would need the network.
    monkeypatch.setattr(apiclient.DataflowApplicationClient, "stage_file", stage)
    monkeypatch.setattr(GoogleCloudOptions, "_warn_if_soft_delete_policy_enabled", lambda *_: None)

    def build(settings, expand):
        template = tmp_path / "job.json"
        args = [*dataflow_args(settings, BUCKET_BYTES), "--no_auth", f"--template_location={template}"]
        with generate.beam_pipeline(args) as pipeline:
            expand(pipeline)
        return json.loads(template.read_text()), uploaded

    return build


@pytest.fixture
def documents(tmp_path):
    """Adds the transforms that make documents to a pipeline."""
    (tmp_path / "text.txt").write_text("One sentence. Another one.\n\nA second document.\n")
    units = read_units(find_inputs([str(tmp_path / "text.txt")], CorpusSettings()), CorpusSettings())
    return lambda pipeline: generate_documents(pipeline, units, CorpusSettings(), "gs://bucket/out")


def environments(uploaded):
    """The environments of the workers in the pipeline."""
    pipeline = beam_runner_api_pb2.Pipeline.FromString(uploaded["pipeline.pb"])
    used = {t.environment_id for t in pipeline.components.transforms.values() if t.environment_id}
    return [pipeline.components.environments[name] for name in used]


def staged_names(environment):
    return {
        beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(found.role_payload).staged_name
        for found in environment.dependencies
    }


def test_a_batch_job_with_its_machines_memory_and_package(built, documents):
    job, uploaded = built(dataclasses.replace(SETTINGS, service_account_email="me@example.com"), documents)
    assert job["type"] == "JOB_TYPE_BATCH"
    environment = job["environment"]
    assert environment["serviceAccountEmail"] == "me@example.com"
    assert environment["tempStoragePrefix"].startswith("storage.googleapis.com/bucket/temp")
    # Beam's own doing; it refuses to go without.
    assert "use_runner_v2" in environment["experiments"]
    assert not [name for name in environment["experiments"] if "streaming" in name]
    (pool,) = environment["workerPools"]
    assert pool["machineType"] == "n2-standard-4"
    assert pool["autoscalingSettings"] == {"algorithm": "AUTOSCALING_ALGORITHM_BASIC", "maxNumWorkers": 20}
    assert "subnetwork" not in pool and "ipConfiguration" not in pool
    for found in environments(uploaded):
        # 1 GiB, and for each of four cores 600 MiB and 25 x 16 MiB: 5.27e9 bytes.
        assert found.resource_hints[resource_hints.MIN_RAM_BYTES.urn] == b"6000000000"
        assert "workflow.tar.gz" in staged_names(found)
    assert environments(uploaded)


def test_the_shipped_package_does_not_require_tfx(built, documents):
    _, uploaded = built(SETTINGS, documents)
    with tarfile.open(fileobj=io.BytesIO(uploaded["workflow.tar.gz"])) as package:
        names = {name.partition("/")[2] for name in package.getnames()}
        (required,) = [name for name in package.getnames() if name.endswith("egg-info/requires.txt")]
        lines = package.extractfile(required).read().decode()
    assert {"components/corpus_gen/transforms.py", "bert_keras/tokenizers/unicode_tables.npz", "setup.py"} <= names
    # [:condition] is of the package, [extra:condition] is not.
    required = re.sub(r"^\[[^:].*\n(?:[^\[].*\n|\n)*", "", lines, flags=re.MULTILINE)
    assert "apache-beam==" in required and "tfx==" in lines
    assert not re.search("tfx|tensorflow|keras|ml-metadata", required)


def test_an_image_in_place_of_the_package(built, documents):
    image = "europe-docker.pkg.dev/a-project/images/worker:1"
    more = {"subnetwork": "regions/europe-west4/subnetworks/one", "network": "inner", "public_ips": False}
    job, uploaded = built(dataclasses.replace(SETTINGS, sdk_container_image=image, **more), documents)
    (pool,) = job["environment"]["workerPools"]
    assert pool["workerHarnessContainerImage"] == image
    assert [found["containerImage"] for found in pool["sdkHarnessContainerImages"]] == [image]
    assert (pool["network"], pool["subnetwork"]) == ("inner", "regions/europe-west4/subnetworks/one")
    assert pool["ipConfiguration"] == "WORKER_IP_PRIVATE"
    assert "workflow.tar.gz" not in uploaded
    assert not {name for found in environments(uploaded) for name in staged_names(found)} & {"workflow.tar.gz"}


def test_example_generation_is_a_job_too(built, tmp_path):
    """Its functions hold a tokenizer, which must reach the workers inside the job."""
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *"abcdefghij"]) + "\n")
    import_vocabulary(str(tmp_path / "vocab.txt"), str(tmp_path / "out"), VocabularySettings())
    (tmp_path / "corpus.json").write_text("{}")
    for split in ("train", "eval"):
        record = serialize(b"i" * 16, "text.txt", ["a b c", "d e f"])
        write_shard(f"{tmp_path}/Split-{split}/documents-00000-of-00001.tfrecord", [record])

    def expand(pipeline):
        generate_examples(pipeline, str(tmp_path), str(tmp_path / "out"), ExampleSettings(), str(tmp_path / "out"))

    job, uploaded = built(SETTINGS, expand)
    assert job["type"] == "JOB_TYPE_BATCH"
    pipeline = beam_runner_api_pb2.Pipeline.FromString(uploaded["pipeline.pb"])
    functions = {
        transform.unique_name: beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload).do_fn.payload
        for transform in pipeline.components.transforms.values()
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn
    }
    for split in ("train", "eval"):
        function, *_ = pickler.loads(functions[f"Make[{split}]"])
        assert pickle.loads(function.pickled_tokenizer).vocabulary == (*SPECIAL_TOKENS, *"abcdefghij")


def test_memory_is_for_every_core():
    small, large = (dataclasses.replace(SETTINGS, machine_type=name) for name in ("n2-standard-2", "n2-highmem-16"))
    assert min_ram_gigabytes(small, 4 << 20) == 3  # 1.07 + 2 x (0.63 + 0.10)
    assert min_ram_gigabytes(large, 64 << 20) == 38  # 1.07 + 16 x (0.63 + 1.68)
    cores = {"custom-6-23040": 6, "e2-custom-4-8192": 4, "n2d-custom-8-65536-ext": 8, "c3-highcpu-22": 22}
    assert {name: dataclasses.replace(SETTINGS, machine_type=name).cores for name in cores} == cores


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temp_location": "bucket/temp"}, "temp_location is 'bucket/temp'; it must be a folder, gs://BUCKET/FOLDER"),
        ({"temp_location": ""}, "temp_location is ''"),
        ({"staging_location": "gs://bucket"}, "staging_location is 'gs://bucket'"),
        ({"project": ""}, "project is empty"),
        ({"region": "europe west"}, "it must not contain spaces"),
        ({"machine_type": "large"}, "machine_type is 'large'; give one with its cores"),
        ({"max_num_workers": 0}, "it must be at least 1"),
    ],
)
def test_settings_that_dataflow_would_refuse_are_refused_before_the_job(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(SETTINGS, **change)


def test_without_a_checkout_an_image_is_required(monkeypatch, tmp_path):
    monkeypatch.setattr(dataflow, "SETUP_FILE", tmp_path / "setup.py")
    with pytest.raises(InputError, match=r"setup\.py: no such file.*give an image"):
        dataflow_args(SETTINGS, BUCKET_BYTES)
    assert dataflow_args(dataclasses.replace(SETTINGS, sdk_container_image="image"), BUCKET_BYTES)


def test_the_command_prints_beam_s_arguments():
    words = ["beam-args", "dataflow", "--project", "p", "--region", "r", "--temp-location", "gs://b/t"]
    done = CliRunner().invoke(app, [*words, "--bucket-bytes", str(64 << 20), "--max-workers", "7"])
    assert done.exit_code == 0
    options = PipelineOptions(done.stdout.split(), display_warnings=True)
    assert options.view_as(StandardOptions).runner == "DataflowRunner"
    assert options.view_as(StandardOptions).resource_hints == ["min_ram=11GB"]
    assert options.view_as(WorkerOptions).max_num_workers == 7
    # The help has the settings' own defaults.
    page = re.sub(r"[│\s]+", " ", CliRunner().invoke(app, ["beam-args", "dataflow", "--help"]).stdout)
    assert f"[default: {DataflowSettings.machine_type}]" in page
    assert f"[default: {DataflowSettings.max_num_workers}]" in page


def test_workers_that_cannot_install_the_package_cause_a_warning():
    words = ["beam-args", "dataflow", "--project", "p", "--region", "r", "--temp-location", "gs://b/t"]
    warned = CliRunner().invoke(app, [*words, "--no-public-ips"])
    assert warned.exit_code == 0 and warned.stderr.count("\n") == 1 and "give --image" in warned.stderr
    assert "--no_use_public_ips" in warned.stdout and "bert-tfx: " not in warned.stdout
    for more in ([], ["--no-public-ips", "--image", "an-image"]):
        assert not CliRunner().invoke(app, [*words, *more]).stderr


def test_a_worker_s_input_error_is_one_line(monkeypatch):
    """Dataflow's error is the traceback of a worker, as text, and no `RuntimeError`."""
    said = "Traceback ...\nbert_keras.errors.InputError: a.txt: not UTF-8 [while running 'Read']\n"
    with pytest.raises(InputError, match=r"^a\.txt: not UTF-8 \[while running 'Read'\]$"), input_errors():
        raise DataflowRuntimeException(said, None)
    with pytest.raises(DataflowRuntimeException, match="quota"), input_errors():
        raise DataflowRuntimeException("quota", None)
