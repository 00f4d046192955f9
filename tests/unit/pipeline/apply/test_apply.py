"""`bert-tfx apply` with a toy model: answers as the server's, shards, resumption, bad rows, stores."""

import functools
import json
import pickle
import random
import shutil
from pathlib import Path

import httpx
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.convert.model_folder import ModelFolder
from bert_keras.convert.onnx import answers as onnx_answers
from bert_keras.convert.onnx.folder import write_onnx
from bert_keras.data.tfrecord import bytes_example, frame
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from pipeline.apply import handler, row_model, rows, run
from pipeline.engines import engines
from serving.api.json_tensors import dumps, serializable
from serving.models.servable import SAVED_MODEL_FILE
from serving.models.servable import GraphServable as Servable
from serving.models.store import TENSORFLOW
from serving.server import Server
from tests.support.examples.object_stores import in_memory
from tests.support.pipeline.command_line import bert_tfx
from tests.support.serving import toy

WORDPIECE = BertTokenizer([*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxyz", "##c", "##d", "word"], True)
RNG = random.Random(0)
TEXTS = [" ".join(RNG.choices(["a", "bcd", "[MASK]", "word"], k=RNG.randint(1, 30))) + " [MASK]" for _ in range(120)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    toy.save(base / "3", 3, on_examples=True)
    yield base
    loaded.cache_clear()  # TensorFlow's sessions do not outlive the interpreter in peace


@pytest.fixture(scope="module")
def served(model):
    with Server(model, grpc_port=0, rest_port=0) as server:
        assert server.wait_until_available(120)
        with httpx.Client(base_url=f"http://127.0.0.1:{server.rest_port}", trust_env=False, timeout=60) as http:
            yield http


@functools.cache
def loaded(name, version, path, batching):
    return Servable(name, version, path)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """About seven ranges, and several windows in each; a model is loaded once for all tests."""
    monkeypatch.setitem(TENSORFLOW, SAVED_MODEL_FILE, loaded)
    monkeypatch.setattr(rows, "MIN_RANGE_BYTES", 2000)
    monkeypatch.setattr(handler, "WINDOW_ROWS", 7)


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(TEXTS)))
    return path


def apply(model, texts, output, *, beam_args=(), columns=(), keep=("id",), signature="fill_mask"):
    return run.apply(
        str(model),
        [str(texts)],
        str(output),
        signature=signature,
        engine="auto",
        columns=columns,
        keep=keep,
        beam_args=beam_args,
    )


def content(output):
    return {path.name: path.read_bytes() for path in output.iterdir()}


def answers(output):
    return [json.loads(line) for path in sorted(output.glob("answers-*")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("signature", ["fill_mask", "sequence", "length", "embed"])
def test_answers_are_the_server_s(signature, served, model, texts, tmp_path):
    """Of each text alone, and named as by REST; a signature with one output, too."""
    figures = apply(model, texts, tmp_path / "out", signature=signature, keep=["number=id"])
    assert figures["rows"] == len(TEXTS) and figures["bad_rows"] == 0 and figures["shards"] > 5
    found = answers(tmp_path / "out")
    assert [row.pop("number") for row in found] == list(range(len(TEXTS)))
    for text, row in zip(TEXTS, found, strict=True):
        body = {"instances": [{"text": text}], "signature_name": signature}
        (answer,) = served.post("/v1/models/bert:predict", json=body).json()["predictions"]
        assert (answer if isinstance(answer, dict) else {next(iter(row)): answer}) == row


def test_another_runner_writes_the_same_bytes(model, texts, tmp_path):
    apply(model, texts, tmp_path / "one")
    portable = ("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK")
    apply(model, texts, tmp_path / "other", beam_args=portable)
    assert content(tmp_path / "one") == content(tmp_path / "other") != {}
    assert set(content(tmp_path / "one")) >= {"apply.json", "bad_rows.jsonl"}


class Killed(BaseException):
    pass


def test_a_killed_command_resumes(model, texts, tmp_path, monkeypatch, capsys):
    """Its names are relative, and have brackets."""
    monkeypatch.chdir(tmp_path)
    texts, out = "*.jsonl", Path("out[1]")
    apply(model, texts, tmp_path / "whole")
    called = []
    answers_of = row_model.RowModel.answers

    def dying(self, rows):
        called.append(len(rows))
        if len(called) == 8:
            raise Killed
        return answers_of(self, rows)

    with monkeypatch.context() as patch:
        patch.setattr(row_model.RowModel, "answers", dying)
        with pytest.raises(BaseException, match="Killed"):
            apply(model, texts, out)
    finished = {path: path.stat().st_mtime_ns for path in out.glob("answers-*")}
    capsys.readouterr()
    figures = apply(model, texts, out)
    assert 0 < len(finished) < figures["shards"] == figures["computed_shards"] + len(finished)
    assert all(path.stat().st_mtime_ns == time for path, time in finished.items())
    assert f"{len(finished)} of {figures['shards']} shards were finished" in capsys.readouterr().err
    assert content(out) == content(tmp_path / "whole")
    again = apply(model, texts, out)
    assert again["rows"] == len(TEXTS) and again["computed_shards"] == 0
    assert "finished by an earlier" in capsys.readouterr().err


def test_another_job_does_not_continue_the_answers(model, texts, tmp_path):
    apply(model, texts, tmp_path / "out")
    with pytest.raises(InputError, match=r"contains answers of another job \(changed: signature\); remove it"):
        apply(model, texts, tmp_path / "out", signature="echo")
    other = tmp_path / "models" / "3"
    shutil.copytree(model / "3", other)
    (other / "variables/variables.index").write_bytes(b"another")
    with pytest.raises(InputError, match=r"\(changed: model\)"):
        apply(other, texts, tmp_path / "out")


def test_bad_rows_are_named(model, texts, tmp_path):
    lines = texts.read_text().splitlines()
    lines[4:4] = [
        "",
        "{bad",
        '{"txt": "a"}',
        '{"text": 5}',
        '{"text": "no mask"}',
        '{"text": "[MASK]", "id": "\\ud800"}',
    ]
    lines.insert(100, '{"text": null}')
    texts.write_text("\n".join(lines))
    figures = apply(model, texts, tmp_path / "out")
    assert figures["rows"] == len(TEXTS) and figures["bad_rows"] == 6
    bad = [json.loads(line) for line in (tmp_path / "out/bad_rows.jsonl").read_text().splitlines()]
    assert {row["file"] for row in bad} == {str(texts)}
    assert [row["record"] for row in bad] == [6, 7, 8, 9, 10, 101]
    reasons = [
        "is not JSON",
        "has no 'text'",
        "not of expected type",
        "no [MASK] in text",
        "surrogate",
        "has no 'text'",
    ]
    assert all(reason in row["reason"] for reason, row in zip(reasons, bad, strict=True))
    assert [row["id"] for row in answers(tmp_path / "out")] == list(range(len(TEXTS)))


def test_columns_pairs_and_whole_examples(model, tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("first,second,id\nab,c,1\n,d,2\n")
    apply(model, table, tmp_path / "out", signature="encode_pair", columns=["text=first", "text_pair=second"])
    assert [row["pooled_output"][0] for row in answers(tmp_path / "out")] == [3, 1]
    # An input with a default may be left out.
    apply(model, table, tmp_path / "alone", signature="encode_pair", columns=["text=second"])
    assert [row["pooled_output"][0] for row in answers(tmp_path / "alone")] == [1, 1]
    (tmp_path / "a.tfrecord").write_bytes(frame(bytes_example({"text": [b"abcd"], "id": [b"x"]})))
    apply(model, tmp_path / "a.tfrecord", tmp_path / "examples", signature="evaluate")
    assert answers(tmp_path / "examples") == [{"id": "x", "length": 4}]


class Chooser(tf.Module):
    @tf.function(input_signature=[toy.TEXTS, tf.TensorSpec([None, None], tf.string, name="choices")])
    def choose(self, text, choices):
        return {"scores": tf.strings.length(text[:, tf.newaxis] + choices), "rows": tf.fill(tf.shape(text), len(text))}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A folder of `convert --to onnx`."""
    folder = tmp_path_factory.mktemp("graph")
    network = BertForPreTraining(BertConfig(len(WORDPIECE.vocabulary), 8, 1, 2, 16, max_position_embeddings=128))
    network.build()
    write_onnx(ModelFolder.in_memory(network, WORDPIECE, embedding=EmbeddingSettings("mean")), str(folder), "none")
    return folder


@pytest.mark.parametrize("signature", ["embed", "fill_mask", "encode"])
def test_an_engine_answers_each_row_as_alone(signature, graph, texts, tmp_path, monkeypatch):
    """Many calls of few tokens, in threads."""
    monkeypatch.setattr(onnx_answers, "_CALL_TOKENS", 40)
    texts.write_text(texts.read_text() + '{"id": 120, "text": "no mask"}\n')
    figures = apply(graph, texts, tmp_path / "out", signature=signature)
    assert figures["bad_rows"] == (signature == "fill_mask") and figures["rows"] >= len(TEXTS)
    servable = engines("onnx")["model.onnx"]("bert", 1, graph, None)
    for text, row in zip(TEXTS, answers(tmp_path / "out"), strict=False):
        outputs = servable.predict(signature, {"text": np.array([text.encode()], object)})
        wanted = plain({key: serializable(key, value[0]) for key, value in outputs.items()})
        assert row.keys() == wanted.keys() | {"id"}
        for key, value in wanted.items():
            if key == "tokens":
                assert row[key] == value
            else:
                np.testing.assert_allclose(row[key], value, atol=1e-5)
    workers = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")
    apply(graph, texts, tmp_path / "other", signature=signature, beam_args=workers)
    assert content(tmp_path / "out") == content(tmp_path / "other")


def plain(answers):
    return json.loads(dumps(answers))


def test_rows_may_differ_in_their_number_of_choices(tmp_path):
    chooser = Chooser()
    tf.saved_model.save(chooser, str(tmp_path / "1"), {"serving_default": chooser.choose})
    (tmp_path / "a.csv").write_text("text,first,second\na,b,cd\n")
    apply(
        tmp_path / "1",
        tmp_path / "a.csv",
        tmp_path / "out",
        signature="serving_default",
        keep=(),
        columns=["choices=first", "choices=second"],
    )
    assert answers(tmp_path / "out") == [{"rows": 1, "scores": [2, 3]}]
    rows = [{"text": "a", "choices": ["b"] * number} for number in (1, 2, 1, 3, 2, 1)]
    found = plain(row_model.RowModel(row_model.load(str(tmp_path / "1"), "auto"), "serving_default").answers(rows))
    assert [row["scores"] for row in found] == [[2] * number for number in (1, 2, 1, 3, 2, 1)]
    assert [row["rows"] for row in found] == [3, 2, 3, 1, 2, 3]


def test_wide_answers_are_computed_in_parts(model, monkeypatch):
    texts = [{"text": text} for text in TEXTS]
    rows_of = row_model.RowModel(row_model.load(str(model / "3"), "auto"), "sequence")
    whole = plain(rows_of.answers(texts))
    monkeypatch.setattr(row_model, "_ANSWER_BYTES", 1 << 10)
    assert plain(rows_of.answers(texts)) == whole


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"signature": "tag"}, r"has no signature 'tag', but classify, "),
        ({"signature": "numbers"}, r"numbers: all has no rows"),
        ({"columns": ["txt=id"]}, r"--column txt=id: fill_mask has no input 'txt', but text"),
        ({"columns": ["text"]}, r"--column text: is not NAME=COLUMN"),
        ({"columns": ["text=review"]}, r"texts\.jsonl: its first row has no 'review', but 'id', 'text'"),
        ({"keep": ["scores=id"]}, r"--keep scores: is an output's name"),
    ],
)
def test_what_cannot_work_is_refused_at_once(changes, message, model, texts, tmp_path):
    with pytest.raises(InputError, match=message):
        apply(model, texts, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_no_answer_at_all_is_an_error(model, texts, tmp_path):
    texts.write_text('{"text": "no mask", "id": 1}\n')
    (tmp_path / "²").mkdir()
    (tmp_path / "²/saved_model.pb").touch()  # of no version
    for _ in range(2):  # a retry, too
        with pytest.raises(InputError, match=r"bad_rows\.jsonl: no row could be answered"):
            apply(model, texts, tmp_path / "out")
    with pytest.raises(InputError, match=r"no openvino_model\.xml or model\.onnx or saved_model\.pb, and no version"):
        apply(tmp_path, texts, tmp_path / "out")


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_model_input_and_output_in_a_store(scheme, model, texts, tmp_path, monkeypatch):
    apply(model, texts, tmp_path / "local")
    store = in_memory(monkeypatch, scheme)
    for path in (model / "3").rglob("*"):
        if path.is_file():
            store.write(f"{scheme}://bucket/model[1]/3/{path.relative_to(model / '3')}", path.read_bytes())
    store.write(f"{scheme}://bucket/in/texts.jsonl", texts.read_bytes())
    apply(f"{scheme}://bucket/model[1]", f"{scheme}://bucket/in/*.jsonl", f"{scheme}://bucket/out[1]")
    found, local = store.names(f"{scheme}://bucket/out[1]"), content(tmp_path / "local")
    assert found.keys() == local.keys()
    assert all(found[name] == local[name] for name in local if name.startswith("answers"))


def test_a_finished_range_is_not_computed_again(tmp_path):
    """Runners repeat bundles whose result was lost."""
    job = handler.ApplyJob("model", "auto", "embed", {"text": ["text"]}, {}, str(tmp_path), ranges=2)
    marker = Path(job.marker(1))
    marker.parent.mkdir()
    marker.write_text("{}")
    assert handler.ShardHandler(job).run_inference([(1, [])], model=None) == [1]
    assert marker.read_text() == "{}" and not Path(job.shard(1)).exists()


def test_the_handler_is_plain_data():
    job = handler.ApplyJob("model", "auto", "embed", {"text": ["review"]}, {"id": "id"}, "out", 3)
    copy = pickle.loads(pickle.dumps(handler.ShardHandler(job)))
    assert copy._job == job and not copy.share_model_across_processes()


def test_the_command(model, texts, tmp_path):
    words = ("--model", model, "--input", texts, "--output", tmp_path / "out", "--signature", "embed", "--keep", "id")
    code, out, err = bert_tfx("apply", *words, "--", "--direct_num_workers=1")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["rows"] == len(TEXTS)
    code, _, err = bert_tfx("apply", *words[:-2])
    assert code == 2 and "changed: keep" in err.splitlines()[-1]
