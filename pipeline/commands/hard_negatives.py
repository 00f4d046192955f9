"""`bert-tfx hard-negatives`: passages near to a query that no label names, by a bi-encoder, as rows to train on."""

import glob
import itertools
import json
from typing import Annotated, Any

import typer

from bert_keras.errors import InputError

_QUERIES_AT_ONCE = 256
_VECTORS = "Vectors of them: the output of `apply --signature embed --keep text=COLUMN`."


def hard_negatives(
    pairs: Annotated[str, typer.Argument(metavar="PAIRS", help="Queries and relevant passages, as rows of `rerank`.")],
    queries: Annotated[str, typer.Option(metavar="DIR", help=_VECTORS)],
    passages: Annotated[str, typer.Option(metavar="DIR", help=_VECTORS)],
    output: Annotated[str, typer.Option(metavar="FILE.jsonl", help="The rows of PAIRS, and the mined ones.")],
    number: Annotated[int, typer.Option(min=1, help="Negatives of a query, at most.")] = 5,
    skip: Annotated[int, typer.Option(min=0, help="Nearest passages to leave out; some may be relevant.")] = 0,
    within: Annotated[int, typer.Option(min=1, help="Nearest passages to draw from.")] = 50,
    max_score: Annotated[float, typer.Option(help="Maximum cosine of a negative and its query.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    triplets: Annotated[bool, typer.Option(help="Rows of text, text_pair, negative: one a relevant passage.")] = False,
) -> None:
    """Write rows with hard negatives: passages that are near to their query, and that PAIRS does not label for it."""
    import numpy as np

    from bert_keras.files import atomic_write_anywhere, json_text
    from bert_keras.tasks.table import task_of
    from components.task_example_gen.readers import read_rows

    labels: dict[str, dict[str, int]] = {}
    for row in read_rows(task_of("rerank"), pairs):
        label = 1 if row.gold is None else row.gold[1]
        labels.setdefault(str(row.inputs["text"]), {})[str(row.inputs["text_pair"])] = label
    vectors, by_passage, rng = _read(queries), _read(passages), np.random.default_rng(seed)
    texts, names, rows = list(by_passage), list(labels), []
    if missing := [name for name in names if name not in vectors]:
        raise InputError(f"{queries}: lacks {len(missing)} queries, such as {missing[0]!r}; apply to {pairs}")
    matrix = np.stack([*by_passage.values()], axis=1)  # [H, passages]
    for start in range(0, len(names), _QUERIES_AT_ONCE):
        block = names[start : start + _QUERIES_AT_ONCE]
        for query, cosines in zip(block, np.stack([vectors[name] for name in block]) @ matrix, strict=True):
            known = labels[query]
            no_negatives = {query, *known}
            count = min(len(texts), within + len(no_negatives))
            nearest = np.argpartition(-cosines, count - 1)[:count]
            nearest = nearest[np.argsort(-cosines[nearest], kind="stable")]
            unlabelled = [place for place in nearest if texts[place] not in no_negatives][skip:within]
            near = [texts[place] for place in unlabelled if cosines[place] <= max_score]
            negatives = [near[n] for n in sorted(rng.permutation(len(near))[:number])]
            if triplets:
                # One row of a pair: in a batch its copy would be pushed away. Fewer negatives than pairs come again.
                relevant = [passage for passage, label in known.items() if label > 0]
                drawn = zip(relevant, itertools.cycle(negatives), strict=False)
                rows += [{"text": query, "text_pair": passage, "negative": negative} for passage, negative in drawn]
            else:
                judged = {**known, **dict.fromkeys(negatives, 0)}
                rows += [{"query": query, "passage": passage, "label": label} for passage, label in judged.items()]
    atomic_write_anywhere(output, "".join(json_text(row, ensure_ascii=False) + "\n" for row in rows))
    typer.echo(f"{output}: {len(rows):,} rows of {len(names):,} queries")


def _read(directory: str) -> dict[str, Any]:
    """Vectors of length 1, float32 [H], by text, of the answers of `apply`."""
    import numpy as np

    vectors = {}
    for path in sorted(glob.glob(f"{glob.escape(directory)}/answers-*.jsonl")):
        with open(path, encoding="utf-8") as file:
            for row in map(json.loads, file):
                if not {"text", "embedding"} <= row.keys():
                    raise InputError(f"{path}: has no text or no embedding; apply --signature embed --keep text=COLUMN")
                vectors[row["text"]] = np.array(row["embedding"], np.float32) / np.linalg.norm(row["embedding"])
    if not vectors:
        raise InputError(f"{directory}: has no answers; give an --output of `bert-tfx apply`")
    return vectors
