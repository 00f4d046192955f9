"""Settings of pre-training examples (`ExampleSettings`)."""

import dataclasses
from typing import Annotated, Literal

from bert_keras.data.example_format import LABELLED, ExampleLayout
from bert_keras.data.masking import MaskingSettings, row_predictions
from bert_keras.errors import Rule, Settings, Share

TRAIN, EVAL = "train", "eval"

# Objectives whose instances are two segments of a document; the others have runs of whole sentences.
PAIRS = (*LABELLED, "segment_pair")

_LENGTHS = Rule(
    lambda length: 5 <= length <= 65_536, "from 5 to 65536: [CLS], [SEP], [SEP] and a token for each segment"
)
_PASSES = Rule(lambda passes: 1 <= passes <= 1000, "from 1 to 1000")
_PACKS = Rule(lambda size: 2 <= size <= 255, "from 2 to 255: for one sequence a row, set examples.packing=false")


@dataclasses.dataclass(frozen=True)
class ExampleSettings(Settings, section="examples"):
    """Settings for making pre-training examples; the names are the flags of create_pretraining_data.py.

    Attributes:
        max_seq_length: T, number of tokens of an example, including [CLS] and [SEP].
        dupe_factor: passes over the training documents, each with its own pairs and masks. There is only one pass if
            another one would give the same examples: without pairs and stored masks.
        short_seq_prob: for pairs (`mlm_nsp`, `mlm_sop`, `segment_pair`): probability that, in one pass, a document's
            target length is a random one below T. (SpanBERT's and RoBERTa's code have none for the other objectives.)
        seed: seed of all random choices.
        objective: the objective besides the masked LM.
            `mlm_nsp`: whether a segment follows another or is random (BERT).
            `mlm_sop`: whether two segments are swapped (ALBERT, section 3.1); half of the chunks of a document are. A
            chunk of one sentence gets a random one, with the label of swapped ones, as in
            google-research/albert (create_pretraining_data.py, `create_instances_from_document`).
            `segment_pair`: none; pairs as for `mlm_nsp`, all real: a chunk of a document in two segments. A chunk of
            one sentence is one segment (RoBERTa's SEGMENT-PAIR, section 4.2, without the next-sentence loss).
            `full_sentences`: none; as many sentences as fit, each with a separator after it, crossing documents, with
            another separator between these (RoBERTa, section 4.2; fairseq's break mode `complete`).
            `doc_sentences`: the same within documents.
            `single_sequence`: none; as many sentences of a document as fit, without separators (SpanBERT, section 3.3;
            fairseq's break mode `complete_doc`).
            `left_to_right`: each token from those before it; sequences of `single_sequence`, unmasked (GPT, biLM).
            For the last four, a sentence too long for an example is cut into several; SpanBERT's code drops it.
        cut_sentences: for the last four: whether the beginning of the next sentence fills an example, in place of
            padding; the next example begins with that sentence, whole.
        nsp: for `mlm_nsp`. `reference`: as in the original (create_instances_from_document), where a single remaining
            sentence always gets a random one, so 54 to 79 % are random. `balanced`: as many random as real pairs,
            where documents have more than one sentence; a random segment is always from another document.
        packing: whether short sequences share a row (arXiv 2107.02027).
        max_sequences_per_pack: S, maximum number of sequences in such a row.
        masking: settings of masking.
    """

    max_seq_length: Annotated[int, _LENGTHS] = 128
    dupe_factor: Annotated[int, _PASSES] = 5
    short_seq_prob: Share = 0.1
    seed: int = 12345
    objective: Literal[
        "mlm_nsp", "mlm_sop", "segment_pair", "full_sentences", "doc_sentences", "single_sequence", "left_to_right"
    ] = "mlm_nsp"
    cut_sentences: bool = False
    nsp: Literal["reference", "balanced"] = "reference"
    packing: bool = False
    max_sequences_per_pack: Annotated[int, _PACKS] = 3
    masking: MaskingSettings = dataclasses.field(default_factory=MaskingSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.masking.max_predictions_per_seq > self.max_seq_length:
            raise ValueError(
                f"examples.masking.max_predictions_per_seq is {self.masking.max_predictions_per_seq}; it must be at "
                f"most examples.max_seq_length, {self.max_seq_length}"
            )
        if self.nsp == "balanced" and self.objective != "mlm_nsp":
            raise ValueError(
                f"examples.nsp is 'balanced', but examples.objective {self.objective!r} has no next sentences: "
                "set examples.objective=mlm_nsp or examples.nsp=reference"
            )
        if self.cut_sentences and self.objective in PAIRS:
            raise ValueError(
                f"examples.cut_sentences is true, but examples of examples.objective {self.objective!r} are pairs of "
                "whole sentences: set examples.cut_sentences=false or examples.objective=full_sentences"
            )
        if self.packing and self.objective == "full_sentences":
            raise ValueError(
                "examples.packing is true, but rows of examples.objective 'full_sentences' are full already: "
                "set examples.packing=false or examples.objective=doc_sentences"
            )
        if self.masking.when == "dynamic" and self.objective == "left_to_right":
            raise ValueError(
                "examples.masking.when is 'dynamic', but nothing is masked for examples.objective 'left_to_right': "
                "set examples.masking.when=static"
            )

    @property
    def max_num_tokens(self) -> int:
        """Maximum number of text tokens of a pair: all but [CLS] and two [SEP]."""
        return self.max_seq_length - 3

    @property
    def layout(self) -> ExampleLayout:
        """Features of the examples."""
        sequences = self.max_sequences_per_pack if self.packing else 1
        predictions = self.masking.max_predictions_per_seq
        if self.packing:
            predictions = row_predictions(self.max_seq_length, sequences, self.masking)
        return ExampleLayout(self.objective, self.max_seq_length, predictions, sequences, self.masking.when)

    def masks(self, split: str) -> bool:
        """Return whether the examples of a split are stored with masks."""
        return self.objective != "left_to_right" and (self.masking.when == "static" or split == EVAL)

    def passes(self, split: str) -> int:
        """Number of passes over the documents of a split; one for evaluation, which needs no text twice."""
        differ = self.objective in PAIRS or self.masks(split)
        return self.dupe_factor if split == TRAIN and differ else 1
