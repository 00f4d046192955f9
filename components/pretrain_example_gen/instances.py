"""Documents -> next-sentence pairs, as ranges of one array of tokens.

A *bucket* holds the documents of one shard. A document's segments (sentences) lie side by side in the
bucket's tokens, so a run of segments is a range, and an instance is two ranges and a label: nothing is copied
until the examples are filled.

Legend: N instances, T `max_seq_length`.
"""

from __future__ import annotations

import array
import dataclasses
import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_keras.masking import mask_tokens
from bert_keras.tokenizer import BertTokenizer
from components.pretrain_example_gen.settings import ExampleSettings

# A: tokens[a_start:a_end], B: tokens[b_start:b_end]; is_random_next 1: B is drawn, not what follows A;
# dropped: tokens that truncation took off both.
_FIELDS = ("a_start", "a_end", "b_start", "b_end", "is_random_next", "dropped")
INSTANCE = np.dtype([(name, np.int64) for name in _FIELDS])

# Instances that are filled, masked and encoded together: few enough to stay in the cache. The random choices
# of masking are drawn a block at a time, so another value makes other (equally good) shards.
BLOCK = 1024

_DRAWS = 4096
_DISTRACTOR_TRIES = 10


@dataclasses.dataclass(frozen=True)
class Bucket:
    """The documents of one shard, tokenized. No segment and no document is empty.

    Attributes:
        tokens: int32 [tokens].
        segment_splits: int64 [segments + 1]; segment s is tokens[segment_splits[s]:segment_splits[s + 1]].
        document_splits: int64 [documents + 1]; the same, of documents into segments.
    """

    tokens: np.ndarray
    segment_splits: np.ndarray
    document_splits: np.ndarray

    @classmethod
    def from_documents(cls, documents: Iterable[Sequence[str]], tokenizer: BertTokenizer) -> Bucket:
        """Tokenizes documents (sequences of segments); leaves out what has no token, as the original does."""
        segment_counts: list[int] = []

        def segments() -> Iterator[str]:
            for document in documents:
                segment_counts.append(len(document))
                yield from document

        tokens, splits = tokenizer.encode(segments())
        lengths = np.diff(splits)
        document_of_segment = np.repeat(np.arange(len(segment_counts)), segment_counts)
        used = np.bincount(document_of_segment[lengths > 0])
        return cls(tokens, _splits(lengths[lengths > 0]), _splits(used[used > 0]))


def _splits(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def random_stream(*key: object) -> np.random.Generator:
    """A generator for each key, the same in every process: random_stream(12345, "train", "pass", 0)."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    # One call for many numbers: a call for each costs more than all else that planning does.
    while True:
        yield from rng.random(_DRAWS).tolist()


def choose_pairs(bucket: Bucket, settings: ExampleSettings, uniforms: Iterator[float]) -> np.ndarray:
    """Pairs of one pass over all documents, untruncated: the original's `create_instances_from_document`.

    Args:
        uniforms: random numbers from [0, 1).

    Returns:
        INSTANCE [N]: for each document in order, its pairs in order.
    """
    starts = bucket.segment_splits.tolist()  # lists: scalar reads and bisect are slow on arrays
    documents = bucket.document_splits.tolist()
    num_documents = len(documents) - 1
    fields = array.array("q")
    for document in range(num_documents):
        segment, last = documents[document], documents[document + 1]
        target = settings.max_num_tokens
        if next(uniforms) < settings.short_seq_prob:
            target = 2 + int(next(uniforms) * (settings.max_num_tokens - 1))
        while segment < last:
            # The chunk: the fewest whole segments that reach the target, or what is left of the document.
            end = bisect_left(starts, starts[segment] + target, segment + 1, last)
            a_end = segment + 1
            if end - segment > 1:
                a_end += int(next(uniforms) * (end - segment - 1))
            # No number is drawn for a single segment, which has nothing to be followed by.
            is_random_next = end - segment == 1 or next(uniforms) < 0.5
            if is_random_next:
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
            a_start, b_start = starts[segment], starts[b_segment]
            fields.extend((a_start, starts[a_end], b_start, starts[b_end], is_random_next, 0))
            segment = next_segment
    return np.array(fields, np.int64).view(INSTANCE)


def truncate_pairs(pairs: np.ndarray, max_num_tokens: int, rng: np.random.Generator) -> None:
    """Shortens pairs (INSTANCE [N]) in place: the original's `truncate_seq_pair`, in closed form.

    Taking one token at a time from the longer side (from B if they are equal) ends with both sides at half, A
    having the odd token, unless one side was shorter than that and keeps all it has. Each token is taken from
    the front or the back with equal probability, so the front's share is binomial.
    """
    a_length = pairs["a_end"] - pairs["a_start"]
    b_length = pairs["b_end"] - pairs["b_start"]
    new_a_length = np.minimum(a_length, np.maximum((max_num_tokens + 1) // 2, max_num_tokens - b_length))
    new_b_length = np.minimum(b_length, max_num_tokens - new_a_length)
    pairs["dropped"] = a_length + b_length - new_a_length - new_b_length
    pairs["a_start"] += rng.binomial(a_length - new_a_length, 0.5)
    pairs["b_start"] += rng.binomial(b_length - new_b_length, 0.5)
    pairs["a_end"] = pairs["a_start"] + new_a_length
    pairs["b_end"] = pairs["b_start"] + new_b_length


def plan_instances(bucket: Bucket, settings: ExampleSettings, passes: int, key: Sequence[object]) -> np.ndarray:
    """All instances of a bucket in the order they are written: INSTANCE [N], shuffled over all passes.

    Args:
        key: what the random choices depend on, beside the pass: run seed, split, bucket.
    """
    plans = [np.empty(0, INSTANCE)]
    for number in range(passes):
        rng = random_stream(*key, "pass", number)
        pairs = choose_pairs(bucket, settings, _uniforms(rng))
        truncate_pairs(pairs, settings.max_num_tokens, rng)
        plans.append(pairs)
    plan = np.concatenate(plans)
    return plan[random_stream(*key, "order").permutation(len(plan))]


def fill_instances(
    tokens: np.ndarray, plan: np.ndarray, max_seq_length: int, *, cls_id: int, sep_id: int, pad_id: int
) -> dict[str, np.ndarray]:
    """[CLS] A [SEP] B [SEP] and padding.

    Args:
        tokens: int32 [tokens] of the bucket.
        plan: INSTANCE [N], truncated.

    Returns:
        input_ids:    int32 [N, T].
        input_mask:   uint8 [N, T], 1 up to the last [SEP].
        segment_ids:  uint8 [N, T], 1 for B and the last [SEP].
    """
    column = np.arange(max_seq_length, dtype=np.int32)
    a_sep = 1 + (plan["a_end"] - plan["a_start"])[:, None]
    b_sep = a_sep + 1 + (plan["b_end"] - plan["b_start"])[:, None]
    is_a = column <= a_sep
    sources = np.where(is_a, plan["a_start"][:, None] - 1, plan["b_start"][:, None] - 1 - a_sep) + column
    input_ids = tokens.take(sources, mode="clip")  # out of range only where a special token or padding goes
    input_ids[:, 0] = cls_id
    np.put_along_axis(input_ids, a_sep, sep_id, axis=1)
    np.put_along_axis(input_ids, b_sep, sep_id, axis=1)
    is_token = column <= b_sep
    input_ids[~is_token] = pad_id
    return {
        "input_ids": input_ids,
        "input_mask": is_token.astype(np.uint8),
        "segment_ids": (is_token & ~is_a).astype(np.uint8),
    }


def make_examples(
    bucket: Bucket,
    plan: np.ndarray,
    tokenizer: BertTokenizer,
    settings: ExampleSettings,
    rng: np.random.Generator,
) -> Iterator[dict[str, np.ndarray]]:
    """Fills and masks planned instances, in order, BLOCK at a time.

    Yields:
        The arrays of `bert_keras.features.feature_spec`, with a leading dimension of instances.
    """
    for start in range(0, len(plan), BLOCK):
        block = plan[start : start + BLOCK]
        features = fill_instances(
            bucket.tokens,
            block,
            settings.max_seq_length,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            pad_id=tokenizer.pad_id,
        )
        masked = mask_tokens(
            features["input_ids"],
            features["input_mask"],
            rng,
            settings=settings.masking,
            unmaskable_ids=(tokenizer.cls_id, tokenizer.sep_id),
            mask_id=tokenizer.mask_id,
            vocab_size=len(tokenizer.vocabulary),
        )
        yield {
            **features,
            **masked,
            "next_sentence_labels": block["is_random_next"][:, None].astype(np.uint8),
        }
