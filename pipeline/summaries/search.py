"""Files of a hyper-parameter search: settings, and their scores on the held-out rows."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any

from components.io.shards import write_json

BATCH, RATE, EPOCHS = "train_batch_size", "learning_rate", "num_train_epochs"


def write_search(search: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Write `grid.json` and `grid.md`; return the summary's entry.

    Args:
        search: the report of `bert_keras.finetuning.search.search`.
        folder: output folder.

    Returns:
        The report, and `files`, the paths.
    """
    files = [os.path.join(folder, name) for name in ("grid.json", "grid.md")]
    write_json(files[0], search)
    with open(files[1], "w", encoding="utf-8") as file:
        file.write(table(search))
    return {**search, "files": files}


def table(search: Mapping[str, Any]) -> str:
    """A Markdown table: batch and learning rate down, epochs across, the best in bold.

    | batch | learning rate | 2 epochs | 3 epochs |
    |---|---|---|---|
    | 16 | 5e-05 | 0.9 | **0.92** |
    """
    scores = {tuple(training[name] for name in (BATCH, RATE, EPOCHS)): training for training in search["trainings"]}
    batches, rates, passes = (list(dict.fromkeys(values)) for values in zip(*scores, strict=True))
    header = ["batch", "learning rate", *(f"{epochs:g} epochs" for epochs in passes)]
    lines = [header, ["---"] * len(header)]
    for batch, rate in itertools.product(batches, rates):
        cells = [_cell(scores[batch, rate, epochs], search["best"]) for epochs in passes]
        lines.append([str(batch), f"{rate:g}", *cells])
    rows = ("| " + " | ".join(line) + " |\n" for line in lines)
    return f"{search['metric']} on the held-out rows\n\n" + "".join(rows)


def _cell(training: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    text = "no score" if training["score"] is None else f"{training['score']:.4g}"
    return f"**{text}**" if training == best else text
