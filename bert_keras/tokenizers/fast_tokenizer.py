"""A tokenizer as `tokenizer.json`, the format of the `tokenizers` library, for programs that are not this one.

Its ids are those of the tokenizer here: word pieces are normalized by regular expressions made of the same tables
(`unicode_tables`), not by the library's own BertNormalizer, which deletes unassigned code points and knows no final
sigma. Lower-casing and decomposition are the library's, by a later version of Unicode: 55 letters that Unicode 14 does
not have are lower-cased there, and U+11938 is not decomposed. Special tokens in a text are text, as here: a program
that wants "[MASK]" as one token adds it (`tokenizers.Tokenizer.add_special_tokens`).
"""

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.tokenizers import unicode_tables as ut
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, fast_byte_bpe
from bert_keras.tokenizers.protocol import FORMATS, Tokenizer
from bert_keras.tokenizers.sentencepiece import QUOTES, SentencePieceTokenizer, precompiled
from bert_keras.tokenizers.vocabulary_files import FAST_TOKENIZER_FILE
from bert_keras.tokenizers.wordpiece import MAX_CHARS_PER_WORD, BertTokenizer

if TYPE_CHECKING:
    import tokenizers


def fast_tokenizer(tokenizer: Tokenizer) -> "tokenizers.Tokenizer":
    """The library's tokenizer with the ids of `tokenizer`, which also adds [CLS] and [SEP], or <s> and </s>."""
    from tokenizers import Tokenizer as Fast
    from tokenizers import models, processors

    ids = {token: i for i, token in enumerate(tokenizer.vocabulary)}
    if isinstance(tokenizer, SentencePieceTokenizer):
        fast = _unigram(tokenizer)
    elif isinstance(tokenizer, BertTokenizer):
        fast = Fast(models.WordPiece(ids, unk_token=tokenizer.format.unk, max_input_chars_per_word=MAX_CHARS_PER_WORD))
        _split_words(fast, tokenizer.normalization)
    else:
        assert isinstance(tokenizer, ByteBpeTokenizer)
        fast = fast_byte_bpe(ids, tokenizer.merges, tokenizer.nfc, tokenizer.added)
    cls, sep = tokenizer.format.cls, tokenizer.format.sep
    between, second = f" {sep}" * tokenizer.pair_separators, int(tokenizer.has_segments)
    fast.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A{between} $B:{second} {sep}:{second}",
        special_tokens=[(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)],
    )
    return fast


def write_fast_tokenizer(directory: str, tokenizer: Tokenizer) -> dict[str, Any]:
    """Write `tokenizer.json` as `transformers` does; return fields of `tokenizer_config.json`."""
    from tokenizers import AddedToken

    fast = fast_tokenizer(tokenizer)
    special = tokenizer.format.tokens
    # A mask takes the white space before it.
    fast.add_special_tokens([AddedToken(token, lstrip=name == "mask") for name, token in special.items()])
    fast.save(os.path.join(directory, FAST_TOKENIZER_FILE))
    return {f"{name}_token": token for name, token in special.items()} | {"tokenizer_class": "PreTrainedTokenizerFast"}


def _unigram(tokenizer: SentencePieceTokenizer) -> "tokenizers.Tokenizer":
    """SentencePiece, as `transformers` builds an AlbertTokenizer, with the model's own table of replacements."""
    from tokenizers import Tokenizer as Fast
    from tokenizers import models, normalizers, pre_tokenizers

    pieces, table = precompiled(tokenizer.model, unigram=True)
    fast = Fast(models.Unigram(pieces, tokenizer.unk_id))
    # The table is looked up by grapheme; these are two.
    marks = QUOTES if tokenizer.format.tokens == FORMATS["albert"].tokens else {}
    quotes = [normalizers.Replace(mark, '"') for mark in marks]
    fast.normalizer = normalizers.Sequence([*quotes, *([normalizers.Precompiled(table)] if table else [])])
    fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return fast


def _split_words(fast: "tokenizers.Tokenizer", rules: ut.Normalization) -> None:
    """Set the rules of `normalize.normalize` and `normalize.split_at_spaces`."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    kind = ut.fold_table(**rules.fields).kind
    deleted = (ut.fold_table(lower_case=False).kind & ut.LENGTH_MASK) == 0
    steps: list[Any] = [
        normalizers.Replace(Regex(_class(deleted)), ""),
        normalizers.Replace(Regex(_class(ut.white_space())), " "),
    ]
    if rules.lower_case:
        any_cased, skipped = _class((kind & ut.CASED) != 0), _class((kind & ut.IGNORABLE) != 0)
        # \K: what precedes it is looked for, not replaced.
        final = Regex(f"{any_cased}{skipped}*\\K{chr(ut.CAPITAL_SIGMA)}(?!{skipped}*{any_cased})")
        steps += [normalizers.Replace(final, chr(ut.FINAL_SIGMA)), normalizers.Lowercase()]
    if rules.strip_accents:
        stripped = Regex(_class((kind & ut.LENGTH_MASK) == 0))
        steps += [normalizers.NFD(), normalizers.Replace(stripped, "")]
    fast.normalizer = normalizers.Sequence(steps)
    isolated = Regex(_class((kind & ut.ISOLATED) != 0))
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Split(isolated, "isolated")]
    )


def _class(members: np.ndarray) -> str:
    """A regular expression for one of the code points where `members` bool [0x110000] is true; no surrogates."""
    members = members.copy()
    members[0xD800:0xE000] = False
    edges = np.flatnonzero(np.diff(members, prepend=False, append=False)).reshape(-1, 2)
    return "[" + "".join(f"\\x{{{first:X}}}-\\x{{{end - 1:X}}}" for first, end in edges.tolist()) + "]"
