"""A trained BERT on 200 real texts: tokens, every layer and the pooled output equal those of `transformers`."""

import importlib
import inspect
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from tests.support.models.model_folders import read_huggingface, write_huggingface
from tests.support.models.trained_bert import DIRECTORY, features

TEXTS, ROWS, LONGEST, TOLERANCE = 200, 40, 128, 2e-5
# Whose docstrings are read where there is no BERT_DATA_DIR.
MODULES = ("argparse", "collections", "csv", "datetime", "decimal", "inspect", "logging", "pathlib", "shutil", "string")
MODULES += ("statistics", "subprocess", "tarfile", "tempfile", "threading", "urllib.request", "zipfile")


def real_texts():
    """The first news of agnews/dev.tsv, or docstrings of the standard library: no two equal."""
    if "BERT_DATA_DIR" in os.environ:
        lines = (Path(os.environ["BERT_DATA_DIR"]) / "agnews/dev.tsv").read_text(encoding="utf-8").split("\n")
        texts = [line.split("\t")[0] for line in lines]
    else:
        modules = [importlib.import_module(name) for name in MODULES]
        things = [thing for module in modules for _, thing in sorted(vars(module).items(), key=lambda item: item[0])]
        texts = [inspect.getdoc(thing) or "" for thing in things if inspect.isclass(thing) or inspect.isroutine(thing)]
    texts = [text for text in dict.fromkeys(texts) if len(text.split()) >= 8][:TEXTS]
    assert len(texts) == TEXTS
    return texts


def our_outputs(model, inputs):
    outputs = model(inputs)
    return [*map(np.asarray, outputs["encoder_outputs"])], np.asarray(outputs["pooled_output"])


def their_outputs(model, inputs):
    tensors = [torch.from_numpy(inputs[name]).long() for name in ("input_ids", "input_mask", "segment_ids")]
    with torch.no_grad():
        outputs = model(*tensors, output_hidden_states=True)
    return [x.numpy() for x in outputs.hidden_states[1:]], outputs.pooler_output.numpy()


def largest_differences(ours, theirs, inputs):
    """Of each layer, over tokens that are not padding, and of the pooled output."""
    largest = np.zeros(7)
    for start in range(0, TEXTS, ROWS):
        batch = {name: value[start : start + ROWS] for name, value in inputs.items()}
        (layers, pooled), (their_layers, their_pooled) = our_outputs(ours, batch), their_outputs(theirs, batch)
        assert len(layers) == len(their_layers) == 6
        real = batch["input_mask"] == 1
        found = [np.abs(a - b)[real].max() for a, b in zip(layers, their_layers, strict=True)]
        largest = np.maximum(largest, [*found, np.abs(pooled - their_pooled).max()])
    print("largest differences of layers 0 to 5 and the pooled output:", *(f"{value:.1e}" for value in largest))
    return largest


@pytest.fixture(scope="module")
def read():
    return read_huggingface(DIRECTORY)


@pytest.fixture(scope="module")
def texts():
    return real_texts()


@pytest.fixture(scope="module")
def inputs(read, texts):
    inputs = features(read.tokenizer, texts, LONGEST)
    print(f"{inputs['input_mask'].sum()} tokens, {inputs['input_mask'].sum(1).min()} to {LONGEST} a text")
    return inputs


def test_token_ids(texts, inputs):
    tokenizer = transformers.AutoTokenizer.from_pretrained(DIRECTORY)
    theirs = tokenizer(texts, truncation=True, max_length=LONGEST, padding=False)["input_ids"]
    ours = [ids[mask == 1].tolist() for ids, mask in zip(inputs["input_ids"], inputs["input_mask"], strict=True)]
    assert ours == theirs


def test_every_layer_and_the_pooled_output(read, inputs):
    theirs = transformers.BertModel.from_pretrained(DIRECTORY).eval()
    assert largest_differences(read.model, theirs, inputs).max() < TOLERANCE


def test_transformers_loads_what_is_written_and_agrees(read, inputs, texts, tmp_path):
    tokenizer = read.tokenizer
    write_huggingface(read.model, tokenizer, str(tmp_path))
    theirs, report = transformers.BertModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert largest_differences(read.model, theirs.eval(), inputs).max() < TOLERANCE
    original = transformers.BertModel.from_pretrained(DIRECTORY).state_dict()
    assert theirs.state_dict().keys() == original.keys()
    for name, tensor in theirs.state_dict().items():
        np.testing.assert_array_equal(tensor, original[name], err_msg=name)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert [their_tokenizer.tokenize(text) for text in texts] == [tokenizer.tokenize(text) for text in texts]
