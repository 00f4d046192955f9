"""Shards of documents of numbered words, and the examples made from them.

TensorFlow is imported where it writes and reads them: tests of other things do without it.
"""

import numpy as np

from bert_keras.data.example_format import feature_spec
from bert_keras.data.masking import MaskingSettings
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.transforms import make_examples_shards

# A word for each token: "w17" has id 22. "?" is unknown.
VOCABULARY = (*SPECIAL_TOKENS, *(f"w{i}" for i in range(3000)))
TOKENIZER = BertTokenizer(VOCABULARY, lower_case=True)
SETTINGS = ExampleSettings(
    max_seq_length=32, dupe_factor=2, short_seq_prob=0.2, masking=MaskingSettings(max_predictions_per_seq=5)
)


def make_documents(count, rng):
    """Documents of sentences of distinct words, so that a run of tokens tells where it is from."""
    words = iter(rng.permutation(3000).tolist())
    return [
        [" ".join(f"w{next(words)}" for _ in range(rng.integers(1, 12))) for _ in range(rng.integers(1, 9))]
        for _ in range(count)
    ]


def write_documents(path, documents):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for document in documents:
            example = tf.train.Example()
            example.features.feature["segments"].bytes_list.value.extend(s.encode() for s in document)
            writer.write(example.SerializeToString())
    return str(path)


def make(shard, output_dir, split="train", settings=SETTINGS):
    """The counts of the shards that are made of one."""
    return make_examples_shards(shard, TOKENIZER, settings, split, str(output_dir))[0]


def read_records(*paths):
    import tensorflow as tf

    return [record.numpy() for path in paths for record in tf.data.TFRecordDataset(str(path))]


def made_of(output_dir):
    """The shards of a folder, in order."""
    return sorted(output_dir.glob("examples-*"))


def parse(output_dir, layout=SETTINGS.layout, *, masked=True):
    import tensorflow as tf

    features = tf.io.parse_example(read_records(*made_of(output_dir)), feature_spec(layout, masked=masked))
    return {name: values.numpy() for name, values in features.items()}


def restore(examples):
    """input_ids before masking."""
    input_ids = examples["input_ids"].copy()
    rows, slots = np.nonzero(examples["masked_lm_weights"])
    input_ids[rows, examples["masked_lm_positions"][rows, slots]] = examples["masked_lm_ids"][rows, slots]
    return input_ids
