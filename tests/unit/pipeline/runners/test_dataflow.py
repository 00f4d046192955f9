"""Dataflow jobs built by Beam with the arguments of docs/scaling.md, but not sent."""

import io
import json
import pickle
import re
import tarfile
from pathlib import Path

import pytest
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.dataflow_runner import DataflowPipelineResult, DataflowRuntimeException
from apache_beam.runners.dataflow.internal import apiclient

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
from pipeline.examples.beam_jobs import beam_pipeline

ROOT = Path(__file__).parents[4]
_, _, _SECTION = (ROOT / "docs" / "scaling.md").read_text().partition("### Dataflow\n")
ARGS = (*_SECTION[: _SECTION.index("--setup_file")].replace("\\\n", " ").split(), f"--setup_file={ROOT}/setup.py")


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Build a job; return its description and the files to upload, {name: bytes}."""
    uploaded = {}
    stage_file = apiclient.DataflowApplicationClient.stage_file

    def stage(self, folder, name, stream, *args, **more):
        if folder.startswith("gs://bucket/temp"):
            uploaded[name] = stream.read()
        else:
            stage_file(self, folder, name, stream, *args, **more)

    # All that would need the network.
    monkeypatch.setattr(apiclient.DataflowApplicationClient, "stage_file", stage)
    monkeypatch.setattr(GoogleCloudOptions, "_warn_if_soft_delete_policy_enabled", lambda *_: None)
    monkeypatch.setattr(DataflowPipelineResult, "job_id", None)  # a template is not sent

    def build(expand):
        template = tmp_path / "job.json"
        with beam_pipeline([*ARGS, "--no_auth", f"--template_location={template}"], "documents") as pipeline:
            expand(pipeline)
        return json.loads(template.read_text()), uploaded

    return build


@pytest.fixture
def documents(tmp_path):
    """Adds the transforms that make documents to a pipeline."""
    (tmp_path / "text.txt").write_text("One sentence. Another one.\n\nA second document.\n")
    units = read_units(find_inputs([str(tmp_path / "text.txt")], CorpusSettings()), CorpusSettings())
    return lambda pipeline: generate_documents(pipeline, units, CorpusSettings(), "gs://bucket/out")


def test_the_shipped_package_does_not_require_tfx(built, documents):
    job, uploaded = built(documents)
    assert job["type"] == "JOB_TYPE_BATCH"
    (pool,) = job["environment"]["workerPools"]
    assert pool["machineType"] == "n2-standard-4" and pool["autoscalingSettings"]["maxNumWorkers"] == 20
    with tarfile.open(fileobj=io.BytesIO(uploaded["workflow.tar.gz"])) as package:
        names = {name.partition("/")[2] for name in package.getnames()}
        (required,) = [name for name in package.getnames() if name.endswith("egg-info/requires.txt")]
        lines = package.extractfile(required).read().decode()
    assert {"components/corpus_gen/transforms.py", "bert_keras/tokenizers/unicode_tables.npz", "setup.py"} <= names
    # [:condition] is of the package, [extra:condition] is not.
    required = re.sub(r"^\[[^:].*\n(?:[^\[].*\n|\n)*", "", lines, flags=re.MULTILINE)
    assert "apache-beam==" in required and "tfx==" in lines
    assert not re.search("tfx|tensorflow|keras|ml-metadata", required)


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

    job, uploaded = built(expand)
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


def test_a_worker_s_input_error_is_one_line(monkeypatch):
    """Dataflow's error is the traceback of a worker, as text, and no `RuntimeError`."""
    said = "Traceback ...\nbert_keras.errors.InputError: a.txt: not UTF-8 [while running 'Read']\n"
    with (
        pytest.raises(InputError, match=r"^a\.txt: not UTF-8 \[while running 'Read'\]$"),
        beam_pipeline([], "x"),
    ):
        raise DataflowRuntimeException(said, None)
    with pytest.raises(DataflowRuntimeException, match="quota"), beam_pipeline([], "x"):
        raise DataflowRuntimeException("quota", None)
