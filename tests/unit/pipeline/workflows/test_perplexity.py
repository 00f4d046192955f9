"""`corpus.perplexity` from the request to the stages."""

import json

import pytest

from bert_keras.errors import InputError
from components.corpus_gen.filters.ngram_model import NgramModel
from pipeline.runs.request import RunRequest
from pipeline.workflows.pretrain import PretrainWorkflow


@pytest.fixture
def settings_of(tmp_path):
    """`settings_of(good_text)` gives the settings of the stages that make documents, by their id."""
    (tmp_path / "text.txt").write_text("A sentence.")

    def settings_of(good_text):
        (tmp_path / "good.txt").write_text(good_text)
        request = RunRequest(
            "tiny_cpu",
            str(tmp_path / "run"),
            corpus=(f"{tmp_path}/text.txt",),
            replay=(f"{tmp_path}/text.txt",),
            settings=(f"corpus.perplexity.good_text={tmp_path}/good.txt", "corpus.perplexity.keep=head,middle"),
        )
        workflow = PretrainWorkflow()
        made = workflow.create_pipeline(request, workflow.find_inputs(request), ["--runner=FnApiRunner"])
        return {
            one.id: json.loads(one.exec_properties["settings"])["perplexity"]
            for one in made.components
            if one.id.startswith("CorpusGen")
        }

    return settings_of


def test_the_stages_get_the_model_and_the_cut_points(settings_of, tmp_path):
    settings = settings_of("Good text.\n")
    assert settings["CorpusGen"] == settings["CorpusGen_replay"]
    one = settings["CorpusGen"]
    assert one["model"].startswith(f"{tmp_path}/run/inputs/ngrams-") and one["good_text"] == []
    assert NgramModel.read(one["model"]).perplexity(["A sentence."]) == pytest.approx(one["cut_points"][1], abs=0.006)
    # Other content misses the cache.
    assert settings_of("Good text.\n") == settings != settings_of("Good sentences.\n")


def test_empty_good_text_is_refused_before_any_stage(settings_of):
    with pytest.raises(InputError, match=r"^corpus\.perplexity\.good_text: .*good\.txt has no text"):
        settings_of("\n")
