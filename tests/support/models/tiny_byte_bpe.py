"""A small byte-level BPE, learned from a few sentences, and texts that exercise all of GPT-2's pattern."""

import functools
import json

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS, ByteBpeTokenizer

SENTENCES = (
    "The cat sat on the mat, and the dog wasn't there: they'd run 1,000 miles (or 1600 km) from the cat's house.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Où est l'été ? En français, c'est l'été.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. 我爱北京天安门,天安门上太阳升。 한국어는 어렵지 않다.",
    "हिन्दी भाषा है। اللُّغَةُ العَرَبِيَّة، أين؟ ภาษาไทยง่ายๆ ครับ 😀😃 👩‍👩‍👧 ----- ===== ... aaaa aaaaa",
)
# Each is a way to stand beside another: apostrophes, white space of all kinds, letters, numbers, marks, controls.
TRICKY = (
    "aAbstmdrevl'’1²Ⅷé漢가\u0301_-.😀\u200d\u00ad\ufffd\ufffe\uffff\U0010ffff\x00\x1c\x85\ufeff"
    " \t\n\r\x0b\xa0\u2003\u2028\u3000"
)
TEXTS = (
    "",
    " ",
    "\n\n",
    "The cat's mat's's 'stable' 'll they'd they'LL \n'tis",
    "a 's's'stx 'll''s\n's  \n x\xa0y\u2003 \u2003z  ",
    "aaa aaaaaaaa -----=====  ====== \t\n",
    "Café e\u0301té, 漢字 👩‍👩‍👧 ²Ⅷ12\x00\u200b",
    "the " * 40 + "end",
)


@functools.cache
def tiny_byte_bpe(size=600):
    """A `ByteBpeTokenizer` with `size` tokens."""
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    learned.train_from_iterator(SENTENCES * 2, trainer)
    ids = learned.get_vocab()
    merges = json.loads(learned.to_str())["model"]["merges"]
    pairs = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]
    return ByteBpeTokenizer(sorted(ids, key=ids.__getitem__), pairs)
