"""The summary's arithmetic and its rows, its sources and its budget."""

import dataclasses
import json
import types

import pytest

from bert_keras.objectives.table import PARTS
from bert_keras.training.config import SecondPhase
from pipeline.recipes.bert import tiny_cpu
from pipeline.recipes.pretraining import RECIPES
from pipeline.recipes.settings import with_settings
from pipeline.summaries import pretrain, summary
from pipeline.summaries.pretrain import budget_line, data_line, read_by_source, source_line, with_budget
from tests.support.golden import check_golden
from tests.support.pipeline.fabricated_run import PAIRS, SUMMARY


def test_the_figures_of_the_data_in_a_line():
    def figure(name, label, value):
        return {"name": name, "of": "", "label": label, "value": value, "minimum": 0, "maximum": 1, "remedy": ""}

    figures = [
        figure("documents", "documents", 14707),
        figure("masked_fraction", "masked tokens", 0.15494),
        figure("fill_fraction", "filled positions", None),
    ]
    assert data_line(figures) == "documents 14,707, masked tokens 15.49%"


FIGURES = {
    "unigram_perplexity": 400.0, "mlm_perplexity": 80.0, "mlm_accuracy": 0.3, "lm_perplexity": 50.0, "lm_accuracy": 0.4,
    "sbo_perplexity": 100.0, "sbo_accuracy": 0.25, "disc_loss": 0.2, "disc_accuracy": 0.9, "nsp_accuracy": 0.8,
    "chances": {"nsp_accuracy": [0.6, 4.0]}, "disc_least_original": 0.85,
}  # fmt: skip
PERPLEXITY = "perplexity {}, 1/{} of the unigram model's 400.0; accuracy {}"


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        (
            "mlm_nsp",
            {
                "masked LM": PERPLEXITY.format("80.0", "5.0", "30.0%"),
                "next sentence": "80.0% (chance 60.0%; +4.0 standard errors): learned",
            },
        ),
        ("mlm", {"masked LM": PERPLEXITY.format("80.0", "5.0", "30.0%")}),
        ("left_to_right", {"next token": PERPLEXITY.format("50.0", "8.0", "40.0%")}),
        (
            "span_boundary",
            {
                "masked LM": PERPLEXITY.format("80.0", "5.0", "30.0%"),
                "span boundary": PERPLEXITY.format("100.0", "4.0", "25.0%"),
            },
        ),
        (
            "electra",
            {
                "generator": PERPLEXITY.format("80.0", "5.0", "30.0%"),
                "discriminator": "loss 0.200; accuracy 90.0% (at least 85.0% if all were called original)",
            },
        ),
    ],
)
def test_learned_metrics_in_words(objective, told):
    assert {part.name: pretrain._learned(part, FIGURES) for part in PARTS[objective]} == told


def test_the_share_of_original_tokens_is_the_discriminator_s_chance(tmp_path):
    """At most 150 of 1,000 tokens are replaced. Of other objectives there is nothing."""
    (tmp_path / "example_spec.json").write_text(json.dumps({"counts": {"eval": {"masked": 150, "real_tokens": 1000}}}))
    assert pretrain._least_original({"disc_accuracy": 0.9}, str(tmp_path)) == {"disc_least_original": 0.85}
    assert pretrain._least_original({"lm_accuracy": 0.3}, str(tmp_path)) == {}


VERDICT = {"blessed": True, "checked": True, "problems": [], "answers": 40, "memory_mb": 612.4, "load_seconds": 3.21}
OUTCOME = {
    "blessed": True, "gate_failures": [], "intervals": {"accuracy": [0.8512, 0.9]},
    "serving": VERDICT | {"latency_ms": {"a": 2.0, "b": 3.456}},
    "slices": [{"by": "label", "of": "0", "metrics": {"accuracy": 0.75, "example_count": 1200.0}, "intervals": {}}],
    "pushed_version": "17", "served_version": "17",
    "stage_states": {}, "seconds_by_stage": {}, "notices": ["half is never seen", "rows are left out"],
}  # fmt: skip


def test_intervals_and_the_server_s_measurements_are_shown():
    assert summary.outcome_rows(OUTCOME) == {
        "gate": "blessed",
        "95% CI": "accuracy 0.8512 to 0.9",
        "label 0": "accuracy 0.75 (1,200 rows)",
        "serving": "40 answers as trained, 95 % within 3.46 ms (b); 612 MiB; loaded in 3.2 s",
        "pushed": "version 17; serving 17",
        "stages": "",
        "notice 1": "half is never seen",
        "notice 2": "rows are left out",
    }


def test_a_refused_model_has_no_slices_intervals_or_server_rows():
    """No slices, no intervals, no measurements of a server that was not started."""
    refused = OUTCOME | {
        "workflow": "pretrain",
        "blessed": False,
        "slices": [],
        "intervals": {},
        "pushed_version": None,
        "notices": [],
    }
    refused["serving"] = VERDICT | {"answers": 0, "latency_ms": {}, "problems": ["nothing is recorded"]}
    rows = summary.outcome_rows(refused)
    assert rows.pop("to try") == "a smaller model, or other limits (serving.*); see docs/serving.md"
    assert rows == {"gate": "NOT blessed: serving: nothing is recorded", "pushed": "nothing; serving 17", "stages": ""}
    (part,) = OUTCOME["slices"]
    many = [part | {"of": str(label)} for label in range(77)] + [part | {"by": "length", "of": "up to 32"}]
    rows = summary.outcome_rows(OUTCOME | {"slices": many})
    assert not [name for name in rows if name.startswith("label")]
    assert rows["length up to 32"] == "accuracy 0.75 (1,200 rows)"


@pytest.mark.parametrize(("scored", "before"), [(True, 100.0**1.5), (False, 8000.0)])
def test_perplexity_per_word_is_of_the_metrics_and_of_the_evaluator_s_file(tmp_path, monkeypatch, scored, before):
    """The baseline is the initial model, whose metrics are there; or another one, and the Evaluator scored both."""
    (tmp_path / "example_spec.json").write_text(json.dumps({"counts": {"eval": {"tokens": 9, "words": 6}}}))
    written = {"reference": {"initial_model": 30.0, "model": 31.0}}
    written |= {} if scored else {"held_out": {"tokens_per_word": 1.5, "initial_model": 8000.0}}
    (tmp_path / "word_perplexity.json").write_text(json.dumps(written))
    perplexities = {"candidate": 64.0, "baseline": 100.0}
    monkeypatch.setattr(pretrain, "evaluated", lambda _, name="candidate": {"mlm_perplexity": perplexities[name]})
    model, other = (types.SimpleNamespace(id=number) for number in (1, 2))
    stage = types.SimpleNamespace(inputs={"baseline_model": [model if scored else other]})
    run = types.SimpleNamespace(initial_model=model, stages={"Evaluator": stage})
    found = pretrain._word_perplexity(run, str(tmp_path), str(tmp_path), "mlm_perplexity")["word_perplexity"]
    assert found["reference"] == written["reference"]
    assert found["held_out"] == pytest.approx({"tokens_per_word": 1.5, "initial_model": before, "model": 512.0})
    without = types.SimpleNamespace(initial_model=None)
    assert pretrain._word_perplexity(without, "", "", "") == {}


def test_the_screen_at_the_end_of_a_run(capsys):
    initial = {
        "source": "bert-base", "sha256": "c0ffee", "licence": "", "kept": "encoder, pooler", "drawn": "masked-LM head",
        "new_tokens": 12, "metrics": {"mlm_perplexity": 100.0},
    }  # fmt: skip
    seconds = {"CorpusGen": 0.02, "Trainer": 61.0}
    states = {"CorpusGen": "CACHED", "Trainer": "COMPLETE"}
    figures = {
        "held_out": {"tokens_per_word": 1.2, "initial_model": 250.0, "model": 190.0},
        "reference": {"tokens_per_word": 1.1, "initial_model": 30.0, "model": 31.5, "max_forgetting": 0.1},
    }
    run = OUTCOME | {
        "initial_model": initial,
        "word_perplexity": figures,
        "minimal_pairs": PAIRS,
        "seconds_by_stage": seconds,
        "corpus_read_before": 1200,
        "stage_states": states,
    }
    summary.print_summary(SUMMARY | run, "runs/demo")
    check_golden(capsys.readouterr().out, __file__, "pretrain")


def folder_of(folder, length, names):
    """Examples without content: 40, 40 and 20 of them in three shards, of the sources `names`."""
    (folder / "Split-train").mkdir(parents=True)
    (folder / "Split-eval").mkdir()
    shards = []
    for index, (name, records) in enumerate(zip(names, (40, 40, 20), strict=True)):
        path = f"Split-train/examples-{index:05d}-of-00003.tfrecord"
        (folder / path).touch()
        shards.append({"path": path, "pass_number": 0, "records": records, "size": 0, "crc32c": "0"})
        shards[-1] |= {"source": name} if name else {}
    (folder / "example_shards.json").write_text(json.dumps(shards))
    counts = {split: {"instances": count} for split, count in (("train", 100), ("eval", 20))}
    spec = {"max_seq_length": length, "max_predictions_per_seq": 3, "vocab_size": 9, "vocabulary_sha256": "0"}
    (folder / "example_spec.json").write_text(json.dumps(spec | {"counts": counts}))
    return str(folder)


def test_shares_and_examples_of_each_source_and_phase(tmp_path):
    recipe = with_settings(
        tiny_cpu(), ["training.num_train_steps=100", "training.num_warmup_steps=1", "training.train_batch_size=8"]
    )
    assert read_by_source([folder_of(tmp_path / "alone", 16, ("", "", ""))], recipe) == []
    short, long = (folder_of(tmp_path / str(length), length, ("a", "b", "a")) for length in (16, 24))
    recipe = with_settings(recipe, ["training.source_weights=a:1,b:3"])
    recipe = dataclasses.replace(recipe, second_phase=SecondPhase(10, 4, 96, 3))
    a, b = {"name": "a", "share": 0.25, "one_pass": 60}, {"name": "b", "share": 0.75, "one_pass": 40}
    found = read_by_source([long, short], recipe)
    assert found == [
        {"max_seq_length": 16, "read": 180, **a},
        {"max_seq_length": 16, "read": 540, **b},
        {"max_seq_length": 24, "read": 10, **a},
        {"max_seq_length": 24, "read": 30, **b},
    ]
    assert source_line(found[:2]) == "a 25.0%, read 3 times, b 75.0%, read 14 times"
    assert source_line(found).endswith("b 75.0%, read 0.75 times in 24 tokens")


def test_the_summary_has_the_steps_of_the_run(tmp_path):
    account = {"budget": "2h", "limit": 7200.0, "unit": "s", "num_train_steps": 1000, "costs": {}, "used": 7128.0}
    (tmp_path / "budget.json").write_text(json.dumps(account))
    assert with_budget(tiny_cpu(), str(tmp_path)) == (tiny_cpu(), {})
    recipe, found = with_budget(with_settings(tiny_cpu(), ["training.budget=2h"]), str(tmp_path))
    assert (recipe.training.num_train_steps, recipe.training.num_warmup_steps) == (1000, 33)
    assert budget_line(found["budget"]) == "2h: 1,000 steps, 7128 of 7200 s used (99.0%)"
    recipe, _ = with_budget(with_settings(RECIPES["bert_tiny"](), ["training.budget=2h"]), str(tmp_path))
    assert recipe.second_phase.num_train_steps == 100
