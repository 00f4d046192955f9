"""A small SentencePiece model with ALBERT's options, and AlbertTokenizerFast's rules in the `tokenizers` library."""

import functools
import io

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer, model_with_ids
from tests.support.models.tiny_byte_bpe import SENTENCES

# Each is changed before SentencePiece sees it, or cut in another way than its parts.
TEXTS = (
    *("", " ", "Hello  World", "  lead", "trail ", "tab\tx", "new\nline", "``quoted'' don't", "1990, 2,345, and 6,"),
    *("Café CAFÉ cafe\u0301 e\u0301\u0323x", "İstanbul ΣΊΣΥΦΟΣ ß ﬁ ½ ² ™ …", "नमस्ते दुनिया", "漢字かなｶﾞｷﾞ 天安门。"),
    *("한국어는", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "👩‍👩‍👧 emoji 🇩🇪", "a\u200bb\u200dc", "[MASK] [CLS] <pad>"),
    *("x\u00a0y\u3000z", "▁under", "\x00\x01ab", "ก็ไม่", '(a)-b.c"d"–£5€', *SENTENCES),
)


@functools.cache
def trained(texts=SENTENCES * 20, size=290, kind="albert", model_type="unigram"):
    """Content of a `spiece.model`, trained as google-research/albert's README.md says, or of fairseq's file."""
    model = io.BytesIO()
    albert = {
        **{"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]},
        "user_defined_symbols": ["(", ")", '"', "-", ".", "–", "£", "€"],
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=size,
        model_type=model_type,
        **(albert if kind == "albert" else {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}),
        character_coverage=0.99995,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


@functools.cache
def tiny_sentencepiece():
    """A `SentencePieceTokenizer`, lower-cased and without accents."""
    return SentencePieceTokenizer(model_with_ids(trained(), "albert", True, False))


def albert_fast(model, lower_case=True, keep_accents=False):
    """transformers' AlbertTokenizerFast of a `spiece.model` (convert_slow_tokenizer.py, `AlbertConverter`).

    Version 5 also strips white space at the ends (WhitespaceSplit).
    """
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)

    def score(piece):
        return piece.score - 100 * (piece.piece[-1:] == "," and piece.piece[-2:-1].isdigit())

    fast = Tokenizer(models.Unigram([(piece.piece, score(piece)) for piece in proto.pieces], 1))
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [] if keep_accents else [normalizers.NFKD(), normalizers.StripAccents()]
    steps += [normalizers.Lowercase()] if lower_case else []
    steps += [normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)]
    fast.normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])
    fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return fast
