"""The weights of an initial model in a model to train: kept, drawn, and the rows of new tokens."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_keras.convert.architecture import Architecture, new_model
from bert_keras.convert.initial_weights import differences, initial_folder, initialize
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.data.example_format import ExampleLayout
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.left_to_right import LeftToRightLM
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.models.spanbert import SpanBertForPreTraining
from bert_keras.objectives import next_token
from bert_keras.saved_model.pretrained import export_saved_model
from bert_keras.tokenizers.protocol import FORMATS
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from bert_keras.tokenizers.wordpiece_extension import extend
from tests.support.models.model_folders import write
from tests.support.models.pushed_folders import without_graph

VOCABULARY = [*SPECIAL_TOKENS, "[unused0]", *"abcdef", *(f"##{letter}" for letter in "abcdef"), "."]
TOKENIZER = BertTokenizer(VOCABULARY, True)
CONFIG = BertConfig.size(2, 64, vocab_size=len(VOCABULARY), max_position_embeddings=16)
TABLE, BIAS = "bert/embeddings/word_embeddings/embeddings", "predictions/output_bias"
IDS = np.array([[2, 6, 13, 8, 3, 0]])
INPUTS = {"input_ids": IDS, "input_mask": np.sign(IDS), "segment_ids": 0 * IDS}


def built(kind, config=CONFIG, seed=1, **more):
    model = kind(config, seed=seed, **more)
    model.build()
    for variable in model.weights:  # biases too, which begin as zeros
        variable.assign(np.random.default_rng(len(variable.path)).normal(size=variable.shape))
    return model


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """`written(format)`: the folder of one model in a format, written once, and the model."""
    root, model = tmp_path_factory.mktemp("written"), built(BertForPreTraining)

    def folder_of(to="hf"):
        if not (root / to).exists():
            with without_graph():
                write(to, model, TOKENIZER, root / to)
        return str(root / to), model

    return folder_of


@pytest.fixture
def copied(written, tmp_path):
    """`copied(format)`: a copy of that folder, to be damaged."""
    return lambda to: shutil.copytree(written(to)[0], tmp_path / to)


def untrained(config=CONFIG, kind=BertForPreTraining, **more):
    """A model with the weights that another seed draws."""
    model = kind(config, seed=2, **more)
    model.build()
    return model


def weights(model):
    return {path: np.asarray(variable) for path, variable in variables_by_path(model).items()}


@pytest.mark.parametrize("to", ["bert-tfx", "tf1", "hf"])
def test_all_weights_of_a_folder_with_heads_are_kept(written, to):
    (directory, source), model = written(to), untrained()
    cased = False if to == "tf1" else None
    result = initialize(model, directory, cased, TOKENIZER)
    assert result.trained == ("encoder", "pooler", "masked-LM head", "next-sentence head")
    assert (result.untrained, result.new_tokens) == ((), 0)
    expected = weights(source)
    assert weights(model).keys() == expected.keys()
    for path, value in weights(model).items():
        np.testing.assert_array_equal(value, expected[path], err_msg=path)


def test_missing_heads_are_drawn_and_named(tmp_path):
    source, drawn = built(BertBackbone), untrained()
    before = weights(drawn)
    write("hf", source, TOKENIZER, tmp_path)
    result = initialize(drawn, str(tmp_path), None, TOKENIZER)
    assert result.trained == ("encoder", "pooler") and result.untrained == ("masked-LM head", "next-sentence head")
    learned = dict(zip((v.path for v in drawn.trainable_variables), result.learned_rows, strict=True))
    heads = [v.path for head in (drawn.mlm_head, drawn.nsp_head) for v in head.trainable_variables]
    assert {path: rows for path, rows in learned.items() if rows != []} == dict.fromkeys(heads)
    after = weights(drawn)
    np.testing.assert_array_equal(after[TABLE], weights(source)[TABLE])
    np.testing.assert_array_equal(after["predictions/transform/kernel"], before["predictions/transform/kernel"])


def test_a_pooler_that_is_not_trained_has_no_learned_rows(written):
    """As of whole sentences, which have no next-sentence loss: the frozen initial model is that of the loop."""
    model = untrained()
    model.backbone.pooler.trainable = False
    result = initialize(model, written()[0], None, TOKENIZER)
    assert "pooler" in result.trained
    assert result.learned_rows == ([],) * len(model.trainable_variables)


def test_a_spanbert_takes_the_encoder_and_the_masked_lm_head(written):
    (directory, source), model = written(), untrained(kind=SpanBertForPreTraining, max_pair_targets=4)
    result = initialize(model, directory, None, TOKENIZER)
    assert result.trained == ("encoder", "pooler", "masked-LM head") and not result.untrained
    np.testing.assert_array_equal(weights(model)[BIAS], weights(source)[BIAS])


def test_a_pushed_left_to_right_model_keeps_its_head(tmp_path):
    """Which is pushed as a masked-LM head (`bert_keras.saved_model.pretrained.export_saved_model`)."""
    config, directory = dataclasses.replace(CONFIG, causal=True), str(tmp_path / "pushed")
    source, model = built(LeftToRightLM, config), untrained(config, LeftToRightLM)
    layout = ExampleLayout("left_to_right", 16, 0, 1, "static")
    with without_graph():
        export_saved_model(source, TOKENIZER, directory, layout, next_token.OBJECTIVE)
    result = initialize(model, directory, None, TOKENIZER)
    assert result.trained == ("encoder", "masked-LM head") and result.untrained == ("pooler",)
    np.testing.assert_array_equal(model(INPUTS)["lm_logits"], source(INPUTS)["lm_logits"])


def test_rows_of_new_tokens_are_means_and_old_rows_stay(written):
    (directory, source), tokens = written(), extend(VOCABULARY, ["abc", "fe"])
    model = untrained(dataclasses.replace(CONFIG, vocab_size=len(tokens)))
    result = initialize(model, directory, None, BertTokenizer(tokens, True))
    assert result.new_tokens == 2
    learned = dict(zip((v.path for v in model.trainable_variables), result.learned_rows, strict=True))
    new = {path.partition("/")[2]: rows for path, rows in learned.items() if rows != []}
    assert new == {path: [5, len(VOCABULARY)] for path in (TABLE, BIAS)}
    for path in (TABLE, BIAS):
        old, new = weights(source)[path], weights(model)[path]
        kept = [i for i in range(len(VOCABULARY)) if i != 5]
        np.testing.assert_array_equal(new[kept], old[kept])
        for token_id, pieces in ((5, ["a", "##b", "##c"]), (len(VOCABULARY), ["f", "##e"])):
            expected = np.mean([old[VOCABULARY.index(piece)] for piece in pieces], axis=0)
            np.testing.assert_allclose(new[token_id], expected, rtol=1e-6)
    # Texts without new words have the same outputs.
    np.testing.assert_array_equal(*(np.asarray(each(INPUTS)["sequence_output"]) for each in (source, model)))


def test_a_width_that_equals_the_size_of_the_vocabulary_is_no_token(tmp_path):
    """As many tokens as the feed-forward layer is wide: its kernel has no rows of tokens."""
    config = dataclasses.replace(CONFIG, intermediate_size=len(VOCABULARY))
    source, tokens = built(BertForPreTraining, config), extend(VOCABULARY, ["abc"])
    directory = str(tmp_path)
    write("hf", source, TOKENIZER, directory)
    model = untrained(config)
    initialize(model, directory, None, BertTokenizer(tokens, True))
    path = "bert/layer_0/output/kernel"
    np.testing.assert_array_equal(weights(model)[path], weights(source)[path])


def test_case_must_be_known_and_equal(written):
    directory, _ = written("tf1")
    with pytest.raises(InputError, match="give --cased or --uncased"):
        initial_folder(directory)
    assert not initial_folder(directory, cased=True)[1].normalization.lower_case
    with pytest.raises(InputError, match="lower_case=False, the examples' True: make them with --init"):
        initialize(untrained(), directory, True, TOKENIZER)


@pytest.mark.parametrize(
    ("to", "file"),
    [("hf", "model.safetensors"), ("tf1", "bert_model.ckpt.data-00000-of-00001"), ("bert-tfx", "model.weights.h5")],
)
def test_damaged_weights_are_found_before_they_are_read(copied, to, file):
    """Cut short, empty, or with a head that is not the format's."""
    directory = str(copied(to))
    path = Path(directory, file)
    whole = path.read_bytes()
    assert initial_folder(directory, cased=False)
    for content in (whole[:-1], whole[: len(whole) // 2], b"", b"{}" * 100):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"{to}/.* is damaged or .*copy it") as error:
            initial_folder(directory, cased=False)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("to", "file", "change"),
    [
        ("bert-tfx", "model.weights.h5", lambda content: content.replace(b"SNOD", b"XXXX")),  # nodes of groups' trees
        ("tf1", "bert_model.ckpt.index", lambda content: b"no index"),
    ],
)
def test_a_damaged_index_is_found_before_it_is_read(copied, to, file, change):
    path = Path(copied(to), file)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=rf"{file.removesuffix('.index')} is damaged or incomplete"):
        initial_folder(str(path.parent), cased=False)


def test_models_that_do_not_fit_are_refused(written):
    directory, _ = written()
    with pytest.raises(InputError, match=r"has num_hidden_layers 2, the model to train has model\.num_hidden_layers=1"):
        other = dataclasses.replace(CONFIG, num_hidden_layers=1)
        initialize(built(BertForPreTraining, other), directory, None, TOKENIZER)
    tokens = [*VOCABULARY[:-1], "!"]
    with pytest.raises(InputError, match=r"token 18 is '!', not '\.'"):
        initialize(built(BertForPreTraining), directory, None, BertTokenizer(tokens, True))
    assert differences(dataclasses.replace(CONFIG, hidden_dropout_prob=0.0, vocab_size=99), CONFIG) == []


def test_other_families_and_folders_without_a_vocabulary_are_refused(tmp_path):
    roberta = new_model(Architecture("roberta", dataclasses.replace(CONFIG, hidden_act="gelu_erf"), 64), ("pooler",))
    write("hf", roberta, None, str(tmp_path / "roberta"), "roberta")
    with pytest.raises(InputError, match="roberta: has no vocabulary"):
        initial_folder(str(tmp_path / "roberta"))
    (tmp_path / "roberta" / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    # As KLUE's.
    assert initial_folder(str(tmp_path / "roberta"), cased=True)[1].format == FORMATS["distilbert"]
    write("hf", built(BertForPreTraining), None, str(tmp_path / "bare"), "bert")
    with pytest.raises(InputError, match="has no vocabulary"):
        initial_folder(str(tmp_path / "bare"))
