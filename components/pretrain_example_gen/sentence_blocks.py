"""Divides documents into runs of sentences that fill an example."""

from __future__ import annotations

import array
from bisect import bisect_right

import numpy as np

from components.pretrain_example_gen.tokenized_shard import Bucket

# tokens[start:end]
BLOCK = np.dtype([("start", np.int64), ("end", np.int64)])


def choose_blocks(bucket: Bucket, longest: int, cut_sentences: bool) -> np.ndarray:
    """Fairseq's `complete_doc` (or `complete`, for a bucket of one document): BLOCK [N], in the order of the text.

    Each block has as many segments as fit into `longest` tokens; no block crosses documents.

    Args:
        longest: no segment may be longer (`Bucket.cut_segments`).
        cut_sentences: whether a block goes on to `longest` tokens, with the beginning of the segment that starts the
            next block.
    """
    starts, documents = bucket.segment_splits.tolist(), bucket.document_splits.tolist()
    fields = array.array("q")
    for document in range(len(documents) - 1):
        segment, last = documents[document], documents[document + 1]
        while segment < last:
            start = starts[segment]
            segment = bisect_right(starts, start + longest, segment + 1, last + 1) - 1
            fields.extend((start, min(start + longest, starts[last]) if cut_sentences else starts[segment]))
    return np.array(fields, np.int64).view(BLOCK)
