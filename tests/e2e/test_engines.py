"""`export.engine=onnxruntime`: gate, ServingValidator and server ask ONNX Runtime; a bad int8 is refused."""

import dataclasses
import json

import numpy as np
import pytest

from bert_keras.convert.huggingface import write_huggingface
from bert_keras.finetuning.init_checkpoint import InitCheckpoint
from bert_keras.models.backbone import BertBackbone
from pipeline.commands.server.serve import engines
from serving.client import Client
from serving.models.engine_servable import EngineServable
from serving.server import Server
from tests.support.models import trained_bert
from tests.support.pipeline.command_line import bert_tfx
from tests.support.pipeline.task_files import write_task

ONNX = {"export.engine": "onnxruntime", "serving.max_difference": 1e-3}


def words_of(init, data, run_dir, **changes):
    settings = {
        "training.num_train_epochs": 4,
        "training.train_batch_size": 16,
        "training.learning_rate": 2e-4,
        "task.max_seq_length": 32,
        "gate.min_score": 0.7,
        **ONNX,
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    words = ["finetune", "sst-2", "--data", data, "--init", init, "--run-dir", run_dir]
    return words + [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def init(tmp_path_factory):
    """Two layers of a trained BERT whose values have one large dimension, which the next product divides again.

    The function is the same; 8 bits a call for all dimensions of the context then leave nothing of the others.
    """
    read = InitCheckpoint.read(trained_bert.DIRECTORY)
    backbone = BertBackbone(dataclasses.replace(read.config, num_hidden_layers=2), name="bert")
    backbone.build(None)
    trained = {weight.path.partition("/")[2]: weight for weight in read.backbone.weights}
    for weight in backbone.weights:
        weight.assign(trained[weight.path.partition("/")[2]])
    scale = np.ones(read.config.hidden_size, np.float32)
    scale[::32] = 1e4  # one of each head
    for layer in backbone.encoder_layers:
        value, output = layer.attention.value, layer.attention.output_dense
        value.kernel.assign(np.asarray(value.kernel) * scale)
        value.bias.assign(np.asarray(value.bias) * scale)
        output.kernel.assign(np.asarray(output.kernel) / scale[:, None])
    folder = tmp_path_factory.mktemp("init") / "bert"
    write_huggingface(backbone, read.tokenizer, str(folder))
    return folder


@pytest.mark.slow
def test_the_gate_judges_what_the_engine_answers(init, tmp_path):
    data, run = write_task("sst-2", tmp_path / "data"), tmp_path / "run"
    int8 = {"export__quantize": "int8", "serving__max_difference": 100.0}
    code, out, err = bert_tfx(*words_of(init, data, run, **int8))
    summary = json.loads((run / "summary.json").read_text())
    assert code == 3 and not (run / "serving").exists(), out + err
    (failure,) = summary["gate_failures"]
    assert failure["metric"] == "accuracy" and failure["value"] < 0.7
    code, out, err = bert_tfx(*words_of(init, data, run))
    assert code == 0, out + err
    summary = json.loads((run / "summary.json").read_text())
    assert summary["scores"]["accuracy"] > 0.9
    with Server(run / "serving", grpc_port=0, rest_port=0, engines=engines("auto")) as server:
        assert server.wait_until_available(60)
        assert isinstance(server.store.get(), EngineServable)
        with Client(f"{server.host}:{server.grpc_port}") as client:
            ((label, _), *_) = client.classify(["a gorgeous, witty movie"])[0]
    assert label in ("0", "1")
