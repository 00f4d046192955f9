"""Makes instances of documents, as ranges of one array of tokens, and examples of instances.

Legend: N instances, T `max_seq_length`.
"""

import array
import dataclasses
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from bert_keras.data.example_format import DOCUMENT_GROUP, DOCUMENT_GROUPS, DOCUMENT_PARTS, LABELLED, SEPARATED
from bert_keras.data.masking import MaskingVocabulary, mask_tokens
from bert_keras.tokenizers.protocol import Tokenizer
from components.pretrain_example_gen.packing import pack_features, pack_sequences
from components.pretrain_example_gen.sentence_pairs import choose_pairs, truncate_pairs, uniform_numbers
from components.pretrain_example_gen.settings import EVAL, PAIRS, ExampleSettings
from components.pretrain_example_gen.tokenized_shard import Bucket, random_stream

# A: a_length tokens from a_start. B: b_length tokens from b_start, or none. is_random_next: B is random, not the text
# after A, or (`mlm_sop`) A is the text after B. truncated: tokens were removed.
INSTANCE = np.dtype(
    [(name, np.int32) for name in ("a_start", "a_length", "b_start", "b_length")]
    + [("is_random_next", np.bool_), ("truncated", np.bool_)]
)

# A run of sentences that fills an example: tokens[start:end].
SENTENCES = np.dtype([("start", np.int64), ("end", np.int64)])

# Instances filled, masked and encoded together: few enough to fit in the cache. Masking draws random numbers by block,
# so another value gives other (equally good) shards.
BLOCK = 1024


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """Instances of one pass over a bucket."""

    tokens: np.ndarray  # int32 [tokens]; the instances are ranges of it
    instances: np.ndarray  # INSTANCE [N], in the random order in which they are written
    separated: bool  # whether `tokens` contains separators: [CLS] A. If not: [CLS] A [SEP], or [CLS] A [SEP] B [SEP].
    cut_segments: int  # number of segments that were too long for an example, and were cut
    document_starts: np.ndarray  # int64 [documents], the first token of each


def plan_passes(
    bucket: Bucket, settings: ExampleSettings, passes: int, key: Sequence[object], sep_id: int, pair_separators: int = 1
) -> Iterator[Plan]:
    """Instances of a bucket, one pass at a time, to save memory; `key`: run seed, split, bucket, for random choices."""
    separated = settings.objective in SEPARATED
    cut_segments = 0
    if settings.objective not in PAIRS:
        # One position each for [CLS] and the separator after the segment.
        bucket, cut_segments = bucket.cut_segments(settings.max_seq_length - 2)
    first_segments = bucket.document_splits[:-1]
    if settings.objective == "full_sentences":  # a separator before each document but the first
        first_segments = first_segments + np.maximum(np.arange(bucket.num_documents) - 1, 0)
    if separated:
        bucket = bucket.with_separators(sep_id, across_documents=settings.objective == "full_sentences")
    for number in range(passes):
        pass_key = key_of_pass(key, number)
        if settings.objective in PAIRS:
            longest = settings.max_num_tokens + 1 - pair_separators
            instances = _pair_instances(bucket, settings, random_stream(*pass_key), longest)
        else:
            longest = settings.max_seq_length - (1 if separated else 2)
            blocks = choose_blocks(bucket, longest, settings.cut_sentences)
            instances = np.zeros(len(blocks), INSTANCE)
            instances["a_start"], instances["a_length"] = blocks["start"], blocks["end"] - blocks["start"]
        random_stream(*pass_key, "order").shuffle(instances)
        yield Plan(bucket.tokens, instances, separated, cut_segments, bucket.segment_splits[first_segments])


def key_of_pass(key: Sequence[object], number: int) -> tuple[object, ...]:
    """Key of the random choices of a pass."""
    return (*key, "pass", number)


def _pair_instances(bucket: Bucket, settings: ExampleSettings, rng: np.random.Generator, longest: int) -> np.ndarray:
    pairs = choose_pairs(bucket, settings, uniform_numbers(rng), longest)
    dropped = truncate_pairs(pairs, longest, rng)
    instances = np.zeros(len(pairs), INSTANCE)
    for side in "ab":
        instances[f"{side}_start"] = pairs[f"{side}_start"]
        instances[f"{side}_length"] = pairs[f"{side}_end"] - pairs[f"{side}_start"]
    instances["is_random_next"] = pairs["is_random_next"]
    instances["truncated"] = dropped > 0
    return instances


def choose_blocks(bucket: Bucket, longest: int, cut_sentences: bool) -> np.ndarray:
    """Fairseq's `complete_doc` (or `complete`, for a bucket of one document): SENTENCES [N], in the order of the text.

    Each has as many segments as fit into `longest` tokens, which no segment exceeds, and does not cross documents.
    `cut_sentences`: it goes on to `longest` tokens, with the beginning of the segment that starts the next one.
    """
    starts, documents = bucket.segment_splits.tolist(), bucket.document_splits.tolist()
    fields = array.array("q")
    for document in range(len(documents) - 1):
        segment, last = documents[document], documents[document + 1]
        while segment < last:
            start = starts[segment]
            segment = bisect_right(starts, start + longest, segment + 1, last + 1) - 1
            fields.extend((start, min(start + longest, starts[last]) if cut_sentences else starts[segment]))
    return np.array(fields, np.int64).view(SENTENCES)


def instance_lengths(plan: Plan, pair_separators: int = 1) -> np.ndarray:
    """Int32 [N], number of tokens of each instance, including [CLS] and [SEP]."""
    a_length, b_length = plan.instances["a_length"], plan.instances["b_length"]
    return a_length + (1 if plan.separated else 2) + b_length + pair_separators * (b_length > 0)


def document_groups(plan: Plan, packing: bool, key: Sequence[object]) -> np.ndarray:
    """Int64 [N], feature `document_group` of each instance (`bert_keras.data.example_format`).

    Adjacent documents share a group if there are more documents than groups; rows that are packed by group have larger
    groups. Of up to DOCUMENT_PARTS documents, parts are told apart. `key` draws the first group.
    """
    starts, firsts = plan.document_starts, plan.instances["a_start"]
    most = min(DOCUMENT_GROUPS, max(32, len(firsts) // 32)) if packing else DOCUMENT_GROUPS
    groups = np.arange(len(starts)) * min(len(starts), most) // max(1, len(starts))
    groups += int(random_stream(*key, "groups").integers(DOCUMENT_GROUPS))
    document = np.searchsorted(starts, firsts, side="right") - 1
    numbers = groups[document] % DOCUMENT_GROUPS * DOCUMENT_PARTS
    if len(starts) <= DOCUMENT_PARTS:
        lengths = np.diff(starts, append=len(plan.tokens))
        numbers += (firsts - starts[document]) * DOCUMENT_PARTS // lengths[document]
    return numbers


def _pack_groups(lengths: np.ndarray, groups: np.ndarray, settings: ExampleSettings) -> np.ndarray:
    """`pack_sequences` of each group alone."""
    rows = []
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group).astype(np.int32)
        packed = pack_sequences(lengths[members], settings.max_seq_length, settings.max_sequences_per_pack)
        rows.append(np.where(packed < 0, -1, members[packed]))
    return np.concatenate([np.zeros((0, settings.max_sequences_per_pack), np.int32), *rows])


def fill_instances(
    tokens: np.ndarray, instances: np.ndarray, max_seq_length: int, tokenizer: Tokenizer, *, separated: bool
) -> dict[str, np.ndarray]:
    """Fill [CLS] A [SEP] B [SEP], with as many [SEP] in the middle as the tokenizer has; [CLS] A [SEP] if B is empty.

    Or [CLS] A, if it is `separated` (`Plan`). Then padding.

    Returns:
        input_ids:    int32 [N, T].
        input_mask:   uint8 [N, T], 1 up to the last [SEP].
        segment_ids:  uint8 [N, T], 1 for B and the last [SEP] if the tokenizer has segments.
    """
    column = np.arange(max_seq_length, dtype=np.int32)
    a_sep = 1 + instances["a_length"][:, None]
    last = a_sep - 1 if separated else a_sep  # column of the last token
    before_b = a_sep + tokenizer.pair_separators
    sources = instances["a_start"][:, None] - 1 + column
    b_length = instances["b_length"][:, None]
    if b_length.any():
        last = np.where(b_length > 0, before_b + b_length, a_sep)
        np.copyto(sources, instances["b_start"][:, None] - before_b + column, where=column >= before_b)
    input_ids = tokens.take(sources, mode="clip")  # out of range only for special tokens and padding
    if not separated and tokenizer.at_begin is not None:
        for begin in (np.ones_like(a_sep), np.minimum(before_b, max_seq_length - 1)):
            first = np.take_along_axis(input_ids, begin, axis=1)
            np.put_along_axis(input_ids, begin, tokenizer.at_begin[first], axis=1)
    input_ids[:, 0] = tokenizer.cls_id
    is_token = column <= last
    if not separated:
        input_ids[(column >= a_sep) & (column < before_b) | (column == last)] = tokenizer.sep_id
    input_ids[~is_token] = tokenizer.pad_id
    return {
        "input_ids": input_ids,
        "input_mask": is_token.view(np.uint8),
        "segment_ids": (is_token & (column >= before_b) & tokenizer.has_segments).view(np.uint8),
    }


def make_examples(
    plan: Plan, tokenizer: Tokenizer, settings: ExampleSettings, split: str, key: Sequence[object]
) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Fill, mask and pack planned instances, a block at a time; in order, unless they are packed.

    Only the split `eval` has document groups, and with dynamic masking masks.

    Yields:
        features: arrays [rows, values] of `bert_keras.data.example_format.ExampleLayout.features`.
        fingerprints: uint64 [sequences], equal for sequences with the same tokens before masking.
    """
    layout, vocabulary = settings.layout, MaskingVocabulary.of(tokenizer)
    rng = random_stream(*key, "masking")
    groups = document_groups(plan, settings.packing, key) if split == EVAL else np.zeros(len(plan.instances), np.int64)
    if settings.packing:
        rows = _pack_groups(instance_lengths(plan, tokenizer.pair_separators), groups, settings)
        rows = rows[random_stream(*key, "rows").permutation(len(rows))]
    else:
        rows = np.arange(len(plan.instances), dtype=np.int32)[:, None]
    weights = random_stream("fingerprints").integers(0, 2**64, settings.max_seq_length, np.uint64)
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        instances = plan.instances[block[block >= 0]]
        features = fill_instances(plan.tokens, instances, settings.max_seq_length, tokenizer, separated=plan.separated)
        fingerprints = features["input_ids"].astype(np.uint64) @ weights
        if settings.masks(split):
            # For each sequence, before packing.
            masking = settings.masking.held_out if split == EVAL else settings.masking
            arrays = features["input_ids"], features["input_mask"], rng, masking, vocabulary
            features |= mask_tokens(*arrays, settings.masking.max_predictions_per_seq)
        if settings.objective in LABELLED:
            features["next_sentence_labels"] = instances["is_random_next"][:, None].astype(np.uint8)
        if settings.packing:
            features = pack_features(features, (block >= 0).sum(1), layout, tokenizer.pad_id)
        if split == EVAL:
            features[DOCUMENT_GROUP] = groups[block[:, :1]]
        yield features, fingerprints
