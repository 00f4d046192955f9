"""The report of a small fabricated pre-training: no pipeline runs and TFX is not imported."""

import dataclasses
import json
import math
import os
import re
import types

import pytest

from bert_keras.errors import InputError
from pipeline.report.gate import GateRow, gate_rows, verdict
from pipeline.report.page import write_report
from pipeline.summaries.pretrain import rows
from tests.support.golden import check_golden
from tests.support.pipeline.fabricated_run import PAIRS, PIECES, SUMMARY, Fabricated, failed, log_line
from tests.support.pipeline.report_reading import check_stands_alone, lines, words

RECORD = {"record": {"all": {}}}


@pytest.fixture
def fabricated(tmp_path, monkeypatch):
    return Fabricated(tmp_path / "run", monkeypatch)


def refused(fabricated):
    """The gate refuses the model for its perplexity, its increase over the initial model's, and for guessing."""
    fabricated.begin_with_initial_model()
    fabricated.baseline = {"mlm_perplexity": 100.0}
    fabricated.summary |= {
        "blessed": False, "pushed_version": None, "served_version": "16", "mlm_perplexity": 120.0,
        "nsp_accuracy": 0.6,
        "chances": SUMMARY["chances"] | {"nsp_accuracy": [0.6, 0.0]},
        "gate_failures": [
            failed("mlm_perplexity", "value", value=120.0, direction="at most", bound=100.0),
            failed("mlm_perplexity", "change", value=120.0, direction="at most", baseline=100.0, allowed_change=0.0,
                   relative=True),
            failed("nsp_accuracy", "chance", value=0.6, bound=0.6, standard_errors=0.0),
            failed("word_perplexity", "forgetting", value=36.0, direction="at most", baseline=30.0, allowed_change=0.1,
                   relative=True),
        ],
    }  # fmt: skip


def sliced(fabricated):
    metrics = {"mlm_perplexity": 1234.5, "mlm_accuracy": 0.5, "nsp_accuracy": 0.75, "example_count": 8.0}
    found = {"mlm_perplexity": [1200.0, 1300.0], "mlm_accuracy": [0.4, 0.6]}
    fabricated.summary["slices"] = [{"by": "length", "of": "33 to 64", "metrics": metrics, "intervals": found}]


def vocabulary_of(source, **more):
    """Of a given vocabulary no words are counted."""

    def change(fabricated):
        fabricated.vocabulary(PIECES, source=source, lower_case=False, normalization="none", **more)

    return change


def mixed(fabricated):
    """Two sources and replayed text; the screen and the table have their shares and passes."""
    split = {"documents": 90, "bytes": 1_000_000, "duplicates": 3, "segments": 450}
    sources = {"web": {"train": split, "eval": split}, "law": {"train": split | {"documents": 7}, "eval": split}}
    fabricated.file(
        "documents", "corpus.json", json.dumps({"train": split, "eval": split, "sources": sources, **RECORD})
    )
    fabricated.summary["sources"] = [
        {"max_seq_length": 128, "name": name, "share": share, "read": read, "one_pass": one_pass}
        for name, share, read, one_pass in (("replay", 0.1, 32, 10), ("law", 0.2, 64, 32), ("web", 0.7, 224, 896))
    ]
    fabricated.summary["sources"][1]["word_perplexity"] = 61.25


def paired(fabricated):
    """Minimal pairs, of which too few are right."""
    failure = failed("minimal_pairs", "value", value=0.525, direction="at least", bound=0.6)
    fabricated.summary |= {
        "blessed": False, "pushed_version": None, "served_version": None, "minimal_pairs": PAIRS,
        "gate_failures": [failure],
    }  # fmt: skip


EXTENDED = {"words": 500, "distinct_words": 90, "extend": 7, "tokens_per_word_before": 1.25, "tokens_per_word": 1.125}
PAGES = {
    "pushed": lambda fabricated: None,
    "refused": refused,
    "sliced": sliced,
    "mixed": mixed,
    "paired": paired,
    "given": vocabulary_of("given"),
    "extended": vocabulary_of("extended", **EXTENDED),
}


@pytest.mark.parametrize("change", PAGES.values(), ids=PAGES)
def test_the_text_of_the_page(fabricated, change, request):
    change(fabricated)
    html = fabricated.write()
    check_stands_alone(html)
    check_golden(lines(html), __file__, request.node.callspec.id)


def test_replayed_text_is_told_of_a_corpus_without_named_sources(fabricated):
    mixed(fabricated)
    split = {"documents": 90, "bytes": 1_000_000, "duplicates": 3, "segments": 450}
    fabricated.file("documents", "corpus.json", json.dumps({"train": split, "eval": split, **RECORD}))
    html = fabricated.write()
    assert "Mixture: what was read of each source." in html and "Documents and text are those" not in html


def test_a_budget_is_told_beside_the_steps(fabricated):
    fabricated.summary["budget"] = {
        "budget": "2h", "limit": 7200.0, "unit": "s", "num_train_steps": 40, "used": 7128.0,
    }  # fmt: skip
    text = " ".join(lines(fabricated.write()).split())
    assert "in 40 steps of 8. Budget 2h: 40 steps, 7128 of 7200 s used (99.0%)." in text


@pytest.mark.parametrize(("share", "wanted", "passed"), [(None, "no bound", None), (0.7, "at least 70%", True)])
def test_a_student_is_beside_its_teacher(fabricated, share, wanted, passed):
    scores = {"mlm_accuracy": 0.4, "mlm_perplexity": 50.0}
    fabricated.summary["teacher"] = {"folder": "/large/7", "metric": "mlm_accuracy", "model": 0.3, "scores": scores}
    fabricated.summary["recipe"]["gate"]["min_share_of_teacher"] = share
    row = gate_rows(fabricated.summary, None)[-1]
    assert row == GateRow("Masked-LM accuracy", "teacher", "75.0% of 40.0%", wanted, passed)
    assert "Masked-LM accuracy, teacher" in words(fabricated.write())
    told = "/large/7; accuracy 40.0%, of which the model has 75.0%; perplexity 50.0"
    assert rows(fabricated.summary)["teacher"] == told


def test_a_refused_first_run_serves_nothing_and_has_no_baseline():
    refused = SUMMARY | {"blessed": False, "pushed_version": None, "served_version": None}
    assert verdict(refused).serving == "Nothing is served: no model has been pushed yet."
    assert [row.passed for row in gate_rows(refused, None)] == [True, None, True, True]


@pytest.mark.parametrize(
    ("loss", "perplexity", "told"),
    [(800.0, math.exp(700.0), "1.01e+304"), (math.inf, math.exp(700.0), "1.01e+304"), (math.nan, math.nan, "nan")],
)
def test_a_diverged_model_has_a_page(fabricated, loss, perplexity, told):
    """The exponential of 800 overflows, and the gate's figure in its place has 305 digits."""
    fabricated.baseline = {"mlm_perplexity": 100.0}
    fabricated.summary |= {"mlm_perplexity": perplexity, "blessed": False, "pushed_version": None}
    fabricated.summary["chances"]["mlm_perplexity"] = [400.0, -50.0]
    fabricated.summary["gate_failures"] = [
        failed("mlm_perplexity", "value", value=perplexity, direction="at most", bound=100.0),
        failed("mlm_perplexity", "change", value=perplexity, direction="at most", baseline=100.0, allowed_change=0.0),
    ]
    with open(fabricated.log, "a", encoding="utf-8") as log:
        log.write(log_line("train", 60, loss) + log_line("eval", 60, loss))
    html = fabricated.write()
    check_stands_alone(html)
    text = words(html)
    assert f"mlm_perplexity: {perplexity:.4g} (threshold: at most 100)" in text and f"{told} at most 100" in text
    assert not re.search(r"\d{20}|(,\d{3}){5}", re.sub(r"[0-9a-f]{64}", "", text))
    assert f"Masked-LM perplexity {told} nothing learned" in text and "To try: the model diverged" in text


def test_a_cached_older_model_is_not_the_served_one():
    again = SUMMARY | {"pushed_version": "16"}
    assert verdict(again).serving == "Being served: version 17, which is newer than 16."


@pytest.mark.parametrize(
    ("increase", "wanted"),
    [(0.0, "must not rise"), (0.05, "may rise by at most 5%"), (-0.02, "must fall by at least 2%")],
)
def test_the_change_threshold_in_words(increase, wanted):
    recipe = SUMMARY["recipe"] | {"gate": SUMMARY["recipe"]["gate"] | {"max_mlm_perplexity_increase": increase}}
    row = gate_rows(SUMMARY | {"recipe": recipe}, {"mlm_perplexity": 100.0})[1]
    assert (row.measured, row.wanted, row.passed) == ("\N{MINUS SIGN}20.00% from 100.00", wanted, True)


def test_a_failure_that_has_no_row_is_still_told():
    others = [failed("f1", "value", value=0.1, direction="at least", bound=0.2)]
    refused = SUMMARY | {"blessed": False, "gate_failures": others, "serving": {"problems": ["too slow"]}}
    assert verdict(refused).reasons == [
        "f1: 0.1 (threshold: at least 0.2)",
        "serving: too slow",
    ]


# What the figures of an objective are in place of those of `SUMMARY`, of the examples' objective, and of a log line.
OTHERS = {
    "left_to_right": (
        "left_to_right",
        {"lm_perplexity": 80.0, "lm_accuracy": 0.3},
        {"lm_loss": 4.0, "lm_accuracy": 0.2},
        ["Next-token perplexity 80.0", "Next-token accuracy 30.0% of the tokens", "4.000 54.6 20.0%",
         "of 12 tokens, none of them masked", "Next-token perplexity, value ✓ passed 80.00 at most 100"],
    ),
    "span_boundary": (
        "single_sequence",
        {"mlm_perplexity": 80.0, "mlm_accuracy": 0.3, "sbo_perplexity": 90.0, "sbo_accuracy": 0.25},
        {"mlm_loss": 4.0, "mlm_accuracy": 0.2, "sbo_loss": 3.0, "sbo_accuracy": 0.1},
        ["Span-boundary perplexity 90.0", "Span-boundary accuracy 25.0% of masked", "4.000 54.6 20.0% 3.000 20.1 10.0%",
         "Masked-LM accuracy, value ✓ passed 30.0% at least 20%"],
    ),
    "electra": (
        "segment_pair",
        {"mlm_perplexity": 80.0, "mlm_accuracy": 0.3, "disc_loss": 0.2, "disc_accuracy": 0.9,
         "disc_least_original": 0.85},
        {"mlm_loss": 4.0, "mlm_accuracy": 0.2, "disc_loss": 0.3, "disc_accuracy": 0.8},
        ["Generator perplexity 80.0", "Discriminator accuracy 90.0% of the tokens", "loss 0.200.", "at least 85.0%",
         "4.000 54.6 20.0% 0.300 80.0%", "Masked tokens dynamic 1,000", "Generator perplexity, change not judged"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("objective", OTHERS)
def test_the_page_has_the_figures_of_other_objectives(fabricated, objective):
    examples, figures, logged, expected = OTHERS[objective]
    kept = {
        name: value for name, value in SUMMARY.items() if not name.startswith(("mlm_", "nsp_")) and name != "samples"
    }
    fabricated.summary = {**kept, **figures, "objective": objective}
    part = "lm" if objective == "left_to_right" else "mlm"
    fabricated.summary["chances"] = {f"{part}_perplexity": [400.0, 50.0], f"{part}_accuracy": [0.04, 30.0]}
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
    missed = failed(f"{part}_perplexity", "value", value=120.0, direction="at most", bound=100.0)
    fabricated.summary |= {"blessed": False, "gate_failures": [missed]}
    assert f"{part}_perplexity: 120 (threshold: at most 100)" in words(fabricated.write())


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


def test_lineage_has_the_artifacts_that_the_run_read(fabricated):
    fabricated.run.stages["Evaluator"].inputs["baseline_model"] = [
        types.SimpleNamespace(id=7, type="Model", uri="/elsewhere/artifacts/Trainer/model/2")
    ]
    text = words(fabricated.write())
    assert "46 evaluation Evaluator examples 43, model 44, baseline_model 7 ModelEvaluation artifacts/" in text
    assert "7 baseline_model an earlier run Model …/Trainer/model/2" in text


def test_text_of_the_corpus_is_escaped(fabricated):
    evil = "<script>alert(1)</script>"
    fabricated.summary["samples"] = [
        {"text": f"{evil} [MASK] <b>", "masked_word": "<i>", "predictions": [[evil, 0.5], ['"><img src=x>', 0.1]]}
    ]
    fabricated.vocabulary(
        ["[PAD]", evil], source="learned", lower_case=True, normalization="NFD", words=9, distinct_words=9
    )
    html = fabricated.write()
    assert "<script" not in html and "<img" not in html and "<b>$" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 3


def test_pictures_have_descriptions_and_the_page_s_colours(fabricated):
    html = fabricated.write()
    assert len(re.findall(r'<svg class="picture"[^>]* role="img" aria-label="[^"]+"', html)) == 6
    # log(400) = 5.991
    assert "Masked-LM loss by training step: training 5 at step 20, 5 at step 40; held out 5 at step 40; " in html
    assert "unigram model 5.99" in html
    assert "stroke: var(--train)" in html and "stroke: var(--held-out)" in html
    assert not re.search(r"#0000f\d", html)


def test_the_page_shows_no_path_of_the_machine(fabricated, tmp_path, monkeypatch):
    first = fabricated.write()
    assert str(tmp_path) not in first and os.path.expanduser("~") + "/" not in first
    assert fabricated.write() == first
    assert Fabricated(tmp_path / "another" / "place", monkeypatch).write() == first


def test_a_directory_without_a_finished_run_is_one_line(tmp_path, fabricated):
    with pytest.raises(InputError, match=r"empty: no finished run here \(it has no summary.json\); bert-tfx pretrain"):
        write_report(str(tmp_path / "empty"))
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
