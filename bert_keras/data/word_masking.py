"""Choice of whole words, n-grams of words and spans of words to mask, for batches of sequences.

Legend: N sequences, T tokens of each, M maskable tokens of all, W words of all.
"""

import dataclasses

import numpy as np

# ALBERT's n-grams (arXiv 1909.11942, section 4.2): n words with probability (1/n) / (1/1 + 1/2 + 1/3).
# One length per draw, of eleven equally likely draws: exact on every machine.
NGRAM_LENGTHS = np.repeat([1, 2, 3], [6, 3, 2])
# SpanBERT's spans (pretraining/fairseq/data/masking.py): n words with probability 0.2 * 0.8 ** (n - 1), truncated at 10
# and renormalised, as whole numbers: 4 ** (n - 1) * 5 ** (10 - n) of 5 ** 10 - 4 ** 10.
SPAN_LENGTH_ENDS = np.cumsum([4**i * 5 ** (9 - i) for i in range(10)])


@dataclasses.dataclass(frozen=True, eq=False)
class Words:
    """The words of N sequences, side by side."""

    tokens: np.ndarray  # int64 [M], places of the maskable tokens: sequence * T + column, ascending
    token_splits: np.ndarray  # int64 [W + 1]; word w is tokens[token_splits[w]:token_splits[w + 1]]
    word_splits: np.ndarray  # int64 [N + 1]; the words of sequence n are word_splits[n]:word_splits[n + 1]
    run_ends: np.ndarray  # int64 [W]; one past the last word that follows w without a gap

    @classmethod
    def find(cls, maskable: np.ndarray, continues: np.ndarray, *, join_across_gaps: bool) -> "Words":
        """Group maskable tokens into words.

        `maskable`: bool [N, T]. Other tokens, such as [SEP], leave gaps. `continues`: bool [N, T], the token continues
        a word ("##"). `join_across_gaps`: such a token after a gap joins the word before the gap; otherwise it begins a
        word.
        """
        tokens = np.flatnonzero(maskable)
        ends = np.cumsum(maskable.sum(1))  # of the sequences, in `tokens`
        begins_sequence = np.zeros(len(tokens) + 1, bool)
        begins_sequence[np.append(0, ends)] = True
        begins_sequence = begins_sequence[:-1]
        begins_run = begins_sequence.copy()
        begins_run[1:] |= np.diff(tokens) != 1
        begins_word = ~continues.ravel()[tokens] | (begins_sequence if join_across_gaps else begins_run)
        firsts = np.flatnonzero(begins_word)
        # A run that begins inside a joined word (at ##ing in "play [SEP] ##ing ball") is not counted: only n-grams
        # and spans need `run_ends`, and they never join words across gaps.
        runs = np.append(np.flatnonzero(begins_run[firsts]), len(firsts))
        return cls(
            tokens=tokens,
            token_splits=np.append(firsts, len(tokens)),
            word_splits=np.searchsorted(firsts, np.append(0, ends)),
            run_ends=np.repeat(runs[1:], np.diff(runs)),
        )


def choose_words(words: Words, budgets: np.ndarray, rng: np.random.Generator, *, ngrams: bool) -> np.ndarray:
    """Choose each sequence's words in random order, within its budget.

    Whole words (create_pretraining_data.py, `do_whole_word_mask`): a word that would exceed the budget is skipped.
    N-grams (ALBERT): a length is drawn for each word in turn; if that many words exceed the budget, fewer are tried; if
    one of them is already taken, all are skipped. Unlike ALBERT's, they do not cross [SEP]. `budgets`: int64 [N],
    maximum number of tokens. Returns int64, the chosen tokens, as in `Words.tokens`, ascending.
    """
    num_words = np.diff(words.word_splits)
    total = len(words.run_ends)
    sequence = np.repeat(np.arange(len(num_words)), num_words)
    # Words sorted by (sequence, random number, word): one sort of integers.
    word_bits, sequence_bits = int(num_words.max(initial=0)).bit_length(), len(num_words).bit_length()
    random_bits = 63 - word_bits - sequence_bits
    keys = rng.integers(0, 1 << random_bits, total) << word_bits
    keys |= sequence << (random_bits + word_bits)
    first_words = words.word_splits[sequence]
    keys |= np.arange(total) - first_words
    keys.sort()
    order = (keys & ((1 << word_bits) - 1)) + first_words
    longest = int(NGRAM_LENGTHS[-1]) if ngrams else 1
    lengths = NGRAM_LENGTHS[rng.integers(0, len(NGRAM_LENGTHS), total)] if ngrams else np.ones(total, np.int64)

    taken = np.zeros(total, bool)
    room = budgets.copy()
    active = np.flatnonzero((room > 0) & (num_words > 0))
    rank = 0
    while len(active):  # the rank-th word of every sequence that has room
        place = words.word_splits[active] + rank
        first = order[place]
        end = np.minimum(first + lengths[place], words.run_ends[first])
        size = words.token_splits[end] - words.token_splits[first]
        for _ in range(longest - 1):
            end -= (size > room[active]) & (end > first + 1)
            size = words.token_splits[end] - words.token_splits[first]
        fits = size <= room[active]
        for step in range(longest):
            fits &= ~taken[np.minimum(first + step, end - 1)]
        for step in range(longest):
            taken[np.minimum(first + step, end - 1)[fits]] = True
        room[active] -= size * fits
        rank += 1
        active = active[(room[active] > 0) & (rank < num_words[active])]
    return words.tokens[np.repeat(taken, np.diff(words.token_splits))]


def span_lengths(count: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths of spans in words: int64 [count], from 1 to 10."""
    return 1 + np.searchsorted(SPAN_LENGTH_ENDS, rng.integers(0, SPAN_LENGTH_ENDS[-1], count), side="right")


def choose_spans(words: Words, budgets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose spans of words until each sequence's budget is spent (SpanBERT: pretraining/fairseq/data/masking.py).

    A span begins with the word of a token drawn uniformly from those not taken. Its length in words is drawn from
    1 to 10. It may overlap other spans, ends before a gap, and is cut, even inside a word, where the budget is spent.

    Args and Returns: as `choose_words`; min(budget, maskable tokens) of each sequence are taken.
    """
    token_splits = words.token_splits
    first_tokens = token_splits[words.word_splits]
    num_tokens = np.diff(first_tokens)
    word_of_token = np.repeat(np.arange(len(words.run_ends)), np.diff(token_splits))
    taken = np.zeros(len(words.tokens), bool)
    room = np.minimum(budgets, num_tokens)
    active = np.flatnonzero(room > 0)
    while len(active):  # the next span of every sequence that has room
        anchor = first_tokens[active] + (rng.random(len(active)) * num_tokens[active]).astype(np.int64)
        length = span_lengths(len(active), rng)
        free = ~taken[anchor]  # sequences whose anchor is taken draw again
        sequence, word = active[free], word_of_token[anchor[free]]
        start = token_splits[word]
        size = token_splits[np.minimum(word + length[free], words.run_ends[word])] - start
        ends = np.cumsum(size)
        tokens = np.arange(size.sum()) + np.repeat(start - ends + size, size)
        new = np.cumsum(~taken[tokens])
        before = np.append(0, new)[ends - size]
        taken[tokens[new - np.repeat(before, size) <= np.repeat(room[sequence], size)]] = True
        room[sequence] -= np.minimum(room[sequence], np.append(0, new)[ends] - before)
        active = active[room[active] > 0]
    return words.tokens[taken]
