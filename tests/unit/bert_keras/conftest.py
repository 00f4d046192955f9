"""A small examples artifact, written with TensorFlow's own classes, not with the code that makes the real ones."""

import hashlib
import json
import shutil
import types

import numpy as np
import pytest

from tests.support.examples.shard_figures import note_shards

T, P = 16, 3
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "far", "from", "it", "to", "see", "more"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", ".", "[", "]"]


def example(generator, number):
    """A tf.train.Example: a repeating sequence with masks; NSP says whether the second half goes on (0) or not (1)."""
    import tensorflow as tf

    first = int(generator.integers(5, 12))
    label = number % 2
    words = [5 + (first + i) % 15 for i in range(6)] + [5 + (first + i + 7 * label) % 15 for i in range(6, 11)]
    ids = [2, *words[:6], 3, *words[6:], 3]
    positions = sorted(generator.choice([p for p in range(1, 13) if p != 7], size=1 + number % P, replace=False))
    labels = [ids[p] for p in positions]
    for p in positions:
        ids[p] = 4
    padding, unused = [0] * (T - len(ids)), [0] * (P - len(positions))
    ints = {
        "input_ids": ids + padding,
        "input_mask": [1] * len(ids) + padding,
        "segment_ids": [0] * 8 + [1] * 6 + padding,
        "masked_lm_positions": [*map(int, positions), *unused],
        "masked_lm_ids": labels + unused,
        "next_sentence_labels": [label],
    }
    features = {k: tf.train.Feature(int64_list=tf.train.Int64List(value=v)) for k, v in ints.items()}
    weights = [1.0] * len(positions) + [0.0] * len(unused)
    features["masked_lm_weights"] = tf.train.Feature(float_list=tf.train.FloatList(value=weights))
    return tf.train.Example(features=tf.train.Features(feature=features))


def artifact(root):
    train, held_out = (str(root / f"Split-{split}") for split in ("train", "eval"))
    return types.SimpleNamespace(dir=str(root), train=train, eval=held_out, vocabulary=VOCABULARY)


@pytest.fixture(scope="session")
def examples(tmp_path_factory):
    """Directory and counts of an examples artifact: 100 training examples in three shards, 20 held out in one."""
    import tensorflow as tf

    root = tmp_path_factory.mktemp("examples")
    generator = np.random.default_rng(5)
    counts = {"train": [40, 40, 20], "eval": [20]}
    for split, shards in counts.items():
        (root / f"Split-{split}").mkdir()
        for index, size in enumerate(shards):
            path = root / f"Split-{split}" / f"examples-{index:05d}-of-{len(shards):05d}.tfrecord"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for number in range(size):
                    writer.write(example(generator, number).SerializeToString())
    content = "".join(token + "\n" for token in VOCABULARY).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    (root / "vocab.txt").write_bytes(content)
    (root / "vocab_spec.json").write_text(
        json.dumps({"algorithm": "wordpiece", "lower_case": True, "vocabulary_sha256": sha256})
    )
    spec = {
        "max_seq_length": T,
        "max_predictions_per_seq": P,
        "vocab_size": len(VOCABULARY),
        "vocabulary_sha256": sha256,
        "counts": {split: {"instances": sum(shards)} for split, shards in counts.items()},
    }
    (root / "example_spec.json").write_text(json.dumps(spec))
    note_shards(root)
    return artifact(root)


@pytest.fixture(scope="session")
def unmasked_examples(examples, tmp_path_factory):
    """The same artifact, made for dynamic masking: training examples hold the originals and no masked_lm_*."""
    from tests.support.models.pretrain_jobs import change_examples, change_spec

    def unmask(features):
        positions, labels = (features[f"masked_lm_{name}"].int64_list.value for name in ("positions", "ids"))
        for position, label in zip(positions, labels, strict=True):
            if position:
                features["input_ids"].int64_list.value[position] = label
        for name in [name for name in features if name.startswith("masked_lm_")]:
            del features[name]

    root = tmp_path_factory.mktemp("unmasked")
    shutil.copytree(examples.dir, root, dirs_exist_ok=True)
    change_examples(root, unmask, "Split-train")
    change_spec(root, masking={"when": "dynamic"})
    return artifact(root)
