"""`gate.minimal_pairs` from the request to the Evaluator."""

import json

import pytest

from bert_keras.errors import InputError
from components.evaluator.minimal_pairs import read_pairs
from pipeline.runs.request import RunRequest
from pipeline.workflows.pretrain import PretrainWorkflow

ARGS = ["--runner=FnApiRunner"]


@pytest.fixture
def evaluator(tmp_path):
    """`evaluator(row, ...)` writes pairs.jsonl and gives the parameters of the Evaluator that judges by it."""
    (tmp_path / "text.txt").write_text("A sentence.")

    def evaluator(*rows, bound="0.6", found=True):
        (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        settings = (f"gate.minimal_pairs={tmp_path}/*.jsonl", f"gate.min_minimal_pairs={bound}") if rows else ()
        request = RunRequest("tiny_cpu", str(tmp_path / "run"), corpus=(f"{tmp_path}/text.txt",), settings=settings)
        workflow = PretrainWorkflow()
        made = workflow.create_pipeline(request, workflow.find_inputs(request) if found else None, ARGS)
        (node,) = (component for component in made.components if component.id == "Evaluator")
        return node.exec_properties

    return evaluator


def row(good):
    return {"sentence_good": good, "sentence_bad": "a a", "UID": "u", "linguistics_term": "t"}


def test_the_evaluator_gets_the_pairs_and_the_bound(evaluator, tmp_path):
    first = json.loads(evaluator(row("a b"))["pairs"])
    assert first["path"].startswith(f"{tmp_path}/run/inputs/minimal_pairs-") and first["min_accuracy"] == 0.6
    assert read_pairs([first["path"]], "") == read_pairs([f"{tmp_path}/pairs.jsonl"], "")
    again, other = (json.loads(evaluator(row(good))["pairs"]) for good in ("a b", "a c"))
    assert first == again != other  # other content misses the cache
    assert json.loads(evaluator(row("a b"), bound="None")["pairs"])["min_accuracy"] is None


def test_without_pairs_nothing_is_scored(evaluator):
    assert evaluator()["pairs"] is None


def test_a_pipeline_compiled_without_its_files_has_the_same_nodes(evaluator):
    assert evaluator(row("a b"), found=False)["pairs"] is None


def test_a_bad_row_stops_the_run_before_it_begins(evaluator):
    with pytest.raises(InputError, match=r"pairs\.jsonl, line 2: has no text under 'UID'"):
        evaluator(row("a b"), row("a b") | {"UID": ""})
