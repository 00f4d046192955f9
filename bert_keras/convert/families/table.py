"""The families of encoders that are known here."""

from bert_keras.convert.families.albert import ALBERT
from bert_keras.convert.families.bert import BERT, ELECTRA
from bert_keras.convert.families.deberta_v2 import DEBERTA_V2
from bert_keras.convert.families.distilbert import DISTILBERT
from bert_keras.convert.families.family import Family
from bert_keras.convert.families.modernbert import MODERNBERT
from bert_keras.convert.families.roberta import CAMEMBERT, MPNET, ROBERTA, XLM_ROBERTA
from bert_keras.errors import InputError
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, check_order
from bert_keras.tokenizers.protocol import SENTENCEPIECE, TITLES, WORDPIECE, Tokenizer

# ELMo's, and vectors of tokens, are known to no other program.
_BILM = Family(name="bilm", title="biLM", algorithms=(WORDPIECE, SENTENCEPIECE))
_STATIC = Family(name="static", title="static model", algorithms=tuple(TITLES), heads=BERT.heads)
_ALL = (
    *(BERT, ROBERTA, ELECTRA, MODERNBERT, ALBERT, DISTILBERT, XLM_ROBERTA, CAMEMBERT, MPNET, DEBERTA_V2),
    *(_BILM, _STATIC),
)
FAMILIES = {family.name: family for family in _ALL}


def check_algorithm(name: str, tokenizer: Tokenizer, where: str) -> None:
    """Raise InputError, naming `where`, if a family's models have no such tokenizer, or its merges are out of order."""
    family = FAMILIES[name]
    if tokenizer.algorithm not in family.algorithms:
        raise InputError(
            f"{where}: is a {family.title} with a vocabulary of {TITLES[tokenizer.algorithm]}, but it must be of "
            f"{' or '.join(TITLES[algorithm] for algorithm in family.algorithms)}; give the vocabulary that it was "
            "trained with"
        )
    if isinstance(tokenizer, ByteBpeTokenizer):
        try:
            check_order(tokenizer.merges)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from error
