"""Documents -> runs of as many whole sentences as fit into an example."""

from __future__ import annotations

import array
from bisect import bisect_right

import numpy as np

from components.pretrain_example_gen.bucket import Bucket

# tokens[start:end]
BLOCK = np.dtype([("start", np.int64), ("end", np.int64)])


def choose_blocks(bucket: Bucket, longest: int) -> np.ndarray:
    """Fairseq's `complete_doc` (and, of a bucket that is one document, `complete`): BLOCK [N], in the text's order.

    Each block is as many segments as have at most `longest` tokens together; none goes on into another document.

    Args:
        longest: no segment is longer (`Bucket.cut_segments`).
    """
    starts, documents = bucket.segment_splits.tolist(), bucket.document_splits.tolist()
    fields = array.array("q")
    for document in range(len(documents) - 1):
        segment, last = documents[document], documents[document + 1]
        while segment < last:
            end = bisect_right(starts, starts[segment] + longest, segment + 1, last + 1) - 1
            fields.extend((starts[segment], starts[end]))
            segment = end
    return np.array(fields, np.int64).view(BLOCK)
