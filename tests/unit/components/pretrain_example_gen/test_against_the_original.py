"""Our instances of the original's sample text compared with its own (`golden_pretraining`)."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bert_keras.tokenizers.wordpiece import BertTokenizer
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.transforms import make_examples_shards
from tests.support.examples.shard_files import parse, write_documents

DATA = os.environ.get("BERT_DATA_DIR")
SEEDS = 15


@pytest.fixture(scope="module")
def theirs():
    path = Path(DATA, "golden_pretraining", "create_pretraining_standard.jsonl")
    instances = [json.loads(line) for line in path.read_text().splitlines()]
    return {
        "instances": len(instances),
        "random_next": sum(instance["is_random_next"] for instance in instances),
        "masked": sum(len(instance["masked_lm_positions"]) for instance in instances),
        "real_tokens": sum(len(instance["tokens"]) for instance in instances),
        "full": sum(len(instance["tokens"]) == 128 for instance in instances),
        "of segment B": sum(sum(instance["segment_ids"]) for instance in instances),
    }


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Figures of each of SEEDS runs with the original's flags."""
    folder = tmp_path_factory.mktemp("original")
    text = Path(DATA, "golden_tokenization", "google_bert_sample_text.txt").read_text()
    documents = [document.splitlines() for document in text.strip().split("\n\n")]
    shard = write_documents(folder / "documents-00000-of-00001.tfrecord", documents)
    tokenizer = BertTokenizer.from_file(str(Path(DATA, "vocab", "bert-base-uncased-vocab.txt")), lower_case=True)
    figures = []
    for seed in range(SEEDS):
        settings = ExampleSettings(seed=seed)
        assert (settings.max_seq_length, settings.dupe_factor, settings.masking.max_predictions_per_seq) == (128, 5, 20)
        counts, _ = make_examples_shards(shard, tokenizer, settings, "train", str(folder))
        examples = parse(folder, settings.layout)
        full = (examples["input_mask"].sum(1) == 128).sum()
        figures.append(counts | {"full": full, "of segment B": examples["segment_ids"].sum()})
    return figures


@pytest.mark.skipif(not DATA, reason="BERT_DATA_DIR is unset: no golden_pretraining")
@pytest.mark.parametrize("name", ["instances", "random_next", "masked", "real_tokens", "full", "of segment B"])
def test_the_originals_figures_are_within_our_distribution(theirs, ours, name):
    """The original's figures are one draw; ours are many: within three standard deviations of the mean."""
    values = np.array([figures[name] for figures in ours])
    assert values.std() > 0
    assert abs(theirs[name] - values.mean()) < 3 * values.std(), (theirs[name], values.mean(), values.std())
