"""Pre-train on JAX: for a GPU, where rows, masks and steps all stay on the device.

    .venv/bin/python -m benchmarks.speedrun.on_jax rows EXAMPLES rows.npz --pairs 'blimp/data/*.jsonl'
    KERAS_BACKEND=jax python -m benchmarks.speedrun.on_jax train rows.npz OUT --steps 50000 \\
        --set model.hidden_size=384 --set model.num_attention_heads=6 --set model.intermediate_size=1536
    .venv/bin/python -m benchmarks.speedrun.on_jax export OUT EXAMPLES MODEL

EXAMPLES is an artifact of PretrainExampleGen with dynamic masking. `train` needs JAX, Keras and NumPy, no TensorFlow.
It takes the product's model, objective, head start and optimizer, and draws the recipe's masks itself (tokens). It
prints the held-out masked-LM loss of the first 512 rows, and the share of minimal pairs that the model has right: by
pseudo-log-likelihood and, of `gpt_bert`, by next tokens and by the sum of both; on the product's rows and pairs.
`export` makes a model of the weights, which are stored in float16, in files of less than 16 MB.

Shapes: N rows, B rows of a batch, T tokens, P predictions, V vocabulary.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

HELD_OUT_ROWS = 512
# Steps of one compiled loop.
CHUNK = 100
# Rows that are scored at a time.
SCORED = 4096
# Objectives whose rows are pairs or have no masks.
OTHER_OBJECTIVES = ("mlm_nsp", "mlm_sop", "left_to_right")
# Settings of `MaskingSettings` that `masked_batch` does not follow.
FIXED_MASKING = ("unit", "rounding", "special_tokens", "random_tokens")
# Weights of a file.
FILE_VALUES = 7_500_000

app = typer.Typer(add_completion=False)
Settings = Annotated[list[str], typer.Option("--set", help="A setting of the recipe, KEY=VALUE.")]
Recipe = Annotated[str, typer.Option(help="Model, masking and training.")]


@app.command()
def rows(
    examples: Path,
    output: Path,
    pairs: Annotated[str, typer.Option(help="Minimal pairs, JSON lines.")],
    limit: Annotated[int, typer.Option(help="Pairs of a paradigm.")] = 150,
) -> None:
    """Write the rows of EXAMPLES and the tokens of minimal pairs as arrays."""
    import tensorflow as tf

    from bert_keras.data.example_format import ExampleSpec
    from bert_keras.pretraining import load_tokenizer
    from bert_keras.tasks.sequences import TokenRuns, single_sequences
    from components.evaluator.minimal_pairs import read_pairs

    spec = ExampleSpec.load(str(examples))
    if spec.objective in OTHER_OBJECTIVES or spec.vocab_size > 1 << 16:
        raise SystemExit(f"{examples}: give examples of a masked LM without pairs, with at most 65,536 tokens")
    arrays: dict[str, np.ndarray] = {}
    wanted = {"train": ["input_ids"], "eval": ["input_ids", "masked_lm_positions", "masked_lm_ids"]}
    for split, names in wanted.items():
        files = sorted(str(path) for path in examples.glob(f"Split-{split}/*"))
        read = [
            tf.train.Example.FromString(record).features.feature
            for record in tf.data.TFRecordDataset(files).as_numpy_iterator()
        ]
        if not read:
            raise SystemExit(f"{examples}: no rows in Split-{split}; give more text, or hold out more of it")
        for name in names:
            arrays[f"{split}_{name}"] = _padded([example[name].int64_list.value for example in read])
    tokenizer = load_tokenizer(str(examples), spec)
    chosen = read_pairs([pairs], "--pairs", limit)
    runs = TokenRuns.of(tokenizer, [text for pair in chosen for text in (pair.good, pair.bad)])
    arrays["pairs"] = single_sequences(runs, int(runs.lengths.max()) + 2, "head", tokenizer)["input_ids"]
    arrays["phenomena"] = np.array([pair.phenomenon for pair in chosen])
    ids = {name: getattr(tokenizer, f"{name}_id") for name in ("pad", "cls", "sep", "mask")}
    about = {**ids, "vocab_size": spec.vocab_size, "objective": spec.objective}
    np.savez_compressed(output, about=np.array(json.dumps(about)), **arrays)


def _padded(runs: list) -> np.ndarray:
    """Numbers below 65,536 as uint16 [N, longest], 0 after the end of each run."""
    values = np.zeros((len(runs), max(map(len, runs))), np.uint16)
    for row, run in zip(values, runs, strict=True):
        row[: len(run)] = run
    return values


@app.command()
def train(
    data: Path,
    output: Path,
    steps: Annotated[int, typer.Option()],
    settings: Settings = [],  # noqa: B006
    recipe: Recipe = "ten_million_words",
    every: Annotated[int, typer.Option(help="Steps between evaluations.")] = 1000,
) -> None:
    """Train for STEPS steps, and write the weights and the curve to OUTPUT."""
    import jax
    import jax.numpy as jnp
    import keras

    from benchmarks.model.bench_model import jax_train_step
    from bert_keras.data.masking import MaskingSettings
    from bert_keras.models.head_start import head_start
    from bert_keras.objectives.registry import pretraining_model
    from bert_keras.training.flops import known_training_flops
    from bert_keras.training.optimizer import create_optimizer

    arrays = np.load(data)
    about = json.loads(str(arrays["about"]))
    run = _recipe(recipe, settings, steps, about["vocab_size"])
    config, masking = run.training, run.examples.masking
    if changed := [name for name in FIXED_MASKING if getattr(masking, name) != getattr(MaskingSettings, name)]:
        raise SystemExit(
            f"examples.masking.{changed[0]} is {getattr(masking, changed[0])}; only its default is offered here"
        )
    keras.mixed_precision.set_dtype_policy(config.mixed_precision)
    make, objective = pretraining_model(run.pretraining, about["objective"], run.model, config.seed)
    model = make()
    text = arrays["train_input_ids"]
    if run.pretraining.head_start:
        counts = 1.0 + np.bincount(text[text != about["pad"]], minlength=about["vocab_size"])
        head_start(model, np.log(counts / counts.sum()).astype("float32"))
    optimizer = create_optimizer(config, run.model.num_hidden_layers)
    optimizer.build(model.trainable_variables)
    predictions, batch_size = masking.max_predictions_per_seq, config.train_batch_size

    def loss(outputs, batch):
        sums = {name: value.sum() for name, value in objective.example_sums(outputs, batch).items()}
        return objective.loss(sums, objective.totals(batch))

    step, compiled_nll = jax_train_step(model, optimizer, loss, config.clip_norm), _compiled_nll(model)
    row_flops = known_training_flops(model, text.shape[1], masking.masked_lm_prob * text.shape[1]) or math.nan

    @jax.jit
    def train_chunk(state, text, order, seeds):
        def one(state, step_input):
            rows, seed = step_input
            batch = masked_batch(text[rows], jax.random.key(seed), masking, about, predictions)
            value, state = step(*state, batch)
            return state, value

        return jax.lax.scan(one, state, (order, seeds))

    trained, others = ([v.value for v in x] for x in (model.trainable_variables, model.non_trainable_variables))
    state = (trained, others, [v.value for v in optimizer.variables])
    order = epochs(len(text), steps * batch_size, config.seed).reshape(steps, batch_size)
    text, curve = jax.device_put(text), []
    used, started = 0.0, time.perf_counter()
    for first in range(0, steps, CHUNK):
        last = min(first + CHUNK, steps)
        state, losses = train_chunk(state, text, order[first:last], np.arange(first, last) + (config.seed << 20))
        if last % every < CHUNK or last == steps:
            learned = float(jnp.mean(losses))
            used += time.perf_counter() - started
            nll = functools.partial(compiled_nll, *state[:2])
            held_out = _held_out_loss(nll, arrays, about)
            right = _pair_shares(nll, arrays, about, run.pretraining.model_family == "gpt_bert")
            done = {"step": last, "seconds": used, "flops": last * batch_size * row_flops, "loss": learned}
            curve.append({**done, "held_out": held_out, **right})
            print(json.dumps({k: float(f"{v:.5g}") for k, v in curve[-1].items()}), flush=True)
            if not math.isfinite(learned):
                raise SystemExit("the loss is not finite")
            started = time.perf_counter()
    output.mkdir(parents=True, exist_ok=True)
    values = np.concatenate([np.asarray(value, np.float32).ravel() for value in (*state[0], *_drawn(model))])
    for number, start in enumerate(range(0, len(values), FILE_VALUES)):
        np.save(output / f"weights-{number}.npy", values[start : start + FILE_VALUES].astype(np.float16))
    # Last: `export` reads it first.
    (output / "run.json").write_text(
        json.dumps({"recipe": recipe, "settings": settings, "steps": steps, "curve": curve}) + "\n"
    )


def _recipe(name: str, settings: list[str], steps: int, vocab_size: int):
    from pipeline.recipes.pretraining import recipe_of
    from pipeline.recipes.settings import with_settings

    fixed = [f"training.num_train_steps={steps}", f"model.vocab_size={vocab_size}"]
    return with_settings(recipe_of(name), ["training.budget=None", *settings, *fixed])


def _drawn(model) -> list:
    """Variables of the model that are not learned: a position table of sinusoids."""
    return [variable for variable in model.weights if not variable.trainable]


def epochs(rows: int, count: int, seed: int) -> np.ndarray:
    """`count` numbers of rows, int32: all of them in a random order, then all again in another."""
    passes = [np.random.default_rng((seed, number)).permutation(rows) for number in range(-(-count // rows))]
    return np.concatenate(passes)[:count].astype(np.int32)


def masked_batch(ids, key, masking, about: dict, predictions: int) -> dict:
    """A batch with masks of its own, as `bert_keras.data.masking` draws them for `unit="token"`.

    Args:
        ids: uint16 [B, T].
        key: of JAX's random numbers.
        masking: `MaskingSettings`.
        about: ids of special tokens, and V.
        predictions: P.
    """
    import jax
    import jax.numpy as jnp

    ids = jnp.asarray(ids, jnp.int32)
    choice, kind, random = jax.random.split(key, 3)
    real = ids != about["pad"]
    candidates = real & (ids != about["cls"]) & (ids != about["sep"])
    count = jnp.clip(jnp.round(masking.masked_lm_prob * real.sum(1)), 1, predictions)
    count = jnp.minimum(count, candidates.sum(1))
    drawn = jnp.where(candidates, jax.random.uniform(choice, ids.shape), -1.0)
    positions = jax.lax.top_k(drawn, predictions)[1]
    weights = jnp.arange(predictions) < count[:, None]
    labels = jnp.take_along_axis(ids, positions, 1)
    kinds = jax.random.uniform(kind, positions.shape)
    replaced = jnp.where(kinds < masking.mask_fraction + masking.keep_fraction, labels, 0)
    replaced = jnp.where(kinds < masking.mask_fraction, about["mask"], replaced)
    is_random = kinds >= masking.mask_fraction + masking.keep_fraction
    replaced = jnp.where(is_random, jax.random.randint(random, positions.shape, 0, about["vocab_size"]), replaced)
    replaced = jnp.where(weights, replaced, labels)
    return {
        "input_ids": ids.at[jnp.arange(len(ids))[:, None], positions].set(replaced),
        "input_mask": real.astype(jnp.int32),
        "segment_ids": jnp.zeros_like(ids),
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": weights.astype(jnp.float32),
    }


def _inputs(ids: np.ndarray, pad: int) -> dict[str, np.ndarray]:
    ids = ids.astype(np.int32)
    return {"input_ids": ids, "input_mask": (ids != pad).astype(np.int32), "segment_ids": np.zeros_like(ids)}


def _compiled_nll(model):
    """(trained, other variables, inputs with `masked_lm_positions` [B, P], targets [B, P]) -> nats [B, P], compiled."""
    import jax

    from bert_keras.objectives.mlm_nsp import nll_and_hits

    def nll(trained, others, inputs, targets):
        outputs = model.stateless_call(trained, others, inputs, training=False)[0]
        return nll_and_hits(outputs["mlm_logits"], targets)[0]

    return jax.jit(nll)


def _held_out_loss(nll: Callable, arrays, about: dict) -> float:
    """Nats per masked token of the first held-out rows."""
    ids, positions, labels = (
        arrays[f"eval_{name}"][:HELD_OUT_ROWS].astype(np.int32)
        for name in ("input_ids", "masked_lm_positions", "masked_lm_ids")
    )
    values = nll({**_inputs(ids, about["pad"]), "masked_lm_positions": positions}, labels)
    weights = positions > 0  # position 0 is [CLS]
    return float((np.asarray(values) * weights).sum() / weights.sum())


def _pair_shares(nll: Callable, arrays, about: dict, reads_left: bool) -> dict[str, float]:
    """Share of pairs whose good sentence is likelier (a tie: half): `masked`; if `reads_left`, `next` and `sum`."""
    ids = arrays["pairs"].astype(np.int32)
    lengths = (ids != about["pad"]).sum(1) - 2
    row = np.repeat(np.arange(len(ids)), lengths)
    place = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    masked = ids[row]
    targets = masked[np.arange(len(row)), place]
    masked[np.arange(len(row)), place] = about["mask"]
    scores = {"masked": np.bincount(row, -_scored(nll, masked, about, place[:, None], targets[:, None])[:, 0])}
    if reads_left:
        places = np.tile(np.arange(ids.shape[1] - 1), (len(ids), 1))
        values = _scored(nll, ids, about, places, ids[:, 1:], reads_left=True)
        scores["next"] = -(values * (places < lengths[:, None])).sum(1)
        scores["sum"] = scores["masked"] + scores["next"]
    pairs = {name: score.reshape(-1, 2) for name, score in scores.items()}
    return {name: float(np.mean((x[:, 0] > x[:, 1]) + 0.5 * (x[:, 0] == x[:, 1]))) for name, x in pairs.items()}


def _scored(nll: Callable, ids, about: dict, positions, targets, reads_left: bool = False) -> np.ndarray:
    """Nats [N, P] of the tokens `targets` at `positions` of rows `ids`, in batches of one size."""
    parts = []
    for start in range(0, len(ids), SCORED):
        part = slice(start, start + SCORED)
        count = len(ids[part])
        full = [np.pad(x[part], ((0, SCORED - count), (0, 0)), mode="edge") for x in (ids, positions, targets)]
        inputs = {**_inputs(full[0], about["pad"]), "masked_lm_positions": full[1].astype(np.int32)}
        if reads_left:
            inputs["reads_left"] = np.ones_like(inputs["input_ids"])
        parts.append(np.asarray(nll(inputs, full[2]), np.float64)[:count])
    return np.concatenate(parts)


@app.command()
def export(run: Path, examples: Path, output: Path) -> None:
    """Make a model of the weights of RUN, with the tokenizer of EXAMPLES."""
    from bert_keras.data.example_format import ExampleSpec
    from bert_keras.jobs import PretrainJob
    from bert_keras.objectives.registry import pretraining_model
    from bert_keras.pretraining import export_with_examples, load_tokenizer

    about = json.loads((run / "run.json").read_text())
    spec = ExampleSpec.load(str(examples))
    recipe = _recipe(about["recipe"], about["settings"], about["steps"], spec.vocab_size)
    make, objective = pretraining_model(recipe.pretraining, spec.objective, recipe.model, recipe.training.seed)
    model = make()
    files = sorted(run.glob("weights-*.npy"), key=lambda path: int(path.stem.split("-")[1]))
    values = np.concatenate([np.load(file) for file in files]).astype(np.float32)
    variables = [*model.trainable_variables, *_drawn(model)]
    sizes = [math.prod(variable.shape) for variable in variables]
    for variable, part in zip(variables, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
        variable.assign(part.reshape(variable.shape))
    job = PretrainJob(
        examples=(str(examples),),
        model=recipe.model,
        training=recipe.training,
        pretraining=recipe.pretraining,
        **{name: str(output) for name in ("output_dir", "logs_dir", "training_root")},
    )
    export_with_examples(model, objective, job, str(examples), load_tokenizer(str(examples), spec))


if __name__ == "__main__":
    app()
