"""The run report, of a small fabricated run: no pipeline is run and TFX is not imported."""

import dataclasses
import json
import os
import re
import types

import pytest
from fabricated_run import FINGERPRINT, SHA, SUMMARY, Fabricated
from report_reading import check_stands_alone, words

from bert_keras.errors import InputError
from pipeline.report import page
from pipeline.report.gate import gate_rows, verdict


@pytest.fixture
def fabricated(tmp_path, monkeypatch):
    return Fabricated(tmp_path / "run", monkeypatch)


def test_a_pushed_model_is_told_first(fabricated):
    text = words(fabricated.write())
    assert "Blessed and pushed as version 17 Being served: version 17, the newest in serving/." in text
    # 400 / 80 of the unigram model; (0.8 - 0.6) / 0.05 standard errors above chance.
    assert "1/5.0 of the unigram model\N{RIGHT SINGLE QUOTATION MARK}s 400.0" in text
    assert "chance is 60.0% ± 5.0%. above by 4.0 standard errors" in text
    assert text.index("Blessed and pushed as version 17 Being") < text.index("1/5.0") < text.index("Training")


def test_a_refused_model_says_why_and_what_is_still_served(fabricated):
    fabricated.baseline = {"mlm_perplexity": 100.0}
    fabricated.summary |= {
        "blessed": False, "pushed_version": None, "served_version": "16", "mlm_perplexity": 120.0,
        "nsp_accuracy": 0.6, "nsp_above_chance": False,
        "gate_failures": [
            "mlm_perplexity: value 120 (upper_bound { value: 100)",
            "mlm_perplexity: change against the last blessed model 20 (relative)",
        ],
    }  # fmt: skip
    text = words(fabricated.write())
    assert "✗ Not blessed, not pushed masked-LM perplexity is 120.00, but must be at most 100" in text
    assert "changed by +20.00% from 100.00, the last blessed model&#39;s; it must not rise" in text
    assert "Being served: still version 16" in text
    assert "not learned Not above it by two standard errors (+0.0)" in text
    assert text.count("✗ missed") == 2 and text.count("✓ passed") == 2
    assert "nothing pushed" in text and "2 thresholds missed" in text


def test_the_lengths_of_the_examples_are_a_table(fabricated):
    metrics = {"mlm_perplexity": 1234.5, "mlm_accuracy": 0.5, "nsp_accuracy": 0.75, "example_count": 8.0}
    found = {"mlm_perplexity": [1200.0, 1300.0], "mlm_accuracy": [0.4, 0.6]}
    fabricated.summary["slices"] = [{"by": "length", "of": "33 to 64", "metrics": metrics, "intervals": found}]
    html = fabricated.write()
    check_stands_alone(html)
    assert (
        "Part Examples Masked-LM perplexity Masked-LM accuracy Next-sentence accuracy "
        "length 33 to 64 8 1,234.5 (1,200.0 to 1,300.0) 50.0% (40.0% to 60.0%) 75.0%"
    ) in words(html)


def test_the_first_run_served_nothing_and_has_no_baseline():
    refused = SUMMARY | {"blessed": False, "pushed_version": None, "served_version": None}
    assert verdict(refused, gate_rows(refused, None)).serving == "Nothing is served: no model has been pushed yet."
    assert [row.passed for row in gate_rows(refused, None)] == [True, None, True, True]


def test_an_older_model_of_the_cache_is_not_what_is_served():
    again = SUMMARY | {"pushed_version": "16"}
    assert verdict(again, gate_rows(again, None)).serving == "Being served: version 17, which is newer than 16."


@pytest.mark.parametrize(
    ("increase", "wanted"),
    [(0.0, "must not rise"), (0.05, "may rise by at most 5%"), (-0.02, "must fall by at least 2%")],
)
def test_the_change_threshold_in_words(increase, wanted):
    recipe = SUMMARY["recipe"] | {"gate": SUMMARY["recipe"]["gate"] | {"max_mlm_perplexity_increase": increase}}
    row = gate_rows(SUMMARY | {"recipe": recipe}, {"mlm_perplexity": 100.0})[1]
    assert (row.measured, row.wanted, row.passed) == ("\N{MINUS SIGN}20.00% from 100.00", wanted, True)


def test_a_failure_that_has_no_row_is_still_told():
    failed = SUMMARY | {"blessed": False, "gate_failures": ["f1: value 0.1 (lower_bound 0.2)"]}
    assert verdict(failed, gate_rows(failed, None)).reasons == ["f1: value 0.1 (lower_bound 0.2)"]


def test_the_figures_of_the_data(fabricated):
    text = words(fabricated.write())
    # 61 of 100 pairs in 80 packed rows; 803, 101 and 96 of 1,000 pieces;
    # 900 of 1,200 slots; 10 of 5,000 unknown; 5,000 / 4,000 words.
    for figure in ("Random next sentence 61.0%", "[MASK] 80.3%", "random piece 10.1%", "unchanged 9.6%",
                   "padding 75.0%", "[UNK] 0.200%", "not counted 1.25", "per document 5.0"):  # fmt: skip
        assert figure in text
    assert "Learned first th ##ing sorted array" in text
    assert "filled positions 75% at least 50%" in text


# What the figures of an objective are in place of those of `SUMMARY`, of the examples' objective, and of a log line.
OTHERS = {
    "left_to_right": (
        "left_to_right",
        {"lm_perplexity": 80.0, "lm_accuracy": 0.3},
        {"lm_loss": 4.0, "lm_accuracy": 0.2},
        ["Next-token perplexity 80.0", "Next-token accuracy 30.0% of the pieces", "4.000 54.6 20.0%",
         "of 12 pieces, none of them hidden", "Next-token perplexity, value ✓ passed 80.00 at most 100"],
    ),
    "span_boundary": (
        "single_sequence",
        {"mlm_perplexity": 80.0, "mlm_accuracy": 0.3, "sbo_perplexity": 90.0, "sbo_accuracy": 0.25},
        {"mlm_loss": 4.0, "mlm_accuracy": 0.2, "sbo_loss": 3.0, "sbo_accuracy": 0.1},
        ["Span-boundary perplexity 90.0", "Span-boundary accuracy 25.0% of hidden", "4.000 54.6 20.0% 3.000 20.1 10.0%",
         "Masked-LM accuracy, value ✓ passed 30.0% at least 20%"],
    ),
    "electra": (
        "segment_pair",
        {"mlm_perplexity": 80.0, "mlm_accuracy": 0.3, "disc_loss": 0.2, "disc_accuracy": 0.9,
         "disc_least_original": 0.85},
        {"mlm_loss": 4.0, "mlm_accuracy": 0.2, "disc_loss": 0.3, "disc_accuracy": 0.8},
        ["Generator perplexity 80.0", "Discriminator accuracy 90.0% of the pieces", "loss 0.200.", "at least 85.0%",
         "4.000 54.6 20.0% 0.300 80.0%", "Pieces hidden while read 1,000", "Generator perplexity, change not judged"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("objective", OTHERS)
def test_of_another_objective_the_page_has_what_there_is(fabricated, objective):
    examples, figures, logged, expected = OTHERS[objective]
    kept = {
        name: value for name, value in SUMMARY.items() if not name.startswith(("mlm_", "nsp_")) and name != "samples"
    }
    fabricated.summary = {**kept, **figures, "objective": objective}
    fabricated.spec |= {"objective": examples, "masking": {"when": "dynamic" if objective == "electra" else "static"}}
    with open(fabricated.log, "w", encoding="utf-8") as log:
        for kind, step in (("train", 20), ("eval", 40)):
            log.write(json.dumps({"kind": kind, "step": step, "learning_rate": 0.1, **logged}) + "\n")
    html = fabricated.write()
    text = words(html)
    for words_there in expected:
        assert words_there in text, words_there
    assert "Next-sentence" not in text and "Random next" not in text and "Sample predictions" not in text
    assert html.count('class="picture"') == len(logged) + 2
    assert text.count("✓ passed") == 2 and "nan" not in text.split()
    missed = f"{'lm' if objective == 'left_to_right' else 'mlm'}_perplexity: value 120 (at most 100 is asked)"
    fabricated.summary |= {"blessed": False, "gate_failures": [missed]}
    assert f"{missed}" not in (text := words(fabricated.write())) and "must be at most 100" in text


def test_a_guessed_word_is_marked(fabricated):
    html = fabricated.write()
    assert "<mark>Sorted</mark> array." in html
    rows = re.findall(r'<tr class="guess( hit)?"><th scope="row" class="token mono">(\w+)', html)
    assert rows == [("", "new"), (" hit", "sorted")]
    assert "in 1 of 1" in html


def test_cached_stages_are_marked(fabricated):
    html = fabricated.write()
    rows = re.findall(r'<tr class="(\w+)"><th scope="row">(\w+).*?--share: ([\d.]+%).*?>([^<>]+)</td></tr>', html)
    assert rows[0] == ("cached", "CorpusGen", "0.03%", "0.02 s")
    assert ("complete", "Trainer", "100.00%", "1 min 01 s") in rows


def test_lineage_names_the_artifacts_and_their_places(fabricated):
    text = words(fabricated.write())
    assert FINGERPRINT in text and SHA in text
    assert "Corpus #41" in text and "no earlier model" in text
    assert "43 Examples Examples PretrainExampleGen artifacts/PretrainExampleGen/examples/3" in text
    fabricated.run.stages["Evaluator"].inputs["baseline_model"] = [
        types.SimpleNamespace(id=7, type="Model", uri="/elsewhere/artifacts/Trainer/model/2")
    ]
    text = words(fabricated.write())
    assert "Baseline #7 last blessed model" in text and "7 Baseline Model Trainer …/Trainer/model/2" in text


def test_text_of_the_corpus_is_escaped(fabricated):
    evil = "<script>alert(1)</script>"
    fabricated.summary["samples"] = [
        {"text": f"{evil} [MASK] <b>", "masked_word": "<i>", "predictions": [[evil, 0.5], ['"><img src=x>', 0.1]]}
    ]
    fabricated._file("vocabulary", "vocab.txt", f"[PAD]\n{evil}\n")
    html = fabricated.write()
    assert "<script" not in html and "<img" not in html and "<b>$" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 3


def test_the_page_stands_alone(fabricated):
    check_stands_alone(fabricated.write())


def test_pictures_have_words_and_the_colours_of_the_page(fabricated):
    html = fabricated.write()
    assert len(re.findall(r'<svg class="picture"[^>]* role="img" aria-label="[^"]+"', html)) == 6
    # log(400) = 5.991
    assert "Masked-LM loss by training step: training 5 at step 20, 5 at step 40; held out 5 at step 40; " in html
    assert "unigram model 5.99" in html
    assert "stroke: var(--train)" in html and "stroke: var(--held-out)" in html
    assert not re.search(r"#0000f\d", html)


def test_the_machine_does_not_show(fabricated, tmp_path, monkeypatch):
    first = fabricated.write()
    assert str(tmp_path) not in first and os.path.expanduser("~") + "/" not in first
    assert fabricated.write() == first
    assert Fabricated(tmp_path / "another" / "place", monkeypatch).write() == first


@pytest.mark.parametrize(("task", "made_by"), [("", "pretrain"), (', "task": "sst-2"', "finetune")])
def test_a_summary_of_an_earlier_version_is_told(tmp_path, task, made_by):
    (tmp_path / "summary.json").write_text(f'{{"run": "1"{task}}}')
    with pytest.raises(InputError, match=f"is of an earlier version; the same bert-tfx {made_by} command"):
        page.write_report(str(tmp_path))


def test_no_finished_run(tmp_path, fabricated):
    with pytest.raises(InputError, match=r"empty: no finished run here \(it has no summary.json\); bert-tfx pretrain"):
        page.write_report(str(tmp_path / "empty"))
    fabricated.run = dataclasses.replace(fabricated.run, id="2027-later")
    with pytest.raises(InputError, match="run 2027-later has not finished"):
        fabricated.write()
    fabricated.run = dataclasses.replace(fabricated.run, id=SUMMARY["run"])
    os.remove(fabricated.log)
    with pytest.raises(InputError, match=r"log\.jsonl: a file of run .* is gone"):
        fabricated.write()
    assert sorted(os.listdir(fabricated.run_dir)) == ["artifacts", "summary.json"]


def test_a_failed_write_leaves_the_old_page(fabricated, monkeypatch):
    first = fabricated.write()
    fabricated.summary["pushed_version"] = "18"

    def full(source, target):
        raise OSError("disk full")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr(os, "replace", full)
        fabricated.write()
    with open(os.path.join(fabricated.run_dir, "report.html"), encoding="utf-8") as file:
        assert file.read() == first
    assert sorted(os.listdir(fabricated.run_dir)) == ["artifacts", "report.html", "summary.json"]
