"""Pre-training on JAX: the masks it draws, the pairs it scores, and what becomes of the weights."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.speedrun import on_jax
from bert_keras.data.masking import MaskingSettings
from tests.support.models.tiny_language import SENTENCES

PAD, CLS, SEP, MASK, V = 0, 2, 3, 4, 50
ABOUT = {"pad": PAD, "cls": CLS, "sep": SEP, "mask": MASK, "vocab_size": V}


def test_each_pass_has_every_row_once_in_an_order_of_its_own():
    order = on_jax.epochs(10, 25, seed=1)
    first, second = order[:10], order[10:20]
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second) and len(order) == 25 and len(set(order[20:])) == 5
    assert list(order) == list(on_jax.epochs(10, 25, seed=1)) != list(on_jax.epochs(10, 25, seed=2))


def test_masks_are_those_of_the_settings():
    import jax

    rng = np.random.default_rng(0)
    ids = rng.integers(5, V, (512, 40)).astype(np.uint16)
    lengths = np.where(np.arange(512) % 4, 40, 10)
    ids[:, 0], ids[np.arange(512), lengths - 1] = CLS, SEP
    ids[np.arange(40) >= lengths[:, None]] = PAD
    settings = MaskingSettings(masked_lm_prob=0.3, max_predictions_per_seq=10)
    batch = {k: np.asarray(v) for k, v in on_jax.masked_batch(ids, jax.random.key(1), settings, ABOUT, 10).items()}
    weights, positions = batch["masked_lm_weights"] > 0, batch["masked_lm_positions"]
    # 0.3 of 40 tokens are 12, more than fit; of 10 they are 3. [CLS] and [SEP] are counted, and not chosen.
    assert list(weights.sum(1)) == [10 if length == 40 else 3 for length in lengths]
    chosen = np.zeros(ids.shape, int)
    np.add.at(chosen, (np.nonzero(weights)[0], positions[weights]), 1)
    assert chosen.max() == 1 and not chosen[np.isin(ids, [PAD, CLS, SEP])].any()
    in_order = np.lexsort((positions[weights], np.nonzero(weights)[0]))
    assert (batch["masked_lm_ids"][weights][in_order] == ids[chosen > 0]).all()
    assert (batch["input_ids"] == ids)[chosen == 0].all()
    assert (batch["input_mask"] == (ids != PAD)).all()
    shown, true = batch["input_ids"][chosen > 0], ids[chosen > 0]
    assert np.mean(shown == MASK) == pytest.approx(0.8, abs=0.02)
    assert np.mean(shown == true) == pytest.approx(0.1 + 0.1 / V, abs=0.015)


def test_pairs_are_scored_by_their_tokens_alone(monkeypatch):
    """A model of single tokens: token 5 is likelier than 6; a pair of equal sentences is half right."""
    monkeypatch.setattr(on_jax, "SCORED", 5)  # more than one batch, and a last one that is filled up
    good, bad, long_bad = [CLS, 5, 7, SEP, PAD], [CLS, 6, 7, SEP, PAD], [CLS, 5, 7, 6, SEP]
    pairs = [good, bad, bad, good, good, good, good, long_bad]
    seen = []

    def nll(inputs, targets):
        ids, places = inputs["input_ids"], inputs["masked_lm_positions"]
        if "reads_left" not in inputs:
            assert (np.take_along_axis(ids, places, 1) == MASK).all() and ((ids == MASK).sum(1) == 1).all()
        seen.append((len(ids), "reads_left" in inputs))
        return np.array([9.0, 0, 0, 9.0, 0, 1.0, 2.0, 0.5])[targets]  # [PAD] and [SEP] would decide, if they counted

    shares = on_jax._pair_shares(nll, {"pairs": np.array(pairs, np.uint16)}, ABOUT, reads_left=True)
    assert shares == {"masked": 2.5 / 4, "next": 2.5 / 4, "sum": 2.5 / 4}
    assert set(seen) == {(5, False), (5, True)}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt_bert"])
def test_the_exported_model_has_the_loss_and_the_pairs_of_the_training(tmp_path, family):
    from bert_keras.objectives.mlm_nsp import nll_and_hits
    from bert_keras.objectives.registry import pretraining_model

    sentences, rng = SENTENCES.read_text().splitlines(), np.random.default_rng(0)
    documents = ["\n".join(rng.choice(sentences, 8)) for _ in range(400)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    pair = {"sentence_good": "the model reads text", "UID": "order"}
    bad = ("text the reads model", "the model reads", "the model reads text and the text", "reads text", "the the the")
    lines = [{**pair, "sentence_bad": text, "linguistics_term": "order"} for text in bad]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    bert_tfx = Path(sys.executable).with_name("bert-tfx")
    module = (sys.executable, "-m", "benchmarks.speedrun.on_jax")

    def call(*command, **environment):
        done = subprocess.run(
            [str(word) for word in command], env=os.environ | environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    masking = ("examples.masking.when=dynamic", "examples.masking.max_predictions_per_seq=10")
    sets = [word for setting in masking for word in ("--set", setting)]
    call(bert_tfx, "examples", "--corpus", tmp_path / "text.txt", "--output", tmp_path / "ex",
         "--vocab-size", 300, "--max-seq-length", 32, "--objective", "full_sentences", *sets)  # fmt: skip
    call(*module, "rows", tmp_path / "ex", tmp_path / "rows.npz", "--pairs", tmp_path / "pairs.jsonl")
    size = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 2}
    settings = [f"model.{name}={value}" for name, value in size.items()]
    settings += ["training.train_batch_size=8", "training.num_warmup_steps=5", f"pretraining.model_family={family}"]
    settings += ["examples.masking.max_predictions_per_seq=10"]
    sets = [word for setting in settings for word in ("--set", setting)]
    printed = call(*module, "train", tmp_path / "rows.npz", tmp_path / "run", "--steps", 20, *sets, KERAS_BACKEND="jax")
    last = json.loads(printed.splitlines()[-1])
    call(*module, "export", tmp_path / "run", tmp_path / "ex", tmp_path / "model")
    shown = call(bert_tfx, "minimal-pairs", tmp_path / "pairs.jsonl", "--model", tmp_path / "model")
    right = next(line for line in shown.splitlines() if line.startswith("overall")).split()[2]
    assert float(right.strip("%")) / 100 == pytest.approx(last["masked"], abs=0.001)
    about = json.loads(str(np.load(tmp_path / "rows.npz")["about"]))
    recipe = on_jax._recipe("ten_million_words", settings, 20, about["vocab_size"])
    model = pretraining_model(recipe.pretraining, about["objective"], recipe.model, 0)[0]()
    model.load_weights(str(tmp_path / "model/model.weights.h5"))

    def nll(inputs, targets):
        return nll_and_hits(model(inputs)["mlm_logits"], targets)[0].numpy()

    held_out = on_jax._held_out_loss(nll, np.load(tmp_path / "rows.npz"), about)
    assert held_out == pytest.approx(last["held_out"], abs=2e-3)  # float16
    assert last["step"] == 20
    assert ("sum" in last) == (family == "gpt_bert")
