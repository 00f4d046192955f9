"""Others' clients, unchanged, against a server of tiny models; `make clients` runs this.

Each `with_NAME.py` runs in a process of its own, since two of them define the same messages: by the Python of
`.venv-clients`, those in `OLD` by that of `.venv-old-clients`. Environment variables name the server: `REST` is an
address with http://, `GRPC` is HOST:PORT. The server has these models:

    bert     fill_mask (serving_default), embed (32 numbers), encode, ...
    pairs    serving_default: text, text_pair -> score
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bert_keras.convert.model_folder import ModelFolder
from bert_keras.convert.onnx.folder import write_onnx
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from pipeline.engines import engines
from tests.support.models.head_folders import WORDS
from tests.support.serving.running import running

HERE = Path(__file__).parent
OLD = ("with_min_tfs_client",)
CONFIG = BertConfig(len(WORDS.vocabulary), 32, 2, 2, 64, max_position_embeddings=24)
TASK, SETTINGS = task_of("sts-b"), TaskSettings(max_seq_length=24)


def write(folder, model, **fields):
    model.build()
    rng = np.random.default_rng(0)
    model.set_weights([weight + rng.normal(0, 0.2, weight.shape) for weight in model.get_weights()])
    write_onnx(ModelFolder.in_memory(model, WORDS, **fields), str(folder / "1"), "none")
    return f"config {{ name: '{folder.name}' base_path: '{folder}' model_platform: 'tensorflow' }}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in ("bert", "pairs"):
        (folder / name).mkdir()
    pairs = task_type_of(TASK).create_model(CONFIG, TASK, SETTINGS, 0)
    configs = write(folder / "bert", BertForPreTraining(CONFIG), embedding=EmbeddingSettings("mean"))
    configs += write(folder / "pairs", pairs, task=TASK, settings=SETTINGS)
    (folder / "models.config").write_text(f"model_config_list {{ {configs} }}")
    with running(model_config_file=folder / "models.config", engines=engines("auto")) as server:
        yield server


@pytest.mark.parametrize("file", sorted(HERE.glob("with_*.py")), ids=lambda file: file.stem)
def test_in_its_own_process(file, server):
    variables = {"REST": f"http://127.0.0.1:{server.rest_port}", "GRPC": f"127.0.0.1:{server.grpc_port}"}
    variables |= {"NO_PROXY": "127.0.0.1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    words = ["-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider", file]
    python = HERE.parents[1] / (".venv-old-clients" if file.stem in OLD else ".venv-clients") / "bin/python"
    done = subprocess.run([python, *words], env=os.environ | variables, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stdout + done.stderr
