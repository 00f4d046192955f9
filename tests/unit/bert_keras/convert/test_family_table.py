"""README's table of families: what each cell says is done here, with a tiny model and a vocabulary of its kind."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from safetensors.numpy import load_file

from bert_keras.convert.architecture import Architecture, new_model
from bert_keras.convert.families.table import FAMILIES
from bert_keras.convert.formats import export, read_folder
from bert_keras.convert.huggingface import folder as hf_folder
from bert_keras.convert.initial_weights import initial_folder, initialize
from bert_keras.convert.model_folder import ModelFolder
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import initialize_encoder, read_init
from bert_keras.models.electra import ElectraConfig, ElectraForPreTraining
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.saved_model.settings import family_of
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from pipeline.recipes.pretraining import RECIPES
from tests.support.models import tiny_encoders
from tests.support.models.head_folders import BYTES, WORDS
from tests.support.models.pushed_folders import only_served, without_graph
from tests.support.models.tiny_sentencepiece import tiny_sentencepiece
from tests.unit.bert_keras.convert.test_released_vocabularies import GOLDEN, read

README = Path(__file__).parents[4] / "README.md"
WRITERS = ("hf", "tf1", "keras-hub")
# Whose SavedModel is written and loaded: it holds the tokenizer, SentencePiece's. Of WordPiece: test_model_folder.py;
# of byte-level BPE: objectives/test_byte_bpe.py. What the other signatures answer: tests/unit/bert_keras/saved_model.
SAVED = "albert"
ONE_LAYER = dataclasses.replace(tiny_encoders.TINY, num_hidden_layers=1, max_position_embeddings=64)
EXACT = dataclasses.replace(ONE_LAYER, hidden_act="gelu_erf")
ALBERT = dataclasses.replace(tiny_encoders.ALBERT, hidden_act="gelu_erf", max_position_embeddings=64)
ROBERTA = dataclasses.replace(EXACT, type_vocab_size=1, layer_norm_eps=1e-5)
# The configuration, but for the vocabulary's size; its vocabulary, None: one of golden_vocabularies.
MODELS = {
    "bert": (ONE_LAYER, WORDS),
    "roberta": (ROBERTA, BYTES),
    "electra": (dataclasses.replace(EXACT, num_attention_heads=1), WORDS),
    "albert": (ALBERT, tiny_sentencepiece()),
    "modernbert": (dataclasses.replace(tiny_encoders.MODERN, layer_norm_eps=1e-5, max_position_embeddings=64), None),
    "distilbert": (dataclasses.replace(EXACT, type_vocab_size=0), None),
    "xlm-roberta": (ROBERTA, None),
    "camembert": (ROBERTA, None),
    "mpnet": (dataclasses.replace(EXACT, **tiny_encoders.MPNET_FIELDS), None),
    "deberta-v2": (dataclasses.replace(EXACT, **tiny_encoders.DEBERTA_FIELDS, layer_norm_eps=1e-7), None),
}


def rows():
    """The table's cells by family: recipe, and formats that are written."""
    titles = {family.title: name for name, family in FAMILIES.items()}
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in README.read_text().splitlines()]
    named = {titles.get(title): row for row in cells if len(row) == 7 for title in re.split("[,:] ", row[0])}
    return {name: row for name, row in named.items() if name}


def test_the_table_has_every_family_that_others_know():
    assert {*rows()} == {*MODELS} and {*MODELS, "bilm", "static"} == {*FAMILIES}


def test_a_family_with_berts_layout_is_one_entry(monkeypatch, tmp_path, random_bert):
    """As CONTRIBUTING.md says: its own names, BERT's classes."""
    bert = FAMILIES["bert"]
    toy = dataclasses.replace(
        bert,
        **{"name": "toy", "title": "Toy", "prefix": "toy.", "class_stem": "Toy", "models_of": "bert"},
        tied={copy: tensor.replace("bert.", "toy.") for copy, tensor in bert.tied.items()},
        renamed=((r"^bert\.", "toy."),),
    )
    model = random_bert(dataclasses.replace(EXACT, vocab_size=len(WORDS.vocabulary)), BertForPreTraining)
    monkeypatch.setitem(FAMILIES, "toy", dataclasses.replace(toy, models_of=""))
    with pytest.raises(InputError, match="is a BERT; it cannot be written as a Toy"):
        ModelFolder.in_memory(model, WORDS, "toy")
    for table in (FAMILIES, hf_folder._READ):
        monkeypatch.setitem(table, "toy", toy)
    export(ModelFolder.in_memory(model, WORDS, "toy"), str(tmp_path / "hf"), "hf")
    assert "toy.pooler.dense.weight" in load_file(tmp_path / "hf" / "model.safetensors")
    again = read_folder(str(tmp_path / "hf"))
    ours, theirs = (variables_by_path(one) for one in (model, again.model))
    assert again.family == "toy" and ours.keys() == theirs.keys()
    for path in ours:
        np.testing.assert_array_equal(ours[path], theirs[path], err_msg=path)


@pytest.fixture(scope="module", params=MODELS)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def folder(family):
    """A model of the family in memory, with random weights, none of them 0."""
    config, tokenizer = MODELS[family]
    tokenizer = tokenizer or read(GOLDEN / family, family)
    config = dataclasses.replace(config, vocab_size=len(tokenizer.vocabulary))
    head = "discriminator head" if family == "electra" else "masked-LM head"
    width = 8 if family == "electra" else config.of_width().hidden_size
    model = new_model(Architecture(family, config, width), {head, "pooler"})
    for variable in model.weights:
        variable.assign(np.random.default_rng(variable.shape[0]).normal(0, 0.3, variable.shape))
    return ModelFolder.in_memory(model, tokenizer, family)


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    """Its folder of Hugging Face."""
    directory = tmp_path_factory.mktemp("hf") / "model"
    export(folder, str(directory), "hf")
    return str(directory)


def test_it_is_read_and_written(family, folder, written, tmp_path):
    _, is_read, _, _, _, _, formats = rows()[family]
    assert json.loads(Path(written, "config.json").read_text())["model_type"] == family and is_read == "yes"
    again = read_folder(written)
    assert (again.family, again.config, again.tokenizer.format) == (family, folder.config, folder.tokenizer.format)
    ours, theirs = (variables_by_path(one.model) for one in (folder, again))
    for path in ours.keys() & theirs.keys():
        np.testing.assert_array_equal(ours[path], theirs[path], err_msg=path)
    assert ours.keys() == theirs.keys()
    for to in WRITERS:
        if to in formats.replace("`", "").split(", "):
            export(again, str(tmp_path / to), to)
            assert read_folder(str(tmp_path / to), False, to).family == family
        else:
            with pytest.raises(InputError):
                export(again, str(tmp_path / to), to)


def test_others_read_the_written_tokenizer_as_it_is_read_here(family, folder, written):
    """`BertTokenizer` of transformers would give an MPNet BERT's special tokens, and a DistilBERT segments."""
    settings = json.loads(Path(written, "tokenizer_config.json").read_text())
    takes_segments = bool(folder.tokenizer.has_segments and folder.config.type_vocab_size)
    assert ("model_input_names" in settings) == (not takes_segments)
    assert "token_type_ids" not in settings.get("model_input_names", ())
    if Path(written, "tokenizer.json").exists():
        ours = folder.inputs(["the cat"], ["a cat"])
        theirs = tokenizers.Tokenizer.from_file(f"{written}/tokenizer.json").encode("the cat", "a cat")
        assert theirs.ids == ours["input_ids"][0][ours["input_mask"][0] > 0].tolist()
    else:
        assert folder.tokenizer.format.cls in ("[CLS]", settings["tokenizer_class"].replace("RobertaTokenizer", "<s>"))


def test_it_is_trained_on(family, folder, written):
    _, _, recipe, goes_on, _, _, _ = rows()[family]
    assert goes_on == "yes" and recipe.strip("`") in (*RECIPES, "no")
    original, tokenizer = initial_folder(written)
    config, size = original.config, original.architecture.embedding_size
    model = BertForPreTraining(config) if family != "electra" else ElectraForPreTraining(ElectraConfig(config, size, 1))
    model.build()
    kept = initialize(model, written, None, tokenizer)
    assert "encoder" in kept.trained and kept.new_tokens == 0
    encoder = model if family != "electra" else model.discriminator
    table = "bert/embeddings/word_embeddings/embeddings"
    np.testing.assert_array_equal(*(variables_by_path(one)[table] for one in (encoder, folder.model)))
    if recipe != "no":
        trained = RECIPES[recipe.strip("`")]()
        is_bert = family in ("bert", "roberta")  # the recipe's encoder does not tell them apart
        kind = "electra" if trained.pretraining.model_family == "electra" else family_of(trained.model)
        assert kind == (None if is_bert else family) or (family, trained.name) == ("deberta-v2", "deberta_v3_base")


def test_it_is_fine_tuned_and_served(family, folder, written, tmp_path):
    assert rows()[family][4:6] == ["yes", "yes"]
    init, task, settings = read_init(written), task_of("sst-2"), TaskSettings(max_seq_length=32)
    model = task_type_of(task).create_model(init.config, task, settings, 0, init.architecture.embedding_size)
    model.build()
    initialize_encoder(model, init)
    texts = ["the cat sat", "a b"]
    inputs = folder.inputs(texts)
    expected = np.array(folder.model(inputs)["sequence_output"])
    real = inputs["input_mask"] == 1
    np.testing.assert_allclose(np.array(model.backbone(inputs)["sequence_output"])[real], expected[real], atol=1e-5)
    if family == SAVED:
        with only_served("encode"):
            export(folder, str(tmp_path / "pushed"))
        encode = tf.saved_model.load(str(tmp_path / "pushed")).signatures["encode"]
        served = encode(text=tf.constant(texts))["sequence_output"].numpy()
    else:
        with without_graph() as signatures:
            export(folder, str(tmp_path / "pushed"))
        served = signatures[0]["encode"](tf.constant(texts))["sequence_output"].numpy()
    np.testing.assert_allclose(served[:, : expected.shape[1]][real], expected[real], atol=1e-5)
    pushed = read_folder(str(tmp_path / "pushed"))
    if FAMILIES[family].masked_lm_only:  # whose other parts nothing trained
        assert type(pushed.model) is type(folder.model) and pushed.untrained == ()
    assert (pushed.family, pushed.config, pushed.tokenizer.format) == (family, folder.config, folder.tokenizer.format)
    ours, theirs = (variables_by_path(one.model) for one in (folder, pushed))
    for path in ours.keys() & theirs.keys():
        np.testing.assert_array_equal(ours[path], theirs[path], err_msg=path)
