"""Cross-encoders of sentence-transformers: what each of its versions writes, read, and written so that it reads it."""

import dataclasses
import json

import numpy as np
import pytest

from bert_keras.convert.formats import export, read_folder
from bert_keras.convert.huggingface.fine_tuned import as_task
from bert_keras.errors import InputError
from bert_keras.saved_model.settings import NO_EMBEDDING
from tests.support.models.head_folders import golden, write_folder

IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"
TANH, CHOICE = "torch.nn.modules.activation.Tanh", "ForSequenceClassification"
# Of version 6.2, beside `config.json`.
FILES = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    ],
    "sentence_bert_config.json": {
        "transformer_task": "sequence-classification",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
    },
    "config_sentence_transformers.json": {
        "__version__": {"sentence_transformers": "6.2.0"},
        "activation_fn": IDENTITY,
        "default_prompt_name": None,
        "model_type": "CrossEncoder",
        "prompts": {},
    },
}


def folder(path, fields=None, later=None, head="number"):
    """A cross-encoder with the fields in its `config.json`, or as version 6.2 writes it with the fields `later`."""
    write_folder("bert", golden("bert")[head], path, **(fields or {}))
    for name, content in FILES.items() if later is not None else ():
        if name.startswith("config"):
            content = content | later
        (path / name).write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("fields", "later", "activation"),
    [
        ({"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.0.1"}}, None, "identity"),
        ({"sentence_transformers": {"activation_fn": SIGMOID, "version": "5.1.0"}}, None, "sigmoid"),
        ({"sentence_transformers": {"version": "4.0.1"}}, None, "sigmoid"),  # its default for one label
        ({"sbert_ce_default_activation_function": IDENTITY}, None, "identity"),
        ({"sbert_ce_default_activation_function": None}, None, "sigmoid"),
        ({}, {}, "identity"),
        ({"sentence_transformers": {"activation_fn": IDENTITY}}, {"activation_fn": SIGMOID}, "sigmoid"),
    ],
)
def test_every_version_s_folder_is_read_and_written_so_that_all_read_it(tmp_path, fields, later, activation):
    cross = read_folder(folder(tmp_path / "theirs", fields, later))
    assert (cross.task.name, cross.settings.activation) == ("text-pair-score", activation)
    assert (cross.embedding, cross.notes) == (NO_EMBEDDING, ())
    export(cross, str(tmp_path / "ours"), "hf")
    written = json.loads((tmp_path / "ours" / "config.json").read_text())
    expected = {"identity": IDENTITY, "sigmoid": SIGMOID}[activation]
    assert written["sentence_transformers"] == {"activation_fn": expected}
    # transformers' pipeline has a sigmoid for one label unless this says regression.
    assert written.get("problem_type") == (None if activation == "sigmoid" else "regression")
    again = read_folder(str(tmp_path / "ours"))
    assert (again.task, again.settings) == (cross.task, cross.settings)


def test_scores_are_those_of_predict(tmp_path):
    """CrossEncoder.predict of sentence-transformers 6.2.0, torch 2.13, with the weights of this folder."""
    cross = read_folder(folder(tmp_path, {"sentence_transformers": {"activation_fn": SIGMOID}}))
    documents = ["ab d", "", "the cat sat on a mat " * 12, "dog and hat", "a"]
    numbers = np.array(cross.model(cross.inputs(["the cat"] * 5, documents)))
    predicted = [0.37100601, 0.36563349, 0.37317431, 0.3673777, 0.36976886]
    np.testing.assert_allclose(1 / (1 + np.exp(-numbers)), predicted, rtol=1e-6)


def test_a_number_without_a_word_on_it_has_the_default_of_transformers(tmp_path):
    plain = as_task(read_folder(folder(tmp_path / "a")), "text-pair-score")
    assert plain.settings.activation == "sigmoid"
    regression = read_folder(folder(tmp_path / "b", {"problem_type": "regression"}))
    assert (regression.task.name, regression.settings.activation) == ("text-score", "identity")


@pytest.mark.parametrize(
    ("head", "fields", "task", "activation"),
    [
        (CHOICE, {"sentence_transformers": {"activation_fn": IDENTITY}}, "text-pair", IDENTITY),
        (CHOICE, {"sentence_transformers": {}}, "text-pair", IDENTITY),
        ("several", {"sentence_transformers": {"activation_fn": SIGMOID}}, "text-pair-labels", SIGMOID),
    ],
)
def test_labels_of_pairs(tmp_path, head, fields, task, activation):
    cross = read_folder(folder(tmp_path / "theirs", fields, head=head))
    assert (cross.task.name, cross.settings.activation) == (task, "identity")
    export(cross, str(tmp_path / "ours"), "hf")
    written = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert written["sentence_transformers"] == {"activation_fn": activation} and written["problem_type"]
    single = dataclasses.replace(cross, task=dataclasses.replace(cross.task, pair=False))
    export(single, str(tmp_path / "single"), "hf")
    assert "sentence_transformers" not in json.loads((tmp_path / "single" / "config.json").read_text())


@pytest.mark.parametrize(
    ("fields", "later", "head", "says"),
    [
        ({"sentence_transformers": {"activation_fn": TANH}}, None, "number", rf'is "{TANH}"; supported: .*{SIGMOID}'),
        ({"sbert_ce_default_activation_function": "mine.Own"}, None, "number", r"/config.json: .* is \"mine.Own\""),
        ({}, {"activation_fn": "mine.Own"}, "number", r"config_sentence_transformers.json: .* is \"mine.Own\""),
        ({"sentence_transformers": {"activation_fn": SIGMOID}}, None, CHOICE, rf'supported: "?{IDENTITY}"?; remove'),
        ({}, {"prompts": {"q": "query: "}, "default_prompt_name": "q"}, "number", "default_prompt_name is 'q'"),
    ],
)
def test_what_would_give_other_scores_is_refused_by_name(tmp_path, fields, later, head, says):
    with pytest.raises(InputError, match=says):
        read_folder(folder(tmp_path, fields, later, head))
