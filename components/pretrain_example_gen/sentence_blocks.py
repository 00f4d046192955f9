"""Divides documents into runs of sentences that fill an example."""

from __future__ import annotations

import array
import itertools
from bisect import bisect_right

import numpy as np

from components.pretrain_example_gen.tokenized_shard import Bucket

# tokens[start:end]
BLOCK = np.dtype([("start", np.int64), ("end", np.int64)])


def choose_blocks(bucket: Bucket, longest: int, cut_sentences: bool) -> np.ndarray:
    """Fairseq's `complete_doc` (or `complete`, for a bucket of one document): BLOCK [N], in the order of the text.

    Each block has as many segments as fit into `longest` tokens; no block crosses documents.

    Args:
        longest: no segment may be longer (`Bucket.cut_segments`), unless they are cut.
        cut_sentences: each block but a document's last has `longest` tokens (fairseq's `none`, within documents).
    """
    starts, documents = bucket.segment_splits.tolist(), bucket.document_splits.tolist()
    fields = array.array("q")
    for document in range(len(documents) - 1):
        segment, last = documents[document], documents[document + 1]
        if cut_sentences:
            edges = itertools.pairwise([*range(starts[segment], starts[last], longest), starts[last]])
            fields.extend(itertools.chain.from_iterable(edges))
            continue
        while segment < last:
            end = bisect_right(starts, starts[segment] + longest, segment + 1, last + 1) - 1
            fields.extend((starts[segment], starts[end]))
            segment = end
    return np.array(fields, np.int64).view(BLOCK)
