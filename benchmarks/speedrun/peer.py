"""transformers' Trainer on the same examples: held-out masked-LM loss by core-seconds, for `speedrun table`.

    scripts/setup_bench.sh
    taskset -c 0 .venv-bench/bin/python -m benchmarks.speedrun.peer EXAMPLES OUT --name peer_default
    taskset -c 0 .venv-bench/bin/python -m benchmarks.speedrun.peer EXAMPLES OUT --name peer_tuned \\
        --model hidden_dropout_prob=0 --set learning_rate=2e-3 --set per_device_train_batch_size=64

EXAMPLES is the demo's artifact of PretrainExampleGen, whose training examples are unmasked. The model is
`BertForMaskedLM` of the demo's size, with transformers' initial weights and dropout. Masks, optimizer, rate, batch and
epochs are the defaults of its masked-LM script (examples/pytorch/language-modeling/run_mlm.py). The core-seconds are
those of the process, with the imports and without the held-out evaluations. The last model is saved to OUT/NAME-SEED,
with vocab.txt beside it.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import pathlib
import shutil
import time

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

MODEL = {
    "vocab_size": 8000,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 128,
}


def arrays(examples: str, split: str) -> dict[str, np.ndarray]:
    """All rows of a split, by feature."""
    from bert_keras.data.example_format import ExampleSpec
    from bert_keras.data.tfrecord_batches import eval_batches

    layout = ExampleSpec.load(examples).layout
    files = sorted(map(str, pathlib.Path(examples, f"Split-{split}").iterdir()))
    batches = list(eval_batches(files, layout, batch_size=4096, masked=split == "eval").as_numpy_iterator())
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def held_out_loss(model: BertForMaskedLM, rows: dict[str, np.ndarray]) -> float:
    """Mean loss of the masked tokens, in nats."""
    total = 0.0
    model.eval()
    with torch.no_grad():
        for start in range(0, len(rows["input_ids"]), 128):
            ids, mask, segments, positions, labels, weights = (
                torch.from_numpy(rows[name][start : start + 128])
                for name in ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids",
                             "masked_lm_weights")
            )  # fmt: skip
            hidden = model.bert(ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
            masked = torch.gather(hidden, 1, positions.long()[:, :, None].expand(-1, -1, hidden.shape[2]))
            losses = torch.nn.functional.cross_entropy(
                model.cls(masked).flatten(0, 1), labels.flatten().long(), reduction="none"
            )
            total += float((losses * weights.flatten()).sum())
    model.train()
    return total / float(rows["masked_lm_weights"].sum())


class Curve(TrainerCallback):
    """Evaluates at equal distances of core-seconds, which do not count."""

    def __init__(self, rows: dict[str, np.ndarray], every: float, name: str, limit: float) -> None:
        self.rows, self.every, self.name, self.limit = rows, every, name, limit
        self.points: list[tuple[int, float, float]] = []
        self.evaluating = 0.0

    def on_step_end(self, args, state, control, model=None, **kwargs):
        now = time.process_time() - self.evaluating
        before = self.points[-1][1] if self.points else 0.0
        if now - before >= self.every or state.global_step == state.max_steps:
            loss = held_out_loss(model, self.rows)
            self.points.append((state.global_step, now, loss))
            self.evaluating = time.process_time() - now
            print(self.name, state.global_step, state.max_steps, f"{now:.0f} s", f"{loss:.3f}", flush=True)
        if now >= self.limit:
            control.should_training_stop = True


def value_of(setting: str) -> tuple[str, object]:
    name, _, text = setting.partition("=")
    try:
        return name, ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return name, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples")
    parser.add_argument("output")
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", action="append", default=[], help="field of BertConfig=value")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="field of TrainingArguments=value")
    parser.add_argument("--mlm-probability", type=float, default=0.15)
    parser.add_argument("--every", type=float, default=30.0, help="core-seconds between two evaluations")
    parser.add_argument("--rows", type=int, help="of the evaluations but the last: the first held-out rows")
    parser.add_argument("--limit", type=float, default=math.inf, help="core-seconds after which it stops")
    args = parser.parse_args()
    torch.set_num_threads(1)
    name = f"{args.name}-{args.seed}"
    train, held_out = arrays(args.examples, "train"), arrays(args.examples, "eval")
    rows = [
        {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
        for ids, mask, segments in zip(train["input_ids"], train["input_mask"], train["segment_ids"], strict=True)
    ]
    tokenizer = BertTokenizerFast(vocab=f"{args.examples}/vocab.txt")
    torch.manual_seed(args.seed)
    model = BertForMaskedLM(BertConfig(**{**MODEL, **dict(map(value_of, args.model))}))
    output = pathlib.Path(args.output, name)
    settings = {"output_dir": str(output), "seed": args.seed, "save_strategy": "no", "report_to": "none"}
    settings |= {"disable_tqdm": True, "use_cpu": True, **dict(map(value_of, args.settings))}
    first = {feature: values[: args.rows] for feature, values in held_out.items()}
    curve = Curve(first, args.every, name, args.limit)
    print(name, "begins at", f"{held_out_loss(model, first):.3f}, uniform", f"{math.log(MODEL['vocab_size']):.3f}")
    Trainer(
        model=model,
        args=TrainingArguments(**settings),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=args.mlm_probability),
        train_dataset=rows,
        callbacks=[curve],
    ).train()
    last = held_out_loss(model, held_out)
    print(name, "ends at", f"{last:.3f}, of all {len(held_out['input_ids'])} held-out rows", flush=True)
    model.save_pretrained(output)
    shutil.copy(f"{args.examples}/vocab.txt", output)
    words = [*args.model, *args.settings, f"mlm_probability={args.mlm_probability}"]
    fields = {"name": args.name, "seed": args.seed, "settings": words, "curve": curve.points, "last": last}
    pathlib.Path(args.output, f"{name}.json").write_text(json.dumps(fields) + "\n")


if __name__ == "__main__":
    main()
