"""Figures of a corpus and its examples compared with a recipe's limits, and the stage's verdict or error."""

import dataclasses
import json

import pytest
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import encode_split_names

from bert_keras.errors import StageError
from components.artifacts import ExampleVerdict
from components.example_gate.component import VERDICT_FILE, Executor
from components.example_gate.limits import DataLimits, check_limits

# 1,000 of 1,250 documents; 50 of 10,000 tokens unknown; 120 of 200 examples random; 1,200 of 8,000 tokens masked, in
# 10,000 positions.
CORPUS = {
    "train": {"documents": 950, "duplicates": 200},
    "eval": {"documents": 50, "duplicates": 30, "near_duplicates": 20},
    "read": {"documents": 9999, "duplicates": 9999},
}
TRAIN = {
    "instances": 180, "random_next": 110, "tokens": 9000, "unknown_tokens": 45,
    "real_tokens": 7000, "slots": 9000, "masked": 1050,
}  # fmt: skip
EVAL = {
    "instances": 20, "random_next": 10, "tokens": 1000, "unknown_tokens": 5,
    "real_tokens": 1000, "slots": 1000, "masked": 150,
}  # fmt: skip
SPEC = {"objective": "mlm_nsp", "masking": {"when": "static"}, "counts": {"train": TRAIN, "eval": EVAL}}
FIGURES = {
    "documents": 1000,
    "duplicate_fraction": 0.2,
    "unknown_fraction": 0.005,
    "random_next_fraction": 0.6,
    "masked_fraction": 0.15,
    "fill_fraction": 0.8,
    "duplicate_example_fraction": None,
}


def figures(limits=None, spec=SPEC, corpus=CORPUS):
    return {figure.name: figure for figure in check_limits(spec, corpus, limits or DataLimits())}


def values(**changes):
    return {name: figure.value for name, figure in figures(**changes).items()}


def problems(**limits):
    return [figure.problem for figure in figures(DataLimits(**limits)).values() if figure.problem]


def with_counts(train, eval, **spec):
    return {**SPEC, "counts": {"train": {**TRAIN, **train}, "eval": {**EVAL, **eval}}, **spec}


def test_figures_cover_both_splits():
    assert values() == FIGURES
    assert not problems()


def test_every_limit_has_a_figure():
    limits = {field.name.partition("_")[2] for field in dataclasses.fields(DataLimits)}
    assert limits == set(FIGURES)


@pytest.mark.parametrize("limit", [field.name for field in dataclasses.fields(DataLimits)])
def test_limits_are_inclusive(limit):
    kind, _, name = limit.partition("_")
    spec = with_counts({"duplicate_instances": 7}, {"duplicate_instances": 3})
    value = figures(spec=spec)[name].value
    further = 1 if name == "documents" else 1e-6

    def problem(bound):
        wide = {"min_masked_fraction": 0.0, "max_masked_fraction": 1.0}
        wide |= {"min_random_next_fraction": 0.0, "max_random_next_fraction": 1.0}
        found = figures(DataLimits(**{**wide, limit: bound}), spec)
        assert not any(figure.problem for figure in found.values() if figure.name != name)
        return found[name].problem

    assert problem(value) == ""
    assert f" (data.{limit}): " in problem(value + further if kind == "min" else value - further)


def test_a_problem_names_the_figure_the_limit_its_setting_and_a_remedy():
    unknown, fill = problems(max_unknown_fraction=0.001, min_fill_fraction=0.9)
    assert unknown.startswith(
        "examples: share of [UNK] is 0.5%, the recipe allows at most 0.1% (data.max_unknown_fraction): "
        "the vocabulary does not fit the text: raise model.vocab_size"
    )
    assert fill.startswith(
        "examples: share of filled positions is 80%, the recipe allows at least 90% (data.min_fill_fraction): "
    )
    (documents,) = problems(min_documents=2000)
    assert documents.startswith(
        "corpus: number of documents is 1,000, the recipe allows at least 2,000 (data.min_documents): give more text"
    )


def test_each_source_has_figures_within_the_same_limits():
    """The text together is in its limits; the small source has too few documents, and too many unknown tokens."""
    law = {split: {**counts, "unknown_tokens": counts["tokens"] // 9} for split, counts in SPEC["counts"].items()}
    corpus = {**CORPUS, "sources": {"law": {"train": {"documents": 3}, "eval": {"documents": 1}}, "web": CORPUS}}
    spec = {**SPEC, "sources": {"law": law, "web": SPEC["counts"]}}
    found = check_limits(spec, corpus, DataLimits())
    assert [figure.source for figure in found] == [name for name in ("", "law", "web") for _ in FIGURES]
    assert {figure.name: figure.value for figure in found if figure.source != "law"} == FIGURES
    problems = [figure.problem for figure in found if figure.problem]
    assert len(problems) == 2
    assert problems[0].startswith(
        "corpus: number of documents of law is 4, the recipe allows at least 20 (data.min_doc"
    )
    assert problems[1].startswith(
        "examples: share of [UNK] of law is 11.11%, the recipe allows at most 1% (data.max_un"
    )


def test_limits_as_text():
    found = figures()
    assert found["random_next_fraction"].wanted == "40% to 85%"
    assert found["documents"].wanted == "at least 20"
    assert found["unknown_fraction"].wanted == "at most 1%"


@pytest.mark.parametrize("objective", ["segment_pair", "full_sentences"])
def test_objectives_without_next_sentences_have_no_limit_on_them(objective):
    spec = with_counts({"random_next": 0}, {"random_next": 0}, objective=objective)
    assert values(spec=spec) == {**FIGURES, "random_next_fraction": None}


def test_swapped_segments_are_limited_as_random_ones_are():
    spec = with_counts({"random_next": 0}, {"random_next": 0}, objective="mlm_sop")
    assert "share of swapped segments is 0%" in figures(spec=spec)["random_next_fraction"].problem


def test_dynamic_masks_are_checked_in_the_eval_split():
    spec = with_counts({"masked": 0}, {"masked": 170}, masking={"when": "dynamic"})
    assert values(spec=spec)["masked_fraction"] == 0.17
    # Missing static masks are an error.
    static = figures(spec=with_counts({"masked": 0}, {"masked": 170}))["masked_fraction"]
    assert "share of masked tokens is 2.125%" in static.problem


def test_masks_are_not_blamed_if_nothing_is_held_out():
    spec = with_counts({"masked": 0}, dict.fromkeys(EVAL, 0), masking={"when": "dynamic"})
    assert values(spec=spec)["masked_fraction"] is None


def test_left_to_right_has_no_masks():
    spec = with_counts({"masked": 0}, {"masked": 0}, objective="left_to_right")
    assert values(spec=spec) == {**FIGURES, "random_next_fraction": None, "masked_fraction": None}


def test_sequences_of_packed_rows_are_counted():
    spec = with_counts({"sequences": 270}, {"sequences": 30})
    assert values(spec=spec) == {**FIGURES, "random_next_fraction": 0.4}


def test_duplicate_examples_are_checked_if_counted():
    spec = with_counts({"duplicate_instances": 30}, {"duplicate_instances": 10})
    assert values(spec=spec) == {**FIGURES, "duplicate_example_fraction": 0.2}
    assert "is 20%, the recipe allows at most 10%" in figures(spec=spec)["duplicate_example_fraction"].problem


def test_an_empty_corpus_fails():
    nothing = dict.fromkeys(TRAIN, 0)
    found = figures(spec=with_counts(nothing, nothing), corpus={"train": {"documents": 0}, "eval": {"documents": 0}})
    assert {name for name, figure in found.items() if figure.problem} == {
        "documents", "random_next_fraction", "fill_fraction",
    }  # fmt: skip


def test_extreme_limits_are_allowed():
    DataLimits(max_unknown_fraction=0.0, max_duplicate_fraction=1.0, min_masked_fraction=0.2, min_documents=1)


LIMITS = DataLimits(max_unknown_fraction=0.05)


@pytest.fixture
def judge(tmp_path):
    """`judge(train=anomalies, eval=anomalies)` runs the executor on the artifacts of the stages before it."""

    def judge(limits=LIMITS, **splits):
        artifacts = {
            "anomalies": standard_artifacts.ExampleAnomalies(),
            "documents": standard_artifacts.Examples(),
            "examples": standard_artifacts.Examples(),
        }
        for name, artifact in artifacts.items():
            (tmp_path / name).mkdir()
            artifact.uri = str(tmp_path / name)
        (tmp_path / "documents" / "corpus.json").write_text(json.dumps(CORPUS))
        (tmp_path / "examples" / "example_spec.json").write_text(json.dumps(SPEC))
        artifacts["anomalies"].split_names = encode_split_names(list(splits))
        for split, found in splits.items():
            folder = tmp_path / "anomalies" / f"Split-{split}"
            folder.mkdir(parents=True)
            (folder / "SchemaDiff.pb").write_bytes(found.SerializeToString())
        verdict = ExampleVerdict()
        verdict.uri = str(tmp_path / "verdict")
        properties = {"limits": json.dumps(dataclasses.asdict(limits))}
        Executor().Do({name: [artifact] for name, artifact in artifacts.items()}, {"verdict": [verdict]}, properties)

    return judge


def anomalies(**descriptions):
    found = anomalies_pb2.Anomalies()
    for name, description in descriptions.items():
        found.anomaly_info[name].description = description
    return found


def test_the_verdict_for_valid_examples_has_all_figures_and_limits(tmp_path, judge):
    judge(train=anomalies(), eval=anomalies())
    verdict = json.loads((tmp_path / "verdict" / VERDICT_FILE).read_text())
    assert verdict == {
        "anomalies": 0,
        "splits": ["train", "eval"],
        "figures": [dataclasses.asdict(figure) for figure in check_limits(SPEC, CORPUS, LIMITS)],
    }
    (unknown,) = (figure for figure in verdict["figures"] if figure["name"] == "unknown_fraction")
    assert (unknown["value"], unknown["minimum"], unknown["maximum"]) == (0.005, None, 0.05)


def test_all_figures_outside_their_limits_are_reported(tmp_path, judge):
    limits = {"max_unknown_fraction": 0.001, "min_fill_fraction": 0.9}
    with pytest.raises(StageError) as caught:
        judge(DataLimits(**limits), train=anomalies(), eval=anomalies())
    assert str(caught.value) == "the data are outside the recipe's limits: " + "; ".join(problems(**limits))
    assert "\n" not in str(caught.value) and not (tmp_path / "verdict").exists()


def test_anomalies_of_any_split_stop_the_run(tmp_path, judge):
    with pytest.raises(StageError) as caught:
        judge(train=anomalies(), eval=anomalies(segment_ids="too long.", input_ids="out of range."))
    assert str(caught.value) == (
        "the examples violate their schema: eval: input_ids: out of range.; eval: segment_ids: too long."
    )
    assert not (tmp_path / "verdict").exists()


def test_anomalies_and_figures_are_reported_together(judge):
    with pytest.raises(StageError) as caught:
        judge(DataLimits(max_unknown_fraction=0.001), train=anomalies(input_ids="out of range."), eval=anomalies())
    assert str(caught.value).startswith(
        "the examples violate their schema: train: input_ids: out of range.; the data are outside the recipe's limits: "
    )


def test_an_anomaly_of_the_whole_data_set_stops_the_run(judge):
    found = anomalies()
    found.dataset_anomaly_info.description = "too few examples."
    with pytest.raises(StageError, match=r"train: too few examples\.$"):
        judge(train=found, eval=anomalies())
