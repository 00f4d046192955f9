"""Written folders of the original, of Hugging Face and of keras-hub: bit-equal round trips, and files."""

import shutil

import pytest
from safetensors.numpy import load_file

from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import assert_equal, read, write

TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "a", "cat", "##s", "é"], lower_case=False)
CONFIG = BertConfig(9, 8, 1, 2, 24, max_position_embeddings=6, type_vocab_size=3)
FILES = {
    "tf1": ["bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index", "vocab.txt"],
    "hf": ["README.md", "config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"],
}


@pytest.fixture(scope="module")
def model(random_bert):
    return random_bert(CONFIG, BertForPreTraining)


@pytest.fixture(scope="module", params=FILES)
def to(request):
    return request.param


@pytest.fixture(scope="module")
def written(model, to, tmp_path_factory):
    directory = tmp_path_factory.mktemp("written") / to
    write(to, model, TOKENIZER, directory)
    return directory


@pytest.mark.parametrize(("model_class", "hidden_act"), [(BertForPreTraining, "gelu_erf"), (BertBackbone, "gelu_tanh")])
def test_round_trip_is_bit_equal(random_bert, to, tmp_path, model_class, hidden_act):
    config = BertConfig(9, 8, 2, 2, 24, max_position_embeddings=6, hidden_act=hidden_act)
    model = random_bert(config, model_class)
    write(to, model, TOKENIZER, tmp_path)
    found = read(to, tmp_path, cased=True)
    assert type(found.model) is model_class and found.model.config == config
    assert_equal(found.model, model)
    assert (found.tokenizer.vocabulary, found.untrained) == (TOKENIZER.vocabulary, ())
    assert found.tokenizer.normalization == TOKENIZER.normalization


def test_files_are_written_with_the_same_bytes_for_the_same_model(model, to, written, tmp_path):
    assert sorted(path.name for path in written.iterdir()) == FILES[to]
    assert len({path.stat().st_mode for path in written.iterdir()}) == 1  # none for the owner alone
    assert (written / "vocab.txt").read_text(encoding="utf-8").splitlines() == list(TOKENIZER.vocabulary)
    again = tmp_path / written.name  # which the card of Hugging Face's has
    write(to, model, TOKENIZER, again)
    assert all((again / path.name).read_bytes() == path.read_bytes() for path in written.iterdir())


def test_a_moved_folder_is_read(model, to, written, tmp_path):
    """No path is stored in it; without a vocabulary there is no tokenizer, and the backbone may be alone."""
    moved = shutil.copytree(written, tmp_path / "moved")
    (moved / "vocab.txt").unlink()
    found = read(to, moved)
    assert_equal(found.model, model)
    assert found.tokenizer is None
    write(to, model.backbone, None, tmp_path / "backbone")
    assert not (tmp_path / "backbone" / "vocab.txt").exists()
    assert_equal(read(to, tmp_path / "backbone").model, model.backbone)
    if to == "hf":
        assert all(name.startswith("bert.") for name in load_file(tmp_path / "backbone" / "model.safetensors"))


def test_a_failed_write_keeps_the_old_files(model, to, written, tmp_path, monkeypatch):
    directory = shutil.copytree(written, tmp_path / "copy")
    before = {path.name: path.read_bytes() for path in directory.iterdir()}

    def fail(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr({"tf1": "tensorflow.raw_ops.SaveV2", "hf": "safetensors.numpy.save_file"}[to], fail)
    with pytest.raises(OSError, match="no space left"):
        write(to, model, BertTokenizer(TOKENIZER.vocabulary, lower_case=True), directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_a_vocabulary_of_another_size_is_refused_before_anything_is_read_or_written(model, to, written, tmp_path):
    directory = shutil.copytree(written, tmp_path / "copy")
    for path in directory.glob("*model*"):
        path.unlink()
    with open(directory / "vocab.txt", "a") as file:
        file.write("more\n")
    with pytest.raises(InputError, match=r"vocab.txt has 10 tokens, but the word embeddings have 9 rows"):
        read(to, directory)
    with pytest.raises(InputError, match="has 5 tokens, but the word embeddings of the model have 9 rows"):
        write(to, model, BertTokenizer(SPECIAL_TOKENS, True), tmp_path / "new")
    assert not (tmp_path / "new").exists()
