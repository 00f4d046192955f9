"""Sequences of byte-level BPE: pairs, sentences with and without separators, packed or not."""

import pytest

from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS, ByteBpeTokenizer, byte_alphabet, text_of
from components.pretrain_example_gen.instances import make_examples, plan_passes
from components.pretrain_example_gen.tokenized_shard import Bucket
from tests.unit.components.pretrain_example_gen.test_instances import example_settings, restore


@pytest.mark.parametrize("packing", [False, True])
def test_sequences_of_byte_level_bpe(packing):
    """RoBERTa's pairs (fairseq, models/roberta/hub_interface.py, `encode`), of the tokens that running text has."""
    merges = [("h", "e"), ("T", "he"), ("Ġ", "The"), ("o", "g"), ("d", "og"), ("Ġ", "dog")]
    vocabulary = [*SPECIAL_TOKENS, *byte_alphabet(), *("".join(pair) for pair in merges)]
    tokenizer = ByteBpeTokenizer(vocabulary, merges)

    def sequences(objective, documents, max_seq_length=64):
        settings = example_settings(max_seq_length, objective=objective, packing=packing, short_seq_prob=0.0)
        bucket = Bucket.from_documents(documents, tokenizer, separated=objective == "doc_sentences")
        for plan in plan_passes(bucket, settings, 1, (1,), tokenizer.sep_id, tokenizer.pair_separators):
            for features, _ in make_examples(plan, tokenizer, settings, "train", (1,)):
                assert not features["segment_ids"].any()
                for ids, mask in zip(restore(features), features["input_mask"], strict=True):
                    text = text_of("".join(vocabulary[i] for i in ids[mask == 1]))
                    yield from [f"<s>{one}" for one in text.split("<s>")[1:]]

    documents = [["The dog.", "The dog", "我。", "我", "dog"], ["The"]]
    assert {*sequences("single_sequence", documents)} == {"<s>The dog. The dog 我。我dog</s>", "<s>The</s>"}
    assert "<s>The dog.</s>The dog</s>我。</s>我</s>dog</s>" in {*sequences("doc_sentences", documents)}
    assert {*sequences("single_sequence", [["The dog.", "dog", "The"]], 6)} == {"<s>The dog. dog</s>", "<s>The</s>"}
    documents = [["The dog.", "dog The dog"[: 3 + 4 * (number % 3)]] for number in range(60)]
    pairs = {*sequences("segment_pair", documents, 18)}
    assert pairs == {f"<s>The dog.</s></s>{second}</s>" for second in ("dog", "dog The", "dog The dog")}
    long = [["The" + " dog" * 8, "dog" + " The" * 8]]
    assert all(pair.endswith("</s>") and pair.count("</s>") == 3 for pair in sequences("segment_pair", long, 16))
