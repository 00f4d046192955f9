"""CorpusGen in TFX."""

import json

from tfx.dsl.components.base import base_beam_executor
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import decode_split_names

from components.corpus_gen.component import CorpusGen, Executor
from components.corpus_gen.inputs import InputList, find_inputs
from components.corpus_gen.record.card import COUNTS_FILE
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.transforms import READ_FILE
from pipeline.runners.run_steps import BEAM_PIPELINE_ARGS


def test_the_executor_makes_documents_and_a_later_one_none_of_the_same_text(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(f"Document {i}. Twice." for i in range(50)) + "\n\nDocument 7. Twice.")
    settings = CorpusSettings(eval_fraction=0.3)
    inputs = InputList.write(find_inputs([f"{tmp_path}/a.txt"], settings), f"{tmp_path}/lists")
    component = CorpusGen(None, inputs.path, inputs.fingerprint, settings)
    context = base_beam_executor.BaseBeamExecutor.Context(beam_pipeline_args=list(BEAM_PIPELINE_ARGS))

    def run(name, given):
        documents = standard_artifacts.Examples()
        documents.uri = str(tmp_path / name)
        Executor(context).Do(given, {"documents": [documents]}, component.spec.exec_properties)
        return documents, json.loads((tmp_path / name / COUNTS_FILE).read_text())

    documents, counts = run("documents", {})
    assert decode_split_names(documents.split_names) == ["train", "eval"]
    assert counts["read"] == {"read_bytes": (tmp_path / "a.txt").stat().st_size, "read_documents": 51}
    total = {name: counts["train"][name] + counts["eval"][name] for name in counts["train"]}
    # "Document 0.", ..., "Document 9." have 11 characters, 40 others 12, "Twice." 6.
    size = 10 * 11 + 40 * 12 + 50 * 6
    assert total == {"documents": 50, "duplicates": 1, "near_duplicates": 0, "segments": 100, "bytes": size}
    assert counts["eval"]["documents"] > 0
    _, counts = run("later", {"earlier": [documents]})
    assert counts["read"]["read_before"] == 51 and counts["train"]["documents"] == counts["eval"]["documents"] == 0
    assert [shard.read_bytes() for shard in (tmp_path / "later").rglob("*.tfrecord")] == [b"", b""]
    ids = [(tmp_path / name / READ_FILE).read_bytes() for name in ("documents", "later")]
    assert ids[0] == ids[1] != b""
