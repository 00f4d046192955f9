"""CorpusGen in TFX: properties, splits, and files beside the shards."""

import json

from pydantic import TypeAdapter
from tfx.dsl.components.base import base_beam_executor
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import decode_split_names

from components.corpus_gen.component import CorpusGen, Executor
from components.corpus_gen.inputs import InputList, find_inputs
from components.corpus_gen.record.card import CARD_FILE, COUNTS_FILE
from components.corpus_gen.settings import CleaningSettings, CorpusSettings
from components.corpus_gen.transforms import READ_FILE
from pipeline.runners.run_steps import BEAM_PIPELINE_ARGS


def test_documents_depend_only_on_the_properties(tmp_path):
    (tmp_path / "a.txt").write_text("One.")

    def properties(settings):
        inputs = InputList.write(find_inputs([f"{tmp_path}/a.txt"], settings), f"{tmp_path}/lists")
        return CorpusGen(None, inputs.path, inputs.fingerprint, settings).spec.exec_properties

    before = properties(CorpusSettings())
    with open(before["inputs"]) as file:
        assert json.load(file) == {f"{tmp_path}/a.txt": 4}
    assert TypeAdapter(CorpusSettings).validate_json(before["settings"]) == CorpusSettings()
    assert properties(CorpusSettings()) == before
    assert properties(CorpusSettings(segments="lines")) != before
    assert properties(CorpusSettings(cleaning=CleaningSettings(near_duplicates=True))) != before
    (tmp_path / "a.txt").write_text("Two.")
    assert properties(CorpusSettings()) != before


def test_the_executor(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(f"Document {i}. Twice." for i in range(50)) + "\n\nDocument 7. Twice.")
    settings = CorpusSettings(eval_fraction=0.3)
    inputs = InputList.write(find_inputs([f"{tmp_path}/a.txt"], settings), f"{tmp_path}/lists")
    component = CorpusGen(None, inputs.path, inputs.fingerprint, settings)
    documents = standard_artifacts.Examples()
    documents.uri = str(tmp_path / "documents")
    context = base_beam_executor.BaseBeamExecutor.Context(beam_pipeline_args=list(BEAM_PIPELINE_ARGS))
    Executor(context).Do({}, {"documents": [documents]}, component.spec.exec_properties)
    assert decode_split_names(documents.split_names) == ["train", "eval"]
    for split in ("train", "eval"):
        assert [p.name for p in (tmp_path / f"documents/Split-{split}").iterdir()] == [
            "documents-00000-of-00001.tfrecord"
        ]
    assert sorted(p.name for p in (tmp_path / "documents").iterdir()) == [
        "Split-eval",
        "Split-train",
        COUNTS_FILE,
        CARD_FILE,
        READ_FILE,
    ]
    counts = json.loads((tmp_path / "documents" / COUNTS_FILE).read_text())
    assert counts["read"] == {"read_bytes": (tmp_path / "a.txt").stat().st_size, "read_documents": 51}
    total = {name: counts["train"][name] + counts["eval"][name] for name in counts["train"]}
    # "Document 0.", ..., "Document 9." have 11 characters, 40 others 12, "Twice." 6.
    size = 10 * 11 + 40 * 12 + 50 * 6
    assert total == {"documents": 50, "duplicates": 1, "near_duplicates": 0, "segments": 100, "bytes": size}
    assert counts["eval"]["documents"] > 0
    later = standard_artifacts.Examples()
    later.uri = str(tmp_path / "later")
    Executor(context).Do({"earlier": [documents]}, {"documents": [later]}, component.spec.exec_properties)
    counts = json.loads((tmp_path / "later" / COUNTS_FILE).read_text())
    assert counts["read"]["read_before"] == 51 and counts["train"]["documents"] == counts["eval"]["documents"] == 0
