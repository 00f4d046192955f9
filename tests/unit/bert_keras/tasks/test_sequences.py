"""The encoder's inputs of a row do not depend on the rows beside it."""

import numpy as np
import pytest

from bert_keras.tasks.sequences import TokenRuns, pair_sequences, single_sequences
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, byte_alphabet
from bert_keras.tokenizers.protocol import FORMATS
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer

BERT = BertTokenizer([*SPECIAL_TOKENS, *"abcdefg"], lower_case=True)
ROBERTA = ByteBpeTokenizer(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *byte_alphabet()], [], FORMATS["roberta"])


@pytest.mark.parametrize("tokenizer", [BERT, ROBERTA], ids=["bert", "roberta"])
@pytest.mark.parametrize("length", [6, 12])
@pytest.mark.parametrize("first, second", [([], [7]), ([5], []), ([5, 6, 7, 8, 9], [10, 11, 9, 8]), ([5, 6], None)])
def test_a_row_alone_is_the_row_among_others(tokenizer, length, first, second):
    def sequences(rows):
        def runs(ids):
            return TokenRuns(np.array(ids * rows, np.int32), len(ids) * np.arange(rows), np.array([len(ids)] * rows))

        if second is None:
            return single_sequences(runs(first), length, "head_tail", tokenizer)
        return pair_sequences(runs(first), runs(second), length, tokenizer)

    alone, among_others = sequences(1), sequences(3)
    assert alone.keys() == among_others.keys()
    for name, array in alone.items():
        assert array.dtype == np.int32
        np.testing.assert_array_equal(array, among_others[name][:1], name)
