"""Truncation of texts in closed form, for arrays and for a graph's tensors.

Shapes: B texts or pairs.
"""

import importlib

import numpy as np


def truncate_pair(length_a, length_b, budget: int):
    """Number of tokens of A and of B to keep, int [B] each, so that both fit `budget`.

    Equal to run_classifier.py's `_truncate_seq_pair`, which removes one token at a time: the last of the longer text,
    on a tie of B. (Pre-training truncates at both ends.)
    """
    # A server of ONNX Runtime has no Keras.
    ops = np if isinstance(length_a, np.ndarray) else importlib.import_module("keras").ops
    kept_a = ops.minimum(length_a, ops.maximum(budget - length_b, (budget + 1) // 2))
    return kept_a, ops.minimum(length_b, budget - kept_a)


def head_room(room: int, truncation: str) -> int:
    """Number of tokens to keep from the head of a text that is cut to `room` tokens; the others come from its tail.

    `truncation`: `head`, `tail` or `head_tail` (`bert_keras.tasks.settings.TaskSettings`).
    """
    # A quarter to the nearest, halves up: the paper's 128 of 510.
    return {"head": room, "tail": 0, "head_tail": (room + 2) // 4}[truncation]
