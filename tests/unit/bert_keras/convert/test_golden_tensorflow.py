"""Models as TensorFlow's programs write them: transformers' TensorFlow classes, the Model Garden, TF Hub."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_keras.convert.architecture import backbone_of
from bert_keras.convert.families.table import FAMILIES
from bert_keras.convert.formats import format_of, read_folder
from bert_keras.errors import InputError
from tests.support.models.model_folders import read_any

ARCHIVE = Path(__file__).parent / "golden_tensorflow" / "models.tar.xz"  # made by make.py beside it
IDS = np.array([[2, 5, 9, 11, 7, 3]], "int32")
INPUTS = {"input_ids": IDS, "input_mask": np.ones_like(IDS), "segment_ids": np.zeros_like(IDS)}
# Folder -> the task of its head.
TASKS = {
    "bert-classifier": "text",
    "bert-tagger-safetensors": "ner",
    "bert-pretraining": None,
    "roberta-spans": "squad1.1",
    "albert-pretraining": None,
    "electra-tagger": "ner",
    "distilbert-classifier": "text",
    "model-garden": None,
    "tf-hub": None,
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    shutil.unpack_archive(ARCHIVE, folder, filter="data")
    return folder


@pytest.mark.parametrize("name", TASKS)
def test_outputs_equal_those_of_the_program_that_wrote_the_model(golden, name):
    family = name.partition("-")[0]
    if family == "distilbert" and family not in FAMILIES:
        pytest.skip("no such family")
    read = read_any(str(golden / name))
    task = read_folder(str(golden / name)).task
    assert (task and task.name) == TASKS[name] and not read.head_left_out
    theirs = dict(np.load(golden / name / "outputs.npz"))
    ours = {"encoder": backbone_of(read.model)(INPUTS)["sequence_output"]}
    if "mlm" in theirs:
        logits = read.model({**INPUTS, "masked_lm_positions": np.arange(6)[None]})
        ours |= {key: logits[f"{key}_logits"] for key in ("mlm", "nsp") if key in theirs}
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        np.testing.assert_allclose(ours[key], value, rtol=0, atol=1e-5, err_msg=key)


def test_a_hub_s_vocabulary_says_its_case(golden):
    assert format_of(str(golden / "tf-hub")) == "tf1"
    tokenizer = read_any(str(golden / "tf-hub")).tokenizer
    assert tokenizer.normalization.lower_case and tokenizer.vocabulary[5] == "0"
    assert not read_any(str(golden / "tf-hub"), cased=True).tokenizer.normalization.lower_case
    with pytest.raises(InputError, match="has no vocabulary"):
        read_any(str(golden / "model-garden")).known_tokenizer()
