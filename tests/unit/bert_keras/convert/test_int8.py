"""int8 by NNCF: close to float32, the same bytes for the same rows, each row's answer its own, nothing sent."""

import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import openvino
import pytest
from typer.testing import CliRunner

from bert_keras.convert.formats import read_folder
from bert_keras.convert.onnx.answers import OnnxModel
from bert_keras.convert.onnx.folder import write_graph, write_onnx
from bert_keras.convert.onnx.graph import INPUTS
from bert_keras.convert.onnx.network import INT8_FILE, MODEL_FILE, OnnxRuntime, OpenVino, open_network
from bert_keras.errors import InputError
from pipeline.cli import app
from tests.support.models import trained_bert

TEXTS = [
    *("A text.", "Another one: longer, with accents (café), 漢字 and numbers like 3.14.", "The cat sat on the mat"),
    *("Prices of oil rose by a tenth on Monday, analysts said.", "Who wrote it?", "no", "She sells sea shells " * 6),
]


def vectors(folder, texts):
    """The sentence vectors [B, H]."""
    encoded = np.array([text.encode() for text in texts], object)
    return OnnxModel(str(folder)).signatures["embed"].answer(encoded)["embedding"]


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory):
    """The first layer of the trained BERT, and what the command makes of it in float32 and in int8."""
    base = tmp_path_factory.mktemp("int8")
    trained_bert.write_first_layers(1, base / "hf")
    (base / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    command = ["convert", str(base / "hf"), "--from", "hf", "--to", "onnx", "--pooling", "mean"]
    for name, options in (
        ("float32", []),
        ("int8", ["--quantize", "int8", "--calibration", str(base / "texts.jsonl")]),
    ):
        result = CliRunner().invoke(app, [*command, str(base / name), *options], catch_exceptions=False)
        assert ("int8, calibrated on 7 rows" in result.output) == (name == "int8")
    return base


def test_a_float32_call_takes_all_cores_after_some_that_found_no_other(one_layer):
    network = open_network(str(one_layer / "float32"), cores=2)
    feed = {name: np.ones((1, 4), np.int64) for name in network.inputs}
    used, one, all_ = [], network._session, network._on_all_cores
    network._session, network._on_all_cores = (
        SimpleNamespace(run=lambda *_, name=name: used.append(name)) for name in ("one", "all")
    )
    network.compute(feed, ())
    network._calls += 1  # another one is under way
    network.compute(feed, ())
    network._calls -= 1
    for _ in range(9):
        network.compute(feed, ())
    assert one is not all_ and used == ["all", *["one"] * 9, "all"]


@pytest.mark.parametrize("width, rows", [((7,), [16, 32, 48, 64]), ((2, 15), [4, 8, 12, 16])])
def test_calls_of_files_have_few_shapes(width, rows, one_layer):
    """OpenVINO keeps memory for each; a full call has 512 tokens."""
    network, seen = open_network(str(one_layer / "int8"), cores=1, whole_files=True), set()

    def infer(feed, share_inputs):
        seen.add(len(feed["input_ids"]))
        return [feed["input_ids"]]

    network._graph = lambda names: SimpleNamespace(create_infer_request=lambda: SimpleNamespace(infer=infer))
    for count in range(1, rows[-1] + 1):
        feed = {name: np.ones((count, *width), np.int64) for name in network.inputs}
        (ids,) = network.compute(feed, ("ids",))
        assert ids.sum() == feed["input_ids"].sum() and len(ids) == count
    assert sorted(seen) == rows


def test_vectors_are_close_and_independent_of_the_rows_beside_them(one_layer):
    float32, int8 = (vectors(one_layer / name, TEXTS) for name in ("float32", "int8"))
    cosines = (float32 * int8).sum(axis=1)
    assert cosines.min() > 0.99 and cosines.max() < 0.99999
    alone = np.concatenate([vectors(one_layer / "int8", [text]) for text in TEXTS])
    np.testing.assert_allclose(alone, int8, atol=2e-3)


def test_the_same_rows_give_the_same_bytes_which_say_how_many_they_were(one_layer, tmp_path):
    folder = read_folder(str(one_layer / "hf"))
    for name in ("first", "second"):
        write_onnx(folder, str(tmp_path / name), "int8", [{"text": text} for text in TEXTS])
    for file in (INT8_FILE, INT8_FILE.replace("xml", "bin")):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()
    assert not (tmp_path / "first" / MODEL_FILE).exists()
    assert '<rows value="7" />' in (tmp_path / "first" / INT8_FILE).read_text()


@pytest.mark.parametrize(
    "precision, engine, hint",
    [("float32", OnnxRuntime, None), ("mixed_bfloat16", OpenVino, "bf16"), ("int8", OpenVino, "f32")],
)
def test_the_precision_chooses_the_engine_and_bfloat16_is_computed_only_if_asked_for(
    precision, engine, hint, one_layer, tmp_path, monkeypatch
):
    directory = one_layer / precision
    if not directory.exists():
        directory, folder = tmp_path, read_folder(str(one_layer / "hf"))
        write_graph(folder.model, folder.tokenizer, str(tmp_path), folder.embedding, precision)
    asked = []
    core = type("Core", (openvino.Core,), {"compile_model": lambda self, *of: asked.append(of[2])})
    monkeypatch.setattr(openvino, "Core", core)
    network, feed = open_network(str(directory), 1), dict.fromkeys(INPUTS, np.ones((1, 3), np.int64))
    assert type(network) is engine
    if hint is None:
        assert network.compute(feed, ("last_hidden_state",))[0].shape[:2] == (1, 3)
    else:
        with pytest.raises(AttributeError):  # nothing is compiled
            network.compute(feed, ("last_hidden_state",))
    assert [settings["INFERENCE_PRECISION_HINT"] for settings in asked] == [hint] * (hint is not None)


# Run without pytest, in whose presence NNCF sends nothing anyway.
QUANTIZE_AND_ANSWER = """
import socket, sys
def tried(*arguments, **options):
    print("connection", arguments)
    raise OSError("no network")
for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, tried)
socket.getaddrinfo = socket.create_connection = tried
from bert_keras.convert.formats import read_folder
from bert_keras.convert.onnx.folder import write_graph, write_onnx
source, target = sys.argv[1:]
write_onnx(read_folder(source), target, "int8", [{"text": "one"}, {"text": "two words"}])
import numpy as np
from bert_keras.convert.onnx.answers import OnnxModel
print(OnnxModel(target).signatures["encode"].answer(np.array([b"one"], object))["tokens"])
"""


def test_quantizing_and_answering_try_no_connection(one_layer, tmp_path):
    command = [sys.executable, "-c", QUANTIZE_AND_ANSWER, str(one_layer / "hf"), str(tmp_path / "int8")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "NNCF"))}
    home = tmp_path / "home"  # where the telemetry of both would write that the user agreed
    home.mkdir()
    done = subprocess.run(command, env={**environment, "HOME": str(home)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[[b'[CLS]' b'one' b'[SEP]']]"]
    assert not list(home.rglob("*telemetry*")) and not list(home.rglob("*intel*"))


def test_what_is_refused(one_layer, tmp_path):
    with pytest.raises(InputError, match="int8 needs rows to calibrate on: give some hundred texts"):
        write_onnx(read_folder(str(one_layer / "hf")), str(tmp_path / "new"), "int8")
    assert not list((tmp_path / "new").iterdir())
    command = ["convert", str(one_layer / "hf"), str(tmp_path / "new"), "--from", "hf", "--to", "onnx"]
    (tmp_path / "texts.jsonl").write_text('{"text": "a"}\n{"other": "b"}\n')
    options = ["--quantize", "int8", "--calibration", str(tmp_path / "texts.jsonl")]
    error = CliRunner().invoke(app, [*command, *options]).exception
    assert str(error) == f"{tmp_path / 'texts.jsonl'}, row 2: has no text; correct it"
    # As the quantizer of ONNX Runtime, in releases before, marked its files.
    model = onnx.load(one_layer / "float32" / MODEL_FILE)
    onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    shutil.copytree(one_layer / "float32", tmp_path / "before")
    onnx.save(model, tmp_path / "before" / MODEL_FILE)
    with pytest.raises(InputError, match=r"model\.onnx: int8 of an earlier release.*convert the model again"):
        OnnxModel(str(tmp_path / "before"))
    (tmp_path / "before" / MODEL_FILE).write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"model\.onnx: ONNX Runtime cannot read it"):
        OnnxModel(str(tmp_path / "before"))
