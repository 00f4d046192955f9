"""How texts that are too long are cut, in closed form, of arrays and of a graph's tensors alike.

Shapes: B texts or pairs.
"""

from __future__ import annotations

from keras import ops


def truncate_pair(length_a, length_b, budget: int):
    """How many pieces of A and B are kept, int [B] each, so that both fit `budget`.

    In closed form what the original does one piece at a time for tasks: the longer loses its last piece, on a tie
    B does (FACTS D7; pre-training truncates at both ends).
    """
    kept_a = ops.minimum(length_a, ops.maximum(budget - length_b, (budget + 1) // 2))
    return kept_a, ops.minimum(length_b, budget - kept_a)


def head_room(room: int, truncation: str) -> int:
    """How many of the `room` pieces that are kept of a text that is too long come from its head; the rest, its tail.

    Args:
        truncation: `head`, `tail` or `head_tail` (`bert_keras.tasks.settings.TaskSettings`).
    """
    # A quarter to the nearest, halves up: the paper's 128 of 510.
    return {"head": room, "tail": 0, "head_tail": (room + 2) // 4}[truncation]
