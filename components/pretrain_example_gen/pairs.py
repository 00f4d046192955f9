"""Documents -> pairs of segments: next-sentence pairs and those of RoBERTa's SEGMENT-PAIR.

Legend: N pairs.
"""

from __future__ import annotations

import array
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from components.pretrain_example_gen.bucket import Bucket
from components.pretrain_example_gen.settings import ExampleSettings

# A: tokens[a_start:a_end], B: tokens[b_start:b_end], which is empty where A stands alone; is_random_next 1: B is drawn,
# not what follows A.
PAIR = np.dtype([(name, np.int64) for name in ("a_start", "a_end", "b_start", "b_end", "is_random_next")])

_DRAWS = 4096
_DISTRACTOR_TRIES = 10


def uniform_numbers(rng: np.random.Generator) -> Iterator[float]:
    """Random numbers from [0, 1), without end."""
    # One call for many: a call for each costs more than all else that planning does.
    while True:
        yield from rng.random(_DRAWS).tolist()


def choose_pairs(bucket: Bucket, settings: ExampleSettings, uniforms: Iterator[float]) -> np.ndarray:
    """Pairs of one pass over all documents, untruncated: the original's `create_instances_from_document`.

    `segment_pair` splits the same chunks and never draws another document. `nsp=balanced` differs in this:
    - A distractor is of another document, always. If there is no other, all pairs are real, and one sentence that would
      be left over goes with the chunk before it; a document of one sentence then gives no pair.
    - As soon as one kind is ahead, the next pair is of the other kind. A chunk of one sentence can only be random; when
      a real pair is due, such a chunk takes another sentence, if the document has one more.

    Args:
        uniforms: random numbers from [0, 1).

    Returns:
        PAIR [N]: for each document in order, its pairs in order.
    """
    starts = bucket.segment_splits.tolist()  # lists: scalar reads and bisect are slow on arrays
    documents = bucket.document_splits.tolist()
    num_documents = len(documents) - 1
    all_real = settings.objective == "segment_pair"
    balanced = settings.nsp == "balanced"
    alone = balanced and num_documents == 1
    random_ahead = 0  # random pairs less real ones
    fields = array.array("q")
    for document in range(num_documents):
        segment, last = documents[document], documents[document + 1]
        target = settings.max_num_tokens
        if next(uniforms) < settings.short_seq_prob:
            target = 2 + int(next(uniforms) * (settings.max_num_tokens - 1))
        while segment < last:
            # The chunk: the fewest whole segments that reach the target, or what is left of the document.
            end = bisect_left(starts, starts[segment] + target, segment + 1, last)
            if balanced:
                if end - segment == 1 and end < last and (alone or random_ahead > 0):
                    end += 1
                if alone and last - end == 1:
                    end = last
                if alone and end - segment == 1:
                    break
            a_end = segment + 1
            if end - segment > 1:
                a_end += int(next(uniforms) * (end - segment - 1))
            if all_real:
                is_random_next = False
            elif end - segment == 1:
                # No number is drawn for a single segment, which has nothing to be followed by.
                is_random_next = True
            elif alone or (balanced and random_ahead):
                is_random_next = not alone and random_ahead < 0
            else:
                is_random_next = next(uniforms) < 0.5
            random_ahead += 1 if is_random_next else -1
            if is_random_next:
                if balanced:
                    other = int(next(uniforms) * (num_documents - 1))
                    other += other >= document
                else:
                    # After so many tries the same document does, and is called random still.
                    for _ in range(_DISTRACTOR_TRIES):
                        other = int(next(uniforms) * num_documents)
                        if other != document:
                            break
                other_last = documents[other + 1]
                b_segment = documents[other] + int(next(uniforms) * (other_last - documents[other]))
                b_target = target - (starts[a_end] - starts[segment])
                b_end = bisect_left(starts, starts[b_segment] + b_target, b_segment + 1, other_last)
                next_segment = a_end  # the segments that A did not use are put back
            else:
                b_segment, b_end, next_segment = a_end, end, end
            fields.extend((starts[segment], starts[a_end], starts[b_segment], starts[b_end], is_random_next))
            segment = next_segment
    return np.array(fields, np.int64).view(PAIR)


def truncate_pairs(pairs: np.ndarray, max_num_tokens: int, rng: np.random.Generator) -> np.ndarray:
    """Shortens pairs (PAIR [N]) in place: the original's `truncate_seq_pair`, in closed form.

    Taking one token at a time from the longer side (from B if they are equal) ends with both sides at half, A
    having the odd token, unless one side was shorter than that and keeps all it has. Each token is taken from
    the front or the back with equal probability, so the front's share is binomial.

    Returns:
        int64 [N], tokens taken off.
    """
    a_length = pairs["a_end"] - pairs["a_start"]
    b_length = pairs["b_end"] - pairs["b_start"]
    new_a_length = np.minimum(a_length, np.maximum((max_num_tokens + 1) // 2, max_num_tokens - b_length))
    new_b_length = np.minimum(b_length, max_num_tokens - new_a_length)
    pairs["a_start"] += rng.binomial(a_length - new_a_length, 0.5)
    pairs["b_start"] += rng.binomial(b_length - new_b_length, 0.5)
    pairs["a_end"] = pairs["a_start"] + new_a_length
    pairs["b_end"] = pairs["b_start"] + new_b_length
    return a_length + b_length - new_a_length - new_b_length
