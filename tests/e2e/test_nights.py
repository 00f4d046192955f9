"""Five nights with new text, one refused: each begins with the last blessed model and reads only what is new."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bert_keras.convert.bert_tfx import read_tokenizer
from pipeline.runs.lineage import latest_run
from scripts.airflow_stack import AIRFLOW, airflow_stack
from tests.e2e.test_airflow import BERT_TFX, Airflow
from tests.support.pipeline.command_line import SMALL, bert_tfx, summary_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
NIGHTS, REFUSED = range(1, 6), 3
SETTINGS = SMALL | {
    "training.num_train_steps": 8,
    "training.num_warmup_steps": 2,
    "gate.max_mlm_perplexity_increase": 0.5,
    # Some hundred held-out predictions a night.
    "gate.max_mlm_perplexity": 10_000,
    "gate.min_mlm_accuracy": 0.0,
}


@pytest.fixture
def text(corpus, tmp_path):
    """The text of each night: what follows that of the first run in the file that it was cut from."""
    more = corpus.with_name("docstrings.txt").read_text()[corpus.stat().st_size :]
    documents = iter(dict.fromkeys(more.split("\n\n")))
    texts = {}
    for night in NIGHTS:
        texts[night] = ""
        while len(texts[night]) < 60_000:
            texts[night] += next(documents) + "\n\n"
    return texts


@pytest.fixture(params=["local", "airflow"])
def run_night(request, tmp_path):
    """(run directory, runs `pretrain` there with the given initial model and settings; returns whether it pushed)"""
    run_dir, folder = tmp_path / "run", tmp_path / "text"
    folder.mkdir()

    def run_locally(night, init, settings):
        given = [word for setting in settings for word in ("--set", setting)]
        words = ["pretrain", "tiny_cpu", "--corpus", folder, "--run-dir", run_dir, "--init", init, *given]
        code, _, err = bert_tfx(*words)
        assert code in (0, 3), err
        return code == 0

    if request.param == "local":
        yield run_dir, run_locally
        return
    if not AIRFLOW.exists() or shutil.which("mariadbd") is None:
        pytest.skip("no .venv-airflow (scripts/setup_beside.sh airflow) or no mariadbd (apt install mariadb-server)")
    dags = tmp_path / "dags"
    with airflow_stack(tmp_path / "airflow", dags) as environ, pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("BERT_TFX_METADATA_URI", "BERT_TFX_METADATA_PASSWORD"):
            monkeypatch.setenv(name, environ[name])
        airflow = Airflow(environ)
        words = ["compile", "airflow", "tiny_cpu", "--name", "nightly", "--run-dir", run_dir, "--corpus", folder]
        words += ["--output", dags, "--metadata", environ["BERT_TFX_METADATA_URI"], "--init"]

        def run_in_airflow(night, init, settings):
            if night <= 2:  # the DAG of the later nights has a node more, for what was read before
                subprocess.run([BERT_TFX, *words, init], env=environ, check=True)
                airflow.wait_for_file("nightly")
            run = f"night-{night}"
            conf = {"corpus": [str(folder)], "init": str(init), "settings": settings}
            airflow.trigger("nightly", run, conf)
            airflow.wait("nightly", run=run)
            states = set(airflow.states("nightly", run).values())
            assert states <= {"success", "skipped"}, states
            return states == {"success"}

        yield run_dir, run_in_airflow


def test_five_nights(first_run, text, run_night):
    (model,) = (first_run.dir / "serving").iterdir()
    run_dir, run = run_night
    size = len(read_tokenizer(str(model)).vocabulary)
    read, last = set(), model  # what the last blessed model has read
    for night in NIGHTS:
        (run_dir.parent / "text" / f"{night}.txt").write_text(text[night])
        changes = {"model.vocab_size": size} | ({"gate.max_mlm_perplexity": 1.5} if night == REFUSED else {})
        settings = [f"{key}={value}" for key, value in (SETTINGS | changes).items()]
        pushed = run(night, model if night == 1 else "latest", settings)
        summary, done = summary_of(run_dir), latest_run(str(run_dir))
        assert pushed == (night != REFUSED), summary["gate_failures"]
        assert summary["initial_model"]["source"] == str(last)
        corpus = Path(done.output("CorpusGen", "documents").uri)
        now = set(np.fromfile(corpus / "documents_read.u64", ">u8").tolist())
        # New: the texts of this night, and of the refused one before it.
        new = text[night] + (text[REFUSED] if night == REFUSED + 1 else "")
        assert read < now and len(now - read) == summary["corpus_documents"]
        assert summary["corpus_read_before"] == len(read)
        assert len(now - read) == pytest.approx(new.count("\n\n"), rel=0.1)  # some documents are too short
        if pushed:
            read, last = now, run_dir / "serving" / str(summary["pushed_version"])
    assert len(list((run_dir / "serving").iterdir())) == len(NIGHTS) - 1
