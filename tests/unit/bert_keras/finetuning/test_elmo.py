"""A pushed biLM: read, never trained, its layers under task models, minimal pairs; what is refused."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.convert.initial_weights import check_family
from bert_keras.data.example_format import ExampleLayout
from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import init_checkpoint, read_init
from bert_keras.finetuning.training import TrainedTask, fine_tune
from bert_keras.models.bilm import BiLM, characters_of
from bert_keras.objectives.next_token import BIDIRECTIONAL_OBJECTIVE
from bert_keras.saved_model.pretrained import ServedBert, export_saved_model
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import task_of
from components.evaluator.minimal_pairs import MinimalPair, score_pairs
from tests.support.models.model_folders import read_pushed, write_pushed
from tests.support.models.pushed_folders import lazily_traced, only_served
from tests.unit.bert_keras.finetuning.test_training import CONFIG, RUN, TOKENIZER, case

SHAPE = dataclasses.replace(CONFIG, encoder="bilm", num_hidden_layers=2, type_vocab_size=0)
SETTINGS = TaskSettings(max_seq_length=24, lstm_units=8)
LAYOUT = dataclasses.replace(ExampleLayout.bert(24, 4), objective="left_to_right")
UNIGRAM = np.log(np.full(SHAPE.vocab_size, 1 / SHAPE.vocab_size)).astype("float32")
SHORT = dataclasses.replace(RUN, num_train_epochs=0.5)


@pytest.fixture(scope="module")
def model():
    model = BiLM(SHAPE)
    model.build()
    model.backbone.embeddings.characters.assign(characters_of(TOKENIZER.vocabulary))
    return model


@pytest.fixture(scope="module")
def pushed(model, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("pushed") / "1")
    with only_served("encode"):
        export_saved_model(model, TOKENIZER, folder, LAYOUT, BIDIRECTIONAL_OBJECTIVE, unigram=UNIGRAM)
    return folder


def test_a_pushed_bilm_is_read_with_its_characters(model, pushed):
    read = read_pushed(pushed)
    assert read.family == "bilm" and read.model.config == SHAPE
    for ours, theirs in zip(model.get_weights(), read.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_its_features_are_the_mean_of_the_layers(model, pushed):
    found = tf.saved_model.load(pushed).signatures["encode"](text=tf.constant(["the cat sat"]))
    ids = [TOKENIZER.cls_id, *TOKENIZER.encode(["the cat sat"])[0], TOKENIZER.sep_id]
    inputs = {"input_ids": np.array([ids]), "input_mask": np.ones((1, len(ids)), int)}
    outputs = model(inputs)
    layers = [outputs["embedding_output"], *outputs["encoder_outputs"]]
    np.testing.assert_allclose(found["sequence_output"], np.mean(layers, axis=0), atol=1e-5)


def test_the_gate_gets_both_directions(model):
    with lazily_traced():
        signatures = ServedBert(model, TOKENIZER, LAYOUT, BIDIRECTIONAL_OBJECTIVE, unigram=UNIGRAM).signatures()
    assert set(signatures) == {"serving_default", "encode", "encode_pair", "evaluate"}
    names = {f"{way}_lm_{name}" for way in ("forward", "backward") for name in ("nll", "correct", "weight")}
    guessed = {f"{way}_lm_{name}_guessed" for way in ("forward", "backward") for name in ("nll", "correct")}
    assert set(signatures["evaluate"].structured_outputs) == names | guessed


def asked(rows):
    answer = {"answers": [{"text": "cat", "answer_start": 4}]}
    return [TaskRow(str(i), {"question": "the dog", "context": "the cat sat on a mat"}, answer) for i in range(rows)]


# Each traces three loops of LSTMs.
@pytest.mark.parametrize(
    "name", ["mnli", *(pytest.param(n, marks=pytest.mark.slow) for n in ("imdb", "sts-b", "swag", "ner", "squad1.1"))]
)
def test_a_task_learns_from_its_frozen_layers(pushed, tmp_path, name):
    """Only the mix, the BiLSTMs and the output layer move; the served model answers as the trained one."""
    task, rows = (task_of(name), asked(16)) if name == "squad1.1" else case(name, 16)
    settings = dataclasses.replace(SETTINGS, max_query_length=4)
    start = read_init(pushed)
    trained = fine_tune(task, settings, SHORT, start, rows, rows, str(tmp_path / "run"))
    for ours, theirs in zip(trained.backbone.weights, start.encoder.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    mix = trained.reader.layer_mix
    assert mix.count == 3 and float(mix.gamma) != 1 and len(set(np.asarray(mix.layer_scores).tolist())) == 3
    if name != "imdb":
        return
    folder = str(tmp_path / "1")
    export_task_model(trained, task, SETTINGS, TOKENIZER, folder)
    answered = tf.saved_model.load(folder).signatures["serving_default"](
        text=tf.constant([row.inputs["text"] for row in rows])
    )
    expected = TrainedTask(trained, task, SETTINGS, TOKENIZER).answers(rows, 8)
    assert [label.decode() for label in answered["label"].numpy()] == expected
    again = read_pushed(folder).fine_tuned[0]
    for ours, theirs in zip(trained.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_would_train_it_is_refused(pushed, tmp_path):
    (task, rows), start = case("imdb", 8), read_init(pushed)

    def refusal(task=task, settings=SETTINGS, config=SHORT, start=start):
        with pytest.raises(InputError) as error:
            fine_tune(task, settings, config, start, rows, rows, str(tmp_path))
        return str(error.value)

    frozen = "trains the encoder, but this one is frozen, as a biLM (ELMo) always is"
    assert f"task.bilstm: {frozen}" in refusal(settings=dataclasses.replace(SETTINGS, bilstm=True))
    assert f"training.layer_decay: {frozen}" in refusal(config=dataclasses.replace(SHORT, layer_decay=0.8))
    assert f"sentence-similarity: {frozen}" in refusal(task_of("sentence-similarity"))
    of_bert = dataclasses.replace(SETTINGS, features="last"), init_checkpoint(CONFIG, TOKENIZER)
    assert frozen in refusal(task_of("sentence-retrieval"), of_bert[0], start=of_bert[1])


def test_it_is_neither_converted_nor_trained_on(pushed, tmp_path):
    with pytest.raises(InputError, match=r"model\.encoder is bilm; only `bert-tfx pretrain` writes such a model"):
        write_pushed(read_pushed(pushed).model, TOKENIZER, str(tmp_path / "copy"))
    with pytest.raises(InputError, match="contains a biLM; continued pre-training of a biLM is not supported"):
        check_family(read_pushed(pushed), False)


def test_a_minimal_pair_has_the_likelihoods_of_both_directions(model, pushed):
    texts = "the cat sat on a mat", "the dogs ran"
    found = score_pairs(pushed, [MinimalPair("here", *texts, "p", "q")])[0]
    for text, likelihood in zip(texts, found, strict=True):
        ids = [TOKENIZER.cls_id, *TOKENIZER.encode([text])[0], TOKENIZER.sep_id]
        outputs = model({"input_ids": np.array([ids]), "input_mask": np.ones((1, len(ids)), int)})
        forward, backward = (tf.nn.log_softmax(outputs[f"{way}_lm_logits"])[0] for way in ("forward", "backward"))
        expected = sum(forward[t - 1, ids[t]] + backward[t + 1, ids[t]] for t in range(1, len(ids) - 1))
        assert likelihood == pytest.approx(float(expected), rel=1e-5)
    with pytest.raises(InputError, match="always predicts next tokens, and masks nothing; leave pll-word out"):
        score_pairs(pushed, [MinimalPair("here", *texts, "p", "q")], "pll-word")
