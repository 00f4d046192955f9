"""Fine-tuned models of every family and head, from `transformers` and back (golden_heads)."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_keras.convert.formats import export, read_folder
from bert_keras.errors import InputError
from tests.support.models import head_folders
from tests.support.models.head_folders import CHOICES, FAMILIES, golden, inputs_of, write_folder

OURS = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
HEADS = [(family, head) for family in FAMILIES for head in golden(family)]


def logits_of(model, recorded, head):
    """Our logits for the recorded inputs, by the names of `transformers`."""
    config = recorded["config"]
    pad_id, segments = config.get("pad_token_id", 0), config["model_type"] not in ("roberta", "modernbert")
    inputs = {OURS[name]: value.astype("int32") for name, value in inputs_of(pad_id, segments).items()}
    if head == CHOICES:
        inputs = {name: value[None] for name, value in inputs.items()}
    outputs = model(inputs)
    return {name: np.array(x) for name, x in (outputs if isinstance(outputs, dict) else {"logits": outputs}).items()}


def assert_close(ours, recorded, head):
    mask = inputs_of(0, False)["attention_mask"].astype(bool)
    assert ours.keys() == recorded["logits"].keys()
    for name, values in ours.items():
        theirs = np.array(recorded["logits"][name])
        by_token = head in ("ForTokenClassification", "ForQuestionAnswering")
        if head == "number":
            theirs = theirs[:, 0]
        if head == CHOICES:  # without the bias, which is the same for all
            theirs, values = theirs - theirs[:, :1], values - values[:, :1]
        assert values.shape == theirs.shape
        difference = np.abs(values - theirs)[mask] if by_token else np.abs(values - theirs)
        assert difference.max() < 1e-5, (name, difference.max())


@pytest.mark.parametrize(("family", "head"), HEADS)
def test_logits_are_those_of_transformers_and_the_written_folder_is_the_one_that_was_read(family, head, tmp_path):
    recorded = golden(family)[head]
    tensors = write_folder(family, recorded, tmp_path / "hf")
    folder = read_folder(str(tmp_path / "hf"))
    assert_close(logits_of(folder.model, recorded, head), recorded, head)
    export(folder, str(tmp_path / "again"), "hf")
    again, config = load_file(tmp_path / "again" / "model.safetensors"), recorded["config"]
    if head == CHOICES:
        bias = next(name for name, value in tensors.items() if value.shape == (1,))
        assert not again.pop(bias).any() and tensors.pop(bias) is not None
    if family == "roberta":  # rows that no token has
        tensors["roberta.embeddings.position_embeddings.weight"][:2] = 0
    assert again.keys() == tensors.keys()
    for name, value in tensors.items():
        np.testing.assert_array_equal(again[name], value, err_msg=name)
    written = json.loads((tmp_path / "again" / "config.json").read_text())
    assert written["architectures"] == config["architectures"]
    assert written.get("classifier_pooling", "cls") == config.get("classifier_pooling", "cls")
    if "id2label" in config:
        assert (written["id2label"], written["label2id"]) == (config["id2label"], config["label2id"])
