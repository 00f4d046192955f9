"""New words in a WordPiece vocabulary that exists: old ids never move.

New words take the places of `[unused0]`, `[unused1]`, ... of the released vocabularies first; the others are appended.
"""

import heapq
from collections.abc import Mapping, Sequence

from bert_keras.tokenizers.protocol import UNUSED
from bert_keras.tokenizers.wordpiece import SUFFIX_INDICATOR, BertTokenizer


def extended_size(vocabulary: Sequence[str], new_words: int) -> int:
    """The size of a vocabulary with new words."""
    return len(vocabulary) + max(0, new_words - len(_unused_ids(vocabulary)))


def extend(vocabulary: Sequence[str], words: Sequence[str]) -> list[str]:
    """Add words to a vocabulary.

    >>> extend(["[PAD]", "[unused0]", "a"], ["bc", "de"])
    ['[PAD]', 'bc', 'a', 'de']
    """
    extended, slots = list(vocabulary), _unused_ids(vocabulary)
    for slot, word in zip(slots, words, strict=False):
        extended[slot] = word
    return extended + list(words[len(slots) :])


def _unused_ids(vocabulary: Sequence[str]) -> list[int]:
    return [i for i, token in enumerate(vocabulary) if UNUSED.fullmatch(token)]


def replaced_tokens(old: BertTokenizer, tokens: Sequence[str]) -> dict[int, list[int]]:
    """The tokens into which the old vocabulary cuts each new token: old ids by new id.

    ValueError: `tokens` is not the old vocabulary with new words for unused tokens and at its end.
    """
    vocabulary = old.vocabulary
    new = [i for i, token in enumerate(tokens) if i >= len(vocabulary) or token != vocabulary[i]]
    moved = [i for i in new if i < len(vocabulary) and not UNUSED.fullmatch(vocabulary[i])]
    if moved or len(tokens) < len(vocabulary):
        which = f"it has {len(tokens):,} tokens, not {len(vocabulary):,}"
        if moved:
            which = f"token {moved[0]} is {tokens[moved[0]]!r}, not {vocabulary[moved[0]]!r}"
        raise ValueError(f"the vocabulary of the examples is not the initial model's: {which}")
    ids, splits = old.wordpiece_ids([tokens[i] for i in new])
    return {token_id: ids[splits[k] : splits[k + 1]].tolist() for k, token_id in enumerate(new)}


def choose_words(counts: Mapping[str, int], tokenizer: BertTokenizer, wanted: int) -> list[str]:
    """The words that save most tokens, the most useful first; the same for the same counts.

    A word of k tokens saves k - 1 at each occurrence. It also shortens longer words that begin with it, so each choice
    changes what the next ones save: candidates are weighed again when they are the best (lazy greedy). A word that the
    tokenizer cannot cut ([UNK]) is no candidate. Fewer than `wanted` are returned if no others save a token.
    """
    words = sorted(counts)
    ids, splits = tokenizer.wordpiece_ids(words)
    unknown = tokenizer.unk_id
    vocabulary = set(tokenizer.vocabulary)
    heap: list[tuple[int, str]] = []
    for k, word in enumerate(words):
        cut = ids[splits[k] : splits[k + 1]]
        if len(cut) > 1 and unknown not in cut:
            heap.append((-counts[word] * (len(cut) - 1), word))
    heapq.heapify(heap)
    chosen: list[str] = []
    while heap and len(chosen) < wanted:
        gain, word = heapq.heappop(heap)
        now = -counts[word] * (_tokens_of(word, vocabulary) - 1)
        if now > gain:  # it saves less than it did
            if now:
                heapq.heappush(heap, (now, word))
            continue
        chosen.append(word)
        vocabulary.add(word)
    return chosen


def _tokens_of(word: str, vocabulary: set[str]) -> int:
    """Number of tokens by greedy longest-match-first; the word has no unknown character."""
    start = count = 0
    while start < len(word):
        prefix = SUFFIX_INDICATOR if start else ""
        start = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in vocabulary), len(word))
        count += 1
    return count
