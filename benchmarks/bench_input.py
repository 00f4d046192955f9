"""How fast training examples are read: `python benchmarks/bench_input.py EXAMPLES [BATCH]`; no model.

Prints tokens a second, by the clock and a CPU second, of the batches that the training loop gets; for examples that are
stored unmasked, masking included.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main(examples_dir: str, batch_size: int = 256, seconds: float = 10.0) -> None:
    from bert_keras.features import ExampleSpec
    from bert_keras.input_pipeline import DynamicMasking, shard_files, train_batches
    from bert_keras.masking import MaskingVocabulary
    from bert_keras.pretrain import load_tokenizer

    spec = ExampleSpec.load(examples_dir)
    masking = None
    if spec.masking.when == "dynamic":
        masking = DynamicMasking(spec.masking, MaskingVocabulary.of(load_tokenizer(examples_dir, spec)))
    batches = iter(
        train_batches(
            shard_files(os.path.join(examples_dir, "Split-train", "*")),
            spec.layout,
            num_examples=spec.train_examples,
            batch_size=batch_size,
            first_example=0,
            seed=1,
            dynamic_masking=masking,
        )
    )
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
