"""`-` in place of texts: client commands read the lines of standard input, in requests of many rows."""

import io
import json
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.commands.server.ask import ServerOptions
from serving.models.servable import DEFAULT_SIGNATURE
from tests.support.pipeline.command_line import bert_tfx


class Echo:
    """Answers a row with its input."""

    def __init__(self, inputs):
        self._inputs, self.requests = inputs, []

    def metadata(self):
        return {DEFAULT_SIGNATURE: SimpleNamespace(inputs=dict.fromkeys(self._inputs))}

    def predict(self, inputs):
        self.requests.append(inputs)
        rows = len(inputs[self._inputs[0]])
        return {
            "label": np.array([f"{number}".encode() for number in range(rows)], dtype=object),
            **{f"asked_{name}": np.array(values) for name, values in inputs.items()},
        }

    def embed(self, texts):
        return np.array([[-len(text)] for text in texts])

    def encode(self, texts):
        return {"pooled_output": np.array([[len(text)] for text in texts])}

    def fill_mask(self, texts):
        return [[[(text, 0.5)]] for text in texts]


@pytest.fixture
def ask(monkeypatch):
    """`ask(inputs, standard_input, words)`: the exit code, the lines of both outputs, and the requests."""

    def ask(inputs, standard_input, *words):
        model = Echo(inputs)
        monkeypatch.setattr(ServerOptions, "client", contextmanager(lambda self: (yield model)))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(standard_input)))
        code, out, err = bert_tfx(*words)
        return code, out.splitlines(), err, model.requests

    return ask


def test_each_line_is_a_row_and_requests_have_many(ask):
    lines = [f"text {number}" for number in range(70)]
    code, out, _, requests = ask(["text"], "\n".join(lines).encode(), "predict", "-")
    assert code == 0 and [json.loads(line)["asked_text"] for line in out] == lines
    assert [len(request["text"]) for request in requests] == [32, 32, 6]


@pytest.mark.parametrize(
    ("inputs", "line", "asked"),
    [
        (["text", "text_pair"], b"one\ttwo\r\n", {"text": ["one"], "text_pair": ["two"]}),
        (["question", "context"], b"one\ttw\xffo\n", {"question": ["one"], "context": ["two"]}),
        (["text", "choices"], b"one\ttwo\tthree\n", {"text": ["one"], "choices": [["two", "three"]]}),
        (["text"], b"\n", {"text": [""]}),
    ],
)
def test_tabs_are_between_the_texts_of_a_row(ask, inputs, line, asked):
    assert ask(inputs, line, "predict", "-")[3] == [asked]


def test_rows_of_a_request_have_equally_many_choices(ask):
    code, out, _, requests = ask(["text", "choices"], b"a\tb\tc\nd\te\tf\ng\th\n", "predict", "-")
    assert code == 0 and [json.loads(line)["asked_text"] for line in out] == ["a", "d", "g"]
    assert [request["choices"] for request in requests] == [[["b", "c"], ["e", "f"]], [["h"]]]


@pytest.mark.parametrize(
    ("inputs", "words", "said"),
    [
        (
            ["text", "text_pair"],
            ["-"],
            "standard input, line 2: 1 text(s) given; the model at 127.0.0.1:8500 takes 2: ",
        ),
        (["text"], ["one", "two"], "bert-tfx: 2 text(s) given; the model at 127.0.0.1:8500 takes 1: text"),
        (["text", "choices"], ["one"], "1 text(s) given; the model at 127.0.0.1:8500 takes 2: text, choices"),
    ],
)
def test_a_row_of_another_task_is_one_line(ask, inputs, words, said):
    code, _, err, requests = ask(inputs, b"one\ttwo\nthree\n", "predict", *words)
    assert (code, err.count("\n"), requests) == (2, 1, []) and said in err


def test_arguments_are_one_row(ask):
    assert ask(["text", "choices"], b"", "predict", "a", "b", "-")[3] == [{"text": ["a"], "choices": [["b", "-"]]}]


def test_encode_and_fill_mask_take_lines_too(ask, monkeypatch):
    code, out, _, _ = ask(["text"], b"a\nbcd\n", "encode", "-")
    assert code == 0 and [json.loads(line)["pooled_output"] for line in out] == [[1], [3]]
    monkeypatch.setattr(Echo, "metadata", lambda self: {"encode": None, "embed": None})
    code, out, _, _ = ask(["text"], b"a\nbcd\n", "encode", "-")
    assert code == 0 and [json.loads(line)["embedding"] for line in out] == [[-1], [-3]]
    code, out, _, _ = ask(["text"], b"a\nbcd\n", "fill-mask", "-")
    assert code == 0 and [line.split() for line in out] == [["a"], ["a", "50.00%"], ["bcd"], ["bcd", "50.00%"]]
