"""`export.engine=onnx`: gate, ServingValidator and server ask OpenVINO; int8 can be refused."""

import pytest

from pipeline.engines import engines
from serving.models.engine_servable import EngineServable
from serving.server import Server
from tests.support.models import trained_bert
from tests.support.pipeline.command_line import bert_tfx, set_words, summary_of
from tests.support.pipeline.task_files import write_task
from tests.support.serving.task_client import TaskClient

ONNX = {"export.engine": "onnx", "export.quantize": "int8", "serving.max_difference": 1.0}


def words_of(init, data, run_dir, **changes):
    settings = {
        "training.num_train_epochs": 4,
        "training.jit_compile": "false",
        "training.train_batch_size": 16,
        "training.learning_rate": 2e-4,
        "task.max_seq_length": 32,
        "gate.min_score": 0.7,
        **ONNX,
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    words = ["finetune", "sst-2", "--data", data, "--init", init, "--run-dir", run_dir]
    return words + set_words(settings)


@pytest.fixture(scope="module")
def init(tmp_path_factory):
    return trained_bert.write_first_layers(1, tmp_path_factory.mktemp("init") / "bert")


@pytest.mark.slow
def test_int8_is_refused_by_a_limit_that_it_cannot_hold_and_pushed_within_one_that_it_can(init, tmp_path):
    data, run = write_task("sst-2", tmp_path / "data"), tmp_path / "run"
    code, out, err = bert_tfx(*words_of(init, data, run, serving__max_difference=1e-3))
    assert code == 3 and not list(run.glob("serving/*")), out + err
    assert "from the trainer's (threshold: serving.max_difference=0.001)" in out + err
    code, out, err = bert_tfx(*words_of(init, data, run))
    assert code == 0, out + err
    assert summary_of(run)["scores"]["accuracy"] > 0.9
    with Server(run / "serving", grpc_port=0, rest_port=0, engines=engines("auto")) as server:
        assert server.wait_until_available(60)
        assert isinstance(server.store.get(), EngineServable)
        with TaskClient(f"{server.host}:{server.grpc_port}") as client:
            ((label, _), *_) = client.classify(["a gorgeous, witty movie"])[0]
    assert label in ("0", "1")
