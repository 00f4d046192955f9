"""Benchmark of reading training examples, no model: `python benchmarks/examples/bench_input.py EXAMPLES [BATCH]`.

Prints tokens per second and per CPU second for the batches of the training loop; for examples stored unmasked,
masking included.
"""

from __future__ import annotations

import json
import resource
import sys
import time


def main(examples_dir: str, batch_size: int = 256, seconds: float = 10.0) -> None:
    from bert_keras.data.example_format import ExampleSpec
    from bert_keras.data.masking import MaskingVocabulary
    from bert_keras.data.tfrecord_batches import DynamicMasking
    from bert_keras.pretraining import load_tokenizer
    from bert_keras.training.phases import ExampleSet

    spec = ExampleSpec.load(examples_dir)
    masking = None
    if spec.masking.when == "dynamic":
        masking = DynamicMasking(spec.masking, MaskingVocabulary.of(load_tokenizer(examples_dir, spec)))
    examples = ExampleSet.load(examples_dir, masking)
    batches = iter(examples.train_batches(batch_size=batch_size, first_example=0, seed=1))
    next(batches)  # the shuffle buffer is filled
    started, cpu, count = time.perf_counter(), _cpu_seconds(), 0
    while time.perf_counter() - started < seconds:
        next(batches)
        count += 1
    tokens = count * batch_size * spec.max_seq_length
    print(
        json.dumps(
            {
                "masking": spec.masking.when,
                "max_seq_length": spec.max_seq_length,
                "tokens_per_second": round(tokens / (time.perf_counter() - started)),
                "tokens_per_cpu_second": round(tokens / (_cpu_seconds() - cpu)),
            }
        )
    )


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
