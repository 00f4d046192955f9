"""The examples of docs/library.md run as they stand, on tiny files of the same names."""

import re
from pathlib import Path

import numpy as np
import pytest

from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import write_huggingface
from tests.support.models.pushed_folders import without_graph

PAGE = (Path(__file__).parents[3] / "docs" / "library.md").read_text()
BLOCKS = {
    section.partition("\n")[0]: found[1]
    for section in PAGE.split("\n## ")[1:]
    if (found := re.search(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
}
WORDS = ["the", "cat", "cats", "sat", "on", "mat", "it", "was", "far", "away", ".", "a", "good", "bad", "film", "plot"]
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *WORDS], True)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(title)` executes the example below a heading in a folder with the files that it names; returns its names."""
    monkeypatch.chdir(tmp_path)
    config = BertConfig(len(TOKENIZER.vocabulary), 16, 1, 2, 32, 0.0, 0.0, max_position_embeddings=128)
    model = BertForPreTraining(config, seed=1)
    model.build()
    write_huggingface(model, TOKENIZER, "bert-base-uncased")

    def run(title):
        names = {}
        exec(compile(BLOCKS[title], f"docs/library.md, {title}", "exec"), names)
        return names

    return run


def test_the_page_has_three_examples():
    assert list(BLOCKS) == ["A model from a Hugging Face folder", "A fine-tuning in ten lines", "A tokenizer"]


def test_a_model_of_a_hugging_face_folder_predicts(run):
    names = run("A model from a Hugging Face folder")
    assert names["outputs"]["sequence_output"].shape == (2, 9, 16)
    assert names["outputs"]["pooled_output"].shape == (2, 16)
    assert names["bert"].untrained == ()
    alone = names["bert"].model.predict(names["bert"].inputs(["It was far away."]), verbose=0)
    np.testing.assert_allclose(alone["pooled_output"][0], names["outputs"]["pooled_output"][1], atol=1e-5)


def test_a_fine_tuning_in_ten_lines_learns(run, tmp_path):
    with without_graph():  # what the SavedModel answers: test_reranker.py, and tests/unit/bert_keras/saved_model
        names = run("A fine-tuning in ten lines")
    logits = names["tuned"].model.predict(names["tuned"].inputs(["a good film", "a bad plot"]), verbose=0)
    assert [names["tuned"].task.labels[i] for i in logits.argmax(-1)] == ["1", "0"]
    assert '"accuracy": 1.0' in (tmp_path / "logs" / "scores.json").read_text()


def test_a_tokenizer_cuts_text(run, capsys):
    names = run("A tokenizer")
    printed = capsys.readouterr().out.splitlines()
    assert f'print(tokenizer.tokenize("The cats sat."))  # {printed[0]}\n' in BLOCKS["A tokenizer"]
    assert [TOKENIZER.vocabulary[i] for i in names["ids"][names["row_splits"][1] :]] == ["far", "away", "."]
    starts_and_ends = zip(names["offsets"].starts, names["offsets"].ends, strict=True)
    assert ["The cats sat."[start:end] for start, end in starts_and_ends] == ["The", "cats", "sat", "."]
