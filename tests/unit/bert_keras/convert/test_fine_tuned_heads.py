"""Fine-tuned models of every family and head, from `transformers` and back (golden_heads)."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import yaml
from safetensors.numpy import load_file

from bert_keras.convert.families.table import FAMILIES as FAMILIES_HERE
from bert_keras.convert.formats import export, read_folder
from bert_keras.convert.huggingface.fine_tuned import as_task
from bert_keras.convert.model_folder import ModelFolder
from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import initialize_encoder, read_init, with_head_of
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from tests.support.models.head_folders import CHOICES, FAMILIES, golden, inputs_of, write_folder
from tests.support.models.model_folders import change_tensors
from tests.support.models.pushed_folders import without_graph

OURS = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
HEADS = [(family, head) for family in FAMILIES for head in golden(family)]


def recorded_inputs(config):
    """The inputs that make.py gave the model."""
    pad_id = 1 if FAMILIES_HERE[config["model_type"]].unused_rows else 0
    return inputs_of(pad_id, config["model_type"] in ("bert", "electra", "albert"))


def logits_of(model, recorded, head):
    """Our logits for the recorded inputs, by the names of `transformers`."""
    config = recorded["config"]
    inputs = recorded_inputs(config)
    inputs = {OURS[name]: value.astype("int32") for name, value in inputs.items()}
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
    for name in tensors:  # rows that no token has
        if FAMILIES_HERE[family].unused_rows and name.endswith("position_embeddings.weight"):
            tensors[name][:2] = 0
    assert again.keys() == tensors.keys()
    for name, value in tensors.items():
        np.testing.assert_array_equal(again[name], value, err_msg=name)
    written = json.loads((tmp_path / "again" / "config.json").read_text())
    assert written["architectures"] == config["architectures"]
    assert written.get("classifier_pooling", "cls") == config.get("classifier_pooling", "cls")
    if problem := config.get("problem_type"):
        assert written["problem_type"] == problem
    if "id2label" in config:
        assert (written["id2label"], written["label2id"]) == (config["id2label"], config["label2id"])


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("electra", "ForSequenceClassification"),
        ("modernbert", "ForTokenClassification"),
        *(
            pytest.param(family, head, marks=pytest.mark.slow)
            for family, head in (
                *(("modernbert", "mean"), ("bert", "several"), ("bert", "number"), ("roberta", "ForMultipleChoice")),
                *(("albert", "ForQuestionAnswering"), ("modernbert", "ForQuestionAnswering")),
            )
        ),
    ],
)
def test_a_fine_tuned_model_is_served_at_once_and_comes_back(family, head, tmp_path):
    recorded, texts = golden(family)[head], tf.constant(["the cat", "ab d"])
    write_folder(family, recorded, tmp_path / "hf")
    folder = read_folder(str(tmp_path / "hf"))
    with without_graph() as served:
        export(folder, str(tmp_path / "pushed"))
    answer = served[0]["serving_default"]
    inputs = {spec.name: texts for spec in answer.structured_input_signature[0]}
    if "choices" in inputs:
        inputs["choices"] = tf.constant([["a", "b c"], ["d", "e"]])
    answers = answer(*inputs.values())
    if inputs.keys() == {"text"}:
        model = np.array(folder.model(folder.inputs(["the cat", "ab d"])))
        assert model.shape[0] == 2
        if head in ("ForSequenceClassification", "mean", "several"):
            scores = tf.sigmoid(model) if head == "several" else tf.nn.softmax(model)
            np.testing.assert_allclose(answers["scores"], scores, atol=1e-5)
            labels = list(recorded["config"]["id2label"].values())
            assert [label.decode() for label in answers["label"].numpy()] == [labels[i] for i in model.argmax(-1)]
        elif head == "number":
            np.testing.assert_allclose(answers["score"], model, atol=1e-5)
        else:  # the first tokens of the words
            best = tf.nn.softmax(model[0]).numpy().max(-1)
            np.testing.assert_allclose(answers["scores"][0], [best[1], best[1 + len("the")]], atol=1e-5)
    pushed = read_folder(str(tmp_path / "pushed"))
    assert (pushed.task, pushed.settings, pushed.family) == (folder.task, folder.settings, family)
    assert_close(logits_of(pushed.model, recorded, head), recorded, head)
    for name, source in (("first", folder), ("second", pushed)):
        export(source, str(tmp_path / name), "hf")
    for file in ("config.json", "model.safetensors", "tokenizer_config.json"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes(), file


@pytest.mark.parametrize(
    ("family", "head"),
    [
        *((family, "ForSequenceClassification") for family in FAMILIES if family not in ("mpnet", "deberta-v2")),
        *(("modernbert", h) for h in golden("modernbert")),
    ],
)
def test_onnx_has_the_layers_of_the_head(family, head, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    from bert_keras.convert.onnx.graph import onnx_model

    recorded = golden(family)[head]
    write_folder(family, recorded, tmp_path)
    folder = read_folder(str(tmp_path))
    session = onnxruntime.InferenceSession(onnx_model(folder.model, folder.embedding).SerializeToString())
    inputs = recorded_inputs(recorded["config"])
    inputs = {value.name: inputs[value.name] for value in session.get_inputs()}
    if head == CHOICES:
        inputs = {name: value[None] for name, value in inputs.items()}
    names = list(recorded["logits"])
    assert_close(dict(zip(names, session.run(names, inputs), strict=True)), recorded, head)


def test_a_head_is_trained_on_if_the_labels_are_the_same_in_any_order(tmp_path, capsys):
    recorded = golden("electra")["ForSequenceClassification"]
    write_folder("electra", recorded, tmp_path / "hf")
    task = dataclasses.replace(task_of("text"), labels=("bad", "good", "so so"))
    init = read_init(str(tmp_path / "hf"), task=task)
    assert "its output layer is trained on: the type and the labels of the task are the same" in capsys.readouterr().err
    settings = with_head_of(TaskSettings(16), init)
    assert settings == TaskSettings(16, head="gelu")

    def tuned(init, settings, task=task):
        size = init.architecture.embedding_size
        model = task_type_of(task).create_model(init.config, task, settings, 3, size)
        model.build()
        initialize_encoder(model, init, task)
        return model

    ours = logits_of(tuned(init, settings), recorded, "ForSequenceClassification")["logits"]
    assert_close({"logits": ours[:, [1, 0, 2]]}, recorded, "ForSequenceClassification")
    # Another function of the layer takes nothing of the head, and other labels only the layer.
    other = tuned(init, TaskSettings(16))
    assert np.abs(np.array(other.backbone.pooler.kernel)).max() < 0.05
    init = read_init(str(tmp_path / "hf"), task=task_of("sst-2"))
    told = f"the output layer of text in {tmp_path / 'hf'} is dropped"
    assert told in capsys.readouterr().err and with_head_of(TaskSettings(16), init) == settings
    other = tuned(init, settings, task_of("sst-2"))
    np.testing.assert_array_equal(other.backbone.pooler.kernel, init.encoder.pooler.kernel)
    assert np.abs(np.array(other.classifier.kernel)).max() < 0.05


def test_a_task_is_chosen_by_labels_or_by_name(tmp_path):
    recorded = golden("bert")["ForSequenceClassification"]
    write_folder("bert", recorded, tmp_path / "a")
    text = read_folder(str(tmp_path / "a"))
    assert (text.task.name, text.task.labels) == ("text", ("good", "bad", "so so"))
    assert text.settings == TaskSettings(48, head="tanh")
    assert as_task(text, "text-pair").task == dataclasses.replace(task_of("text-pair"), labels=text.task.labels)
    with pytest.raises(InputError, match="--task ner is for tagging, but the model is for classification"):
        as_task(text, "ner")
    with pytest.raises(InputError, match=r"has the labels contradiction, .* but the model good, bad, so so; --task"):
        as_task(text, "mnli")
    write_folder("bert", recorded, tmp_path / "b", id2label={"0": "ENTAILMENT", "1": "NEUTRAL", "2": "CONTRADICTION"})
    assert read_folder(str(tmp_path / "b")).task.name == "text-pair"
    write_folder("bert", recorded, tmp_path / "c", id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"})
    assert as_task(read_folder(str(tmp_path / "c")), "mnli").task == task_of("mnli")
    write_folder("bert", golden("bert")["several"], tmp_path / "f")
    several = read_folder(str(tmp_path / "f"))
    assert several.task == dataclasses.replace(task_of("text-labels"), labels=text.task.labels)
    assert as_task(several, "text-pair-labels").task.pair and not several.head_left_out
    with pytest.raises(InputError, match="--task text is for classification, but the model is for multi_label"):
        as_task(several, "text")
    number = golden("bert")["number"]
    write_folder("bert", number, tmp_path / "d", sentence_transformers={"version": "5.0"})
    assert read_folder(str(tmp_path / "d")).task.name == "text-pair-score"
    write_folder("bert", golden("bert")["ForQuestionAnswering"], tmp_path / "e")
    span = read_folder(str(tmp_path / "e"))
    assert as_task(span, "squad2.0").task.unanswerable and not span.task.unanswerable
    assert span.settings == TaskSettings(48, max_query_length=12, max_answer_length=15)


@pytest.mark.parametrize(
    ("fields", "tensors", "says"),
    [
        ({"problem_type": "regression"}, (), "since problem_type is regression, with 3 outputs"),
        ({"architectures": ["BertCrf"]}, (), "since BertCrf is no class with a known head"),
        ({}, ("crf.transitions",), "crf.transitions), since its class has other tensors"),
    ],
)
def test_a_head_that_is_not_known_is_left_out_with_a_reason(fields, tensors, says, tmp_path):
    write_folder("bert", golden("bert")["ForSequenceClassification"], tmp_path, **fields)
    change_tensors(tmp_path, lambda known: {**known, **dict.fromkeys(tensors, np.ones(2, "float32"))})
    folder = read_folder(str(tmp_path))
    assert folder.task is None and type(folder.model).__name__ == "BertBackbone" and says in folder.head_left_out
    assert f"{tmp_path}/model.safetensors is a fine-tuned model: its head is left out (" in folder.head_left_out
    assert folder.remarks == (folder.head_left_out,) and "classifier.bias, classifier.weight" in folder.head_left_out


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"id2label": {"1": "a", "2": "b", "3": "c"}}, "id2label is .*; it must have a label for each of 0, 1"),
        ({"id2label": {"0": "a", "1": "b"}}, r"classifier.bias \[3\] must be \[2\] by the configuration"),
    ],
)
def test_labels_that_do_not_fit_are_refused(fields, says, tmp_path):
    write_folder("bert", golden("bert")["ForSequenceClassification"], tmp_path, **fields)
    with pytest.raises(InputError, match=says):
        read_folder(str(tmp_path))


@pytest.mark.parametrize(
    ("family", "name", "settings", "says"),
    [
        ("electra", "text", {}, "no ELECTRA for text with task.head=tanh: .* --set task.head=gelu, or write"),
        ("modernbert", "ner", {}, "no ModernBERT for ner with task.head=tanh: .* --set task.head=norm, or"),
        ("bert", "text", {"bilstm": True}, "no BERT for text with task.bilstm: keep it as bert-tfx or write the"),
        ("bert", "text", {"features": "embeddings"}, "no BERT for text with task.features: keep"),
    ],
)
def test_a_head_that_transformers_lacks_is_refused_with_what_to_do(family, name, settings, says, tmp_path):
    write_folder(family, golden(family)["ForTokenClassification"], tmp_path / "hf")
    source = read_folder(str(tmp_path / "hf")).without_task()
    task, settings = dataclasses.replace(task_of(name), labels=("O", "B-x")), TaskSettings(16, lstm_units=8, **settings)
    size = source.architecture.embedding_size
    model = task_type_of(task).create_model(source.config, task, settings, 0, size)
    model.build()
    folder = ModelFolder.in_memory(model, source.tokenizer, family, task=task, settings=settings, path="DIR")
    with pytest.raises(InputError, match=says) as error:
        export(folder, str(tmp_path / "out"), "hf")
    assert not (tmp_path / "out").exists() and "\n" not in str(error.value)
    # The remedy: the encoder alone.
    export(folder.without_task(), str(tmp_path / "out"), "hf")
    assert read_folder(str(tmp_path / "out")).task is None


def test_the_card_has_the_hubs_metadata_and_the_scores_of_the_gate(tmp_path):
    write_folder("bert", golden("bert")["number"], tmp_path / "hf")
    folder = as_task(read_folder(str(tmp_path / "hf")), "sts-b")
    (tmp_path / "assets.extra").mkdir()
    lineage = {"scores": {"spearman": 0.87654321, "pearson": None, "floor": 0.1}, "language": "en", "licence": "mit"}
    (tmp_path / "assets.extra/lineage.json").write_text(json.dumps(lineage))
    folder = dataclasses.replace(folder, path=str(tmp_path), origin={"format": "hf", "name": "bert-base-uncased"})
    export(folder, str(tmp_path / "my-model"), "hf")
    _, metadata, text = (tmp_path / "my-model/README.md").read_text().split("---\n", 2)
    result = {
        "task": {"type": "text-classification"},
        "dataset": {"type": "sts-b", "name": "sts-b"},
        "metrics": [{"type": "spearman", "value": 0.87654321}],
    }
    assert yaml.safe_load(metadata) == {
        "base_model": "bert-base-uncased",
        "datasets": ["nyu-mll/glue"],
        "language": "en",
        "library_name": "transformers",
        "license": "mit",
        "metrics": ["spearman"],
        "model-index": [{"name": "my-model", "results": [result]}],
        "pipeline_tag": "text-classification",
        "tags": ["bert", "bert-tfx"],
    }
    assert "BERT fine-tuned for `sts-b`. Written by bert-tfx, from weights of `bert-base-uncased`." in text
    assert "| spearman | 0.8765 |" in text and "model = pipeline('text-classification', 'my-model')" in text
