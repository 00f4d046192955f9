"""Scores of sentence vectors, and sentences to train them on.

python -m benchmarks.finetuning.sentence_vectors sentences corpus.txt 20000 > sentences.tsv
python -m benchmarks.finetuning.sentence_vectors score STS-B/train.tsv MODEL...

`score` prints Spearman's correlation of cosine and score, by pooling, of models in any format that `convert` reads.
sentence_vectors.md has its figures.
"""

from __future__ import annotations

import argparse
import os
import random
import re
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
SEED = 0
# Words of a sentence: shorter ones say little, longer ones are not read whole.
SHORTEST, LONGEST = 5, 40
_ENDS = re.compile(r"(?<=[.!?])[\"')]*\s+")


def sentences(path: str, count: int) -> list[str]:
    """A seeded sample of the distinct sentences of a text with a paragraph a line, in the order of the text."""

    def read() -> Iterator[str]:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                yield from (" ".join(part.split()) for part in _ENDS.split(line))

    found = list(dict.fromkeys(text for text in read() if SHORTEST <= len(text.split()) <= LONGEST))
    return [found[place] for place in sorted(random.Random(SEED).sample(range(len(found)), count))]


def spearman(model: str, path: str, pooling: str, max_seq_length: int) -> float:
    """Spearman's correlation of a model's cosines with the scores of a file of pairs."""
    from bert_keras.finetuning.init_checkpoint import InitCheckpoint
    from bert_keras.finetuning.training import TrainedTask
    from bert_keras.tasks.metrics.scores import score
    from bert_keras.tasks.settings import TaskSettings
    from bert_keras.tasks.table import task_of
    from bert_keras.tasks.task_types import task_type_of
    from components.task_example_gen.readers import read_rows

    task, init = task_of("sentence-similarity"), InitCheckpoint.read(model)
    settings = TaskSettings(max_seq_length=min(max_seq_length, init.config.max_position_embeddings), pooling=pooling)
    vectors = task_type_of(task).create_model(init.config, task, settings, 0, init.embedding_size)
    vectors.build()
    init.initialize(vectors)
    rows = list(read_rows(task, path))
    answers = TrainedTask(vectors, task, settings, init.tokenizer).answers(rows, 64)
    return score(task, [row.gold for row in rows], answers)["spearman"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    of_sentences = commands.add_parser("sentences")
    of_sentences.add_argument("corpus")
    of_sentences.add_argument("count", type=int)
    of_score = commands.add_parser("score")
    of_score.add_argument("pairs")
    of_score.add_argument("models", nargs="+")
    of_score.add_argument("--max-seq-length", type=int, default=64)
    arguments = parser.parse_args()
    if arguments.command == "sentences":
        print("text", *sentences(arguments.corpus, arguments.count), sep="\n")
        return
    for model in arguments.models:
        for pooling in ("mean", "cls"):
            print(f"{model}  {pooling:5} {spearman(model, arguments.pairs, pooling, arguments.max_seq_length):.6f}")


if __name__ == "__main__":
    main()
