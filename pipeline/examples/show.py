"""Examples as text, for people."""

import itertools
from collections.abc import Iterator, Sequence

from bert_keras.data.tfrecord import Example, read_records
from components.corpus_gen.sorted_runs import SPLITS
from components.io.shards import open_file, shard_paths
from components.vocab_gen.files import load_tokenizer


def examples_as_text(directory: str, count: int) -> Iterator[str]:
    """The first `count` examples of each split, a line each.

    A masked token is what the model reads, then "=" and the answer: `the [MASK]=cat sat`. With dynamic masking
    only the split `eval` is masked.
    """
    vocabulary = load_tokenizer(directory)[0].vocabulary
    for split in SPLITS:
        for record in itertools.islice(_records(f"{directory}/Split-{split}"), count):
            yield f"{split}: {_text(record, vocabulary)}"


def _records(directory: str) -> Iterator[bytes]:
    for path in shard_paths(directory):
        with open_file(path) as file:
            yield from read_records(file)


def _text(record: bytes, vocabulary: Sequence[str]) -> str:
    features = Example.FromString(record).features.feature
    values = {name: feature.int64_list.value or feature.float_list.value for name, feature in features.items()}
    tokens = [vocabulary[i] for i in itertools.compress(values["input_ids"], values["input_mask"])]
    for answer, place in itertools.compress(
        zip(values.get("masked_lm_ids", ()), values.get("masked_lm_positions", ()), strict=True),
        values.get("masked_lm_weights", ()),
    ):
        tokens[place] += f"={vocabulary[answer]}"
    weights = values.get("next_sentence_weights", itertools.repeat(1))
    labels = itertools.compress(values.get("next_sentence_labels", ()), weights)
    return " ".join([*tokens, *(f"next_sentence_label={label}" for label in labels)])
