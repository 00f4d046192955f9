"""Makes the folders here: tiny vocabularies in released layouts, and what `transformers` reads with them.

PYTHONPATH=. python tests/support/models/golden_vocabularies/make.py     (with torch and transformers)
"""

import io
import json
import shutil
import tempfile
from pathlib import Path

import sentencepiece
import tokenizers
import transformers

HERE = Path(__file__).parent
SENTENCES = (HERE.parent / "sentences.txt").read_text(encoding="utf-8").splitlines()
LINES = (
    *("Hello  World", " lead", "trail ", "tab\tx", "new\nline", "don't 1990, 2,345.", "CAFÉ e\u0301 o\u0308\u0301"),
    *("İz ß ½", "漢字かな天安门。", "한국어는", "x\u00a0y\u3000z", "a" * 40, "emoji 👍🏽", "ก็ไม่ a\u0323\u0307", "ﬁ Ａ"),
    *(
        "def f(x):\n        return  x  # |||IP_ADDRESS|||",
        "\u1112\u1161\u11ab x",
        "[unused1] x",
        "",
        " ",
        *SENTENCES[:6],
    ),
)
PAIRS = tuple(zip(LINES[:4], SENTENCES[:4], strict=True))
CHARACTERS = sorted({c for line in (*LINES, *SENTENCES) for c in line if not c.isspace()})[:160]
WORDS = [*CHARACTERS, *map("##{}".format, CHARACTERS), "the", "hello", "##or", "##ld", "do", "ca", "##fe"]
RULES = "9\t20\nA\t20\nA0\t20\n3000\t20\nFF21\t41\nFB01\t66 69\n65 301\tE9\n"
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
CASED = {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}


def pieces(**ids):
    """A SentencePiece model with a small table of replacements."""
    model, is_plain = io.BytesIO(), "pad_piece" in ids
    options = {"vocab_size": 260, "hard_vocab_limit": False, "minloglevel": 2, "character_coverage": 1.0, **ids}
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text(RULES)
        options |= {"normalization_rule_name": "identity"} if is_plain else {"normalization_rule_tsv": str(rules)}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES * 20), model_writer=model, **options)
    return model.getvalue()


def modern():
    """The content of a `tokenizer.json` as ModernBERT's."""
    fast = tokenizers.Tokenizer(tokenizers.models.BPE())
    fast.normalizer = tokenizers.normalizers.NFC()
    fast.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    fast.train_from_iterator(SENTENCES, trainer)
    added = [tokenizers.AddedToken(t) for t in ("|||IP_ADDRESS|||", *(" " * n for n in range(8, 1, -1)), "[unused1]")]
    fast.add_tokens(added)
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    fast.add_special_tokens([*special, tokenizers.AddedToken("[MASK]", lstrip=True, normalized=False)])
    ends = [(token, fast.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    single, pair = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:0 [SEP]:0"
    fast.post_processor = tokenizers.processors.TemplateProcessing(single=single, pair=pair, special_tokens=ends)
    return fast.to_str()


def text(tokens):
    return "".join(f"{token}\n" for token in tokens)


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FAIRSEQ = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}
DEBERTA = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
DEBERTA |= {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
# `model_type`: files, and settings of the tokenizer.
KINDS = {
    "distilbert": ({"vocab.txt": text([*SPECIAL, *WORDS])}, {"do_lower_case": True}),
    "roberta": ({"vocab.txt": text(["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *WORDS])}, CASED),  # KLUE's
    "mpnet": (
        {"vocab.txt": text(["<s>", "<pad>", "</s>", "<unk>", *SPECIAL, *WORDS, "<mask>"])},
        {"do_lower_case": True, "tokenizer_class": "MPNetTokenizer"},
    ),
    "xlm-roberta": ({"sentencepiece.bpe.model": pieces(**FAIRSEQ)}, {}),
    "camembert": ({"sentencepiece.bpe.model": pieces(**FAIRSEQ)}, {}),
    "deberta-v2": ({"spm.model": pieces(**DEBERTA)}, {"do_lower_case": False, "vocab_type": "spm"}),
    "modernbert": (
        {"tokenizer.json": modern()},
        {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "[MASK]"},
    ),
}

for kind, (files, settings) in KINDS.items():
    folder = HERE / kind
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings) + "\n")
    (folder / "config.json").write_text(json.dumps({"model_type": kind, **SIZES}) + "\n")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ids = [theirs(line, add_special_tokens=False).input_ids for line in LINES]
    masked = [f"Hello {theirs.mask_token} x{theirs.mask_token}"]
    reference = {
        "lines": dict(zip(LINES, ids, strict=True)),
        "pairs": [[*pair, theirs(*pair).input_ids] for pair in PAIRS],
        "masked": {line: theirs(line, add_special_tokens=False).input_ids for line in masked},
    }
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "vocab_size": len(theirs), **SIZES}) + "\n")
    (folder / "ids.json").write_text(json.dumps(reference, separators=(",", ":")) + "\n")
    print(kind, type(theirs).__name__, len(theirs), sum(file.stat().st_size for file in folder.iterdir()))
