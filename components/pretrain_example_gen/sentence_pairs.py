"""Makes pairs of segments from documents: for next sentences, for their order, and RoBERTa's SEGMENT-PAIR.

Legend: N pairs.
"""

import array
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.tokenized_shard import Bucket

# A: tokens[a_start:a_end], B: tokens[b_start:b_end], empty if A stands alone; is_random_next 1: B is random, not the
# text after A, or (`mlm_sop`) A is the text after B.
PAIR = np.dtype([(name, np.int64) for name in ("a_start", "a_end", "b_start", "b_end", "is_random_next")])

_DRAWS = 4096
_DISTRACTOR_TRIES = 10


def uniform_numbers(rng: np.random.Generator) -> Iterator[float]:
    """Endless random numbers from [0, 1)."""
    # Drawn in blocks: a call for each number would take longer than all the rest of planning.
    while True:
        yield from rng.random(_DRAWS).tolist()


def choose_pairs(bucket: Bucket, settings: ExampleSettings, uniforms: Iterator[float], longest: int = 0) -> np.ndarray:
    """Pairs of one pass over all documents, untruncated, PAIR [N]: the original's `create_instances_from_document`.

    `segment_pair` splits the same chunks but never draws another document, `mlm_sop` only for a single segment; the
    parts of other chunks it swaps with probability 1/2. `nsp=balanced` differs in two points:
    - A random segment is always from another document. If there is none, all pairs are real, and a single remaining
      sentence is added to the previous chunk; a document of one sentence then gives no pair.
    - Whenever one kind is ahead, the next pair is of the other kind. A chunk of one sentence can only be random; if a
      real pair is due, such a chunk takes another sentence, if the document has one more.

    `uniforms` are random numbers from [0, 1); `longest`, in text tokens, is `settings.max_num_tokens` if it is 0.
    """
    starts = bucket.segment_splits.tolist()  # lists: scalar reads and bisect are slow on arrays
    documents = bucket.document_splits.tolist()
    num_documents = len(documents) - 1
    longest = longest or settings.max_num_tokens
    all_real = settings.objective == "segment_pair"
    is_order = settings.objective == "mlm_sop"
    balanced = settings.nsp == "balanced"
    alone = balanced and num_documents == 1
    random_ahead = 0  # number of random pairs minus real ones
    fields = array.array("q")
    for document in range(num_documents):
        segment, last = documents[document], documents[document + 1]
        target = longest
        if next(uniforms) < settings.short_seq_prob:
            target = 2 + int(next(uniforms) * (longest - 1))
        while segment < last:
            # The chunk: as few whole segments as reach the target, or the rest of the document.
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
                # The original draws no number for a single segment, which nothing can follow.
                is_random_next = True
            elif alone or (balanced and random_ahead):
                is_random_next = not alone and random_ahead < 0
            else:
                is_random_next = not is_order and next(uniforms) < 0.5
            random_ahead += 1 if is_random_next else -1
            if is_random_next:
                if balanced:
                    other = int(next(uniforms) * (num_documents - 1))
                    other += other >= document
                else:
                    # If all tries fail, B is from the same document and still labelled random.
                    for _ in range(_DISTRACTOR_TRIES):
                        other = int(next(uniforms) * num_documents)
                        if other != document:
                            break
                other_last = documents[other + 1]
                b_segment = documents[other] + int(next(uniforms) * (other_last - documents[other]))
                b_target = target - (starts[a_end] - starts[segment])
                b_end = bisect_left(starts, starts[b_segment] + b_target, b_segment + 1, other_last)
                next_segment = a_end  # segments that A did not use are put back
            else:
                b_segment, b_end, next_segment = a_end, end, end
            a, b = (starts[segment], starts[a_end]), (starts[b_segment], starts[b_end])
            if is_order and not is_random_next and next(uniforms) < 0.5:
                a, b, is_random_next = b, a, True
            fields.extend((*a, *b, is_random_next))
            segment = next_segment
    return np.array(fields, np.int64).view(PAIR)


def truncate_pairs(pairs: np.ndarray, max_num_tokens: int, rng: np.random.Generator) -> np.ndarray:
    """Shorten pairs (PAIR [N]) in place: the original's `truncate_seq_pair`, in closed form.

    Removing one token at a time from the longer side (from B if they are equal) ends with both sides at half, with the
    odd token in A, unless one side was shorter and remains whole. Each token is removed from the front or the back with
    equal probability, so the number removed from the front is binomial. Returns int64 [N], number of removed tokens.
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
