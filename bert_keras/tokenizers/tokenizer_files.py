"""Settings of a Hugging Face folder's tokenizer: each field of its files is followed, harmless, or refused by name.

Read are `tokenizer_config.json`, `tokenizer.json`, `special_tokens_map.json` and the class in `config.json`, by the
rules of `transformers` 4.57 and 5.24: the classes below take their rules from `tokenizer_config.json`, whatever
`tokenizer.json` says, and a class without rules of its own takes all from `tokenizer.json`.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from bert_keras.errors import InputError
from bert_keras.files import read_json
from bert_keras.tokenizers.fast_tokenizer import fast_tokenizer
from bert_keras.tokenizers.protocol import BYTE_BPE, FORMATS, SENTENCEPIECE, UNUSED, WORDPIECE, SequenceFormat
from bert_keras.tokenizers.unicode_tables import Normalization
from bert_keras.tokenizers.vocabulary_files import (
    BPE_VOCABULARY_FILE,
    FAST_TOKENIZER_FILE,
    LENGTHS,
    SENTENCEPIECE_FILES,
    TOKENIZER_FILE,
    UNIGRAM_RULES,
    Vocabulary,
    read_settings,
)
from bert_keras.tokenizers.wordpiece import MAX_CHARS_PER_WORD, BertTokenizer

_REMEDY = "no tokenizer here does that: remove the vocabulary's files to convert the weights alone"
_MAP_FILE = "special_tokens_map.json"
_CLASS = "tokenizer_class"
# Classes without rules of their own; a name may end with "Fast".
_ANY_RULES = ("PreTrainedTokenizer", "TokenizersBackend")


class _Kind(NamedTuple):
    """An algorithm here."""

    name: str
    classes: tuple[str, ...]  # of `transformers`, whose rules are followed
    model: dict[str, tuple[Any, ...]]  # supported values of the model's fields, as in `_SUPPORTED`
    normalizers: tuple[str, ...] = ()  # supported steps, but for those of word pieces (`_wordpiece_rules`)
    pre_tokenizers: tuple[str, ...] = ()


_KINDS = {
    "WordPiece": _Kind(
        WORDPIECE,
        ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer"),
        {"unk_token": ("[UNK]",), "continuing_subword_prefix": ("##",)},
    ),
    "BPE": _Kind(
        BYTE_BPE,
        ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer"),
        {
            **{"dropout": (0.0, 0), "continuing_subword_prefix": ("",), "end_of_word_suffix": ("",)},
            **{"byte_fallback": (False,), "ignore_merges": (False,)},
        },
        ("NFC",),
        ("ByteLevel",),
    ),
    "Unigram": _Kind(
        SENTENCEPIECE,
        ("AlbertTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer", "DebertaV2Tokenizer"),
        {"byte_fallback": (False,)},
        ("Replace", "NFKD", "NFC", "StripAccents", "Lowercase", "Precompiled", "Strip"),
        ("WhitespaceSplit", "Metaspace"),
    ),
}
# Rules of WordPiece: name in `tokenizer_config.json` -> field of `Normalization`, name in `tokenizer.json`.
_RULES = {
    "do_lower_case": ("lower_case", "lowercase"),
    "strip_accents": ("strip_accents", "strip_accents"),
    "tokenize_chinese_chars": ("tokenize_chinese_chars", "handle_chinese_chars"),
}
# Supported values of fields whose other values change ids; None is always one.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys((*_RULES, "keep_accents", "add_prefix_space"), (True, False)),
    **dict.fromkeys(("do_basic_tokenize", "do_word_tokenize", "do_subword_tokenize", "clean_text"), (True,)),
    "remove_space": (True,),
    "never_split": ([],),
    "word_tokenizer_type": (),
    "subword_tokenizer_type": ("wordpiece",),
    "wordpieces_prefix": ("##",),
    "sp_model_kwargs": ({},),
    "truncation_side": ("right",),
    "auto_map": (),
    "split_by_punct": (False,),
    "vocab_type": ("spm",),
}
_ADDED = ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens", "bos_token", "eos_token")
# Fields that change nothing in the ids of a text.
_HARMLESS = """
    backend chat_template clean_up_tokenization_spaces device_map errors fix_mistral_regex from_slow
    full_tokenizer_file init_inputs is_local jumanpp_kwargs legacy local_files_only max_length mecab_kwargs merges_file
    model_input_names model_specific_special_tokens name_or_path pad_to_multiple_of pad_token_type_id padding
    padding_side processor_class return_token_type_ids special_tokens_map_file split_special_tokens spm_file stride
    sudachi_kwargs tokenizer_file transformers_version trim_offsets truncation truncation_strategy unk_id use_fast
    vocab_file vocab_size
"""
# What a `tokenizer.json` of SentencePiece replaces: quotation marks of ALBERT, white space.
_REPLACED = ({"String": "``"}, {"String": "''"}, {"Regex": " {2,}"}, {"Regex": r"\s{2,}|[\n\r\t]"})


def read_rules(directory: str, vocabulary: Vocabulary) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read the rules of a folder's WordPiece vocabulary, and remarks on rare texts that get other ids.

    Returns the fields of `Normalization` that the folder gives: without `lower_case` if it does not say it, none of
    another algorithm. InputError: a field asks for what no tokenizer here does, or two files contradict each other.
    """
    algorithm, kind = next((name, row) for name, row in _KINDS.items() if row.name == vocabulary.algorithm)
    format_ = vocabulary.known_format
    paths = [os.path.join(directory, name) for name in (TOKENIZER_FILE, FAST_TOKENIZER_FILE, _MAP_FILE)]
    settings, fast, names = (read_json(path) if os.path.exists(path) else {} for path in paths)
    remarks = _check_settings(paths[0], settings, format_)
    path, class_ = paths[0], settings.get(_CLASS)
    if class_ is None:
        path = os.path.join(directory, "config.json")
        class_ = read_json(path).get(_CLASS)
    any_rules = str(class_).removesuffix("Fast") in _ANY_RULES
    if class_ is not None and not any_rules and str(class_).removesuffix("Fast") not in kind.classes:
        refuse(path, _CLASS, class_, f"{', '.join(kind.classes)} for {algorithm}")
    _check_names(paths[2], names, format_)
    rules: dict[str, Any] = {}
    try:
        remarks += _check_fast(paths[1], fast, algorithm, vocabulary) if fast else ()
        if algorithm == "WordPiece":
            rules = _wordpiece_rules(paths, settings, fast, vocabulary, any_rules)
        elif algorithm == "Unigram" and fast:
            # Without a SentencePiece file beside it `tokenizer.json` is what was read.
            is_alone = not any(os.path.exists(os.path.join(directory, name)) for name in SENTENCEPIECE_FILES)
            if not is_alone or not (any_rules or format_ == FORMATS["roberta"]):
                _check_unigram(paths, settings, fast, format_)
    except InputError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, StopIteration) as error:
        raise InputError(f"{paths[1]} is not what `tokenizers` writes ({error!r}); copy it again") from error
    added = [text for fields in (settings, names) for name in _ADDED for text in _content(fields.get(name))]
    added += [*(token["content"] for token in fast.get("added_tokens") or ())]
    # SentencePiece keeps its own user-defined pieces whole.
    known = {*format_.tokens.values(), *vocabulary.added, *(vocabulary.tokens if algorithm == "Unigram" else ())}
    if others := [t for t in dict.fromkeys(added) if t not in known and not UNUSED.fullmatch(t)]:
        remarks += (
            f"{directory}: transformers finds {', '.join(others[:5])}{', ...' if others[5:] else ''} in a text before "
            "it is tokenized (added tokens); here they are text like other text",
        )
    if settings.get("add_prefix_space") is False and algorithm == "Unigram":
        refuse(paths[0], "add_prefix_space", False, "true")
    if settings.get("add_prefix_space") and algorithm == "BPE":
        remarks += (f"the tokenizer of {directory} adds a space before every text; here none is added",)
    return rules, remarks


def gives_segments(directory: str) -> bool:
    """Return whether the second text of a pair has segment id 1; InputError: `tokenizer.json` gives other ids."""
    names, path = read_settings(directory).get("model_input_names"), os.path.join(directory, FAST_TOKENIZER_FILE)
    ids = [1]
    for step in _steps(read_json(path).get("post_processor") if os.path.exists(path) else None, "processors"):
        if step["type"] == "TemplateProcessing":
            ids = [part["type_id"] for parts in step["pair"] for part in parts.values()]
            if ids not in ([0] * len(ids), [0] * (len(ids) - 2) + [1, 1]):
                refuse(path, "post_processor's type_id", ids, "0 for the first text, 0 or 1 for the second")
    return (names is None or "token_type_ids" in names) and ids[-1] == 1


def refuse(path: str, field: str, value: Any, supported: str, remedy: str = _REMEDY) -> NoReturn:
    """Raise InputError for the value of a field."""
    shown = json.dumps(value, ensure_ascii=False)
    raise InputError(f"{path}: {field} is {shown:.100}; supported: {supported}; {remedy}")


def check_fields(
    path: str,
    fields: Mapping[str, Any],
    supported: Mapping[str, tuple[Any, ...]],
    before: str = "",
    remedy: str = _REMEDY,
) -> None:
    """Raise InputError, with `before` before its name, for a field whose value is neither None nor a supported one."""
    for name, values in supported.items():
        value = fields.get(name)
        if value is not None and not any(value == known and type(value) is type(known) for known in values):
            refuse(path, before + name, value, " or ".join(map(json.dumps, values)) or "none", remedy)


def unknown_fields(path: str, fields: Mapping[str, Any], listed: Collection[str]) -> tuple[str, ...]:
    """A remark on the fields that are not listed; internal ones begin with "_"."""
    unknown = [name for name in fields if name not in listed and not name.startswith("_")]
    return (f"{path}: not known and not read: {', '.join(unknown)}",) if unknown else ()


def _check_settings(path: str, settings: dict[str, Any], format_: SequenceFormat) -> tuple[str, ...]:
    """Check `tokenizer_config.json`; return remarks on fields that are in no list."""
    never = settings.get("never_split") or []
    if isinstance(never, list) and set(never) <= set(format_.tokens.values()):
        settings = {**settings, "never_split": []}
    check_fields(path, settings, _SUPPORTED)
    _check_names(path, settings, format_)
    listed = {*_SUPPORTED, *_ADDED, *_HARMLESS.split(), *LENGTHS, _CLASS, *(f"{name}_token" for name in format_.tokens)}
    return unknown_fields(path, settings, listed)


def _check_names(path: str, fields: dict[str, Any], format_: SequenceFormat) -> None:
    for name, token in format_.tokens.items():
        for content in _content(fields.get(f"{name}_token")):
            if content != token:
                refuse(path, f"{name}_token", content, json.dumps(token))


def _content(value: Any) -> Iterator[str]:
    """The texts of tokens: each is a text or an object with `content`, alone, in a list, or in an object by its id."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and "content" in value:
        yield value["content"]
    elif isinstance(value, (dict, list)):
        for token in value.values() if isinstance(value, dict) else value:
            yield from _content(token)


def _steps(fields: Mapping[str, Any] | None, inside: str) -> list[dict[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or post-processor; one alone is one step."""
    if not fields:
        return []
    return list(fields[inside]) if fields.get("type") == "Sequence" else [dict(fields)]


def _check_fast(path: str, fast: dict[str, Any], algorithm: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Check what `tokenizer.json` says beside the normalizer of word pieces."""
    kind, model = _KINDS[algorithm], fast.get("model") or {}
    if model.get("type", algorithm) != algorithm:
        refuse(path, "model.type", model["type"], f"{algorithm}, as the files beside it")
    check_fields(path, model, kind.model, "model.")
    if model.get("max_input_chars_per_word", 100) < 100:
        refuse(path, "model.max_input_chars_per_word", model["max_input_chars_per_word"], "100 or more")
    check_fields(path, fast.get("truncation") or {}, {"direction": ("Right",)}, "truncation.")
    words = model.get("vocab") or {}
    ids = words.items() if isinstance(words, dict) else ((token, i) for i, (token, *_) in enumerate(words))
    for token, i in ids:
        if [known.strip() for known in vocabulary.tokens[i : i + 1]] != [token.strip()]:
            raise InputError(
                f"{path}: its token {i} is {token!r}, which it is not in the vocabulary beside it; keep one"
            )
    merges = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model.get("merges") or ()]
    if algorithm == "BPE" and merges != vocabulary.merges:
        raise InputError(f"{path}: its merges are not those of the file beside it; keep one of them")
    _check_post_processor(path, fast, vocabulary.known_format)
    if algorithm == "WordPiece":
        if (most := model.get("max_input_chars_per_word", 100)) <= MAX_CHARS_PER_WORD:
            return ()
        return (f"{path}: words of up to {most} characters have tokens there; here up to {MAX_CHARS_PER_WORD}",)
    if algorithm == "BPE" and fast.get("normalizer") and not vocabulary.nfc:
        refuse(path, "normalizer", fast["normalizer"], f"none, beside {BPE_VOCABULARY_FILE}")
    for step in _steps(fast.get("normalizer"), "normalizers"):
        if step["type"] not in kind.normalizers or step.get("pattern", _REPLACED[0]) not in _REPLACED:
            refuse(path, "normalizer", step, ", ".join(kind.normalizers))
    for step in _steps(fast.get("pre_tokenizer"), "pretokenizers"):
        if step["type"] not in kind.pre_tokenizers:
            refuse(path, "pre_tokenizer", step, ", ".join(kind.pre_tokenizers))
        check_fields(path, step, {"use_regex": (True,), "split": (True,), "replacement": ("▁",)}, f"{step['type']}.")
        if algorithm == "Unigram":
            check_fields(path, step, {"prepend_scheme": ("always",), "add_prefix_space": (True,)}, "Metaspace.")
        elif step.get("add_prefix_space"):
            return (f"{path}: adds a space before every text; here none is added",)
    return ()


def _check_post_processor(path: str, fast: dict[str, Any], format_: SequenceFormat) -> None:
    cls, sep, between = format_.cls, format_.sep, format_.pair_separators
    template: dict[str, Any] = {"single": [cls, "A", sep], "pair": [cls, "A", *[sep] * between, "B", sep]}
    written: dict[str, Any]
    for step in _steps(fast.get("post_processor"), "processors"):
        if step["type"] == "TemplateProcessing":
            written = {name: [next(iter(part.values()))["id"] for part in step.get(name) or ()] for name in template}
        elif step["type"] == ("RobertaProcessing" if between == 2 else "BertProcessing"):
            written = {**template, "cls": step["cls"][0], "sep": step["sep"][0]}
            template |= {"cls": cls, "sep": sep}
        elif step["type"] == "ByteLevel":
            continue
        else:
            written = {"type": step["type"]}
        if written != template:
            refuse(path, "post_processor", written, " ".join(template["pair"]))
        return
    if "post_processor" in fast:
        refuse(path, "post_processor", fast["post_processor"], " ".join(template["pair"]))


def _wordpiece_rules(
    paths: list[str], settings: dict[str, Any], fast: dict[str, Any], vocabulary: Vocabulary, any_rules: bool
) -> dict[str, Any]:
    said = {ours: settings[name] for name, (ours, _) in _RULES.items() if settings.get(name) is not None}
    if "normalizer" not in fast:
        return said
    steps = _steps(fast.get("normalizer"), "normalizers")
    if [step["type"] for step in steps] not in (["BertNormalizer"], ["Lowercase", "BertNormalizer"]):
        rules = {"lower_case": True, **said}
        tokenizer = BertTokenizer(vocabulary.tokens, format_=vocabulary.known_format, **rules)
        ours = json.loads(fast_tokenizer(tokenizer).to_str())
        for part, usual in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer")):
            if ours[part] != fast.get(part):
                refuse(paths[1], part, fast.get(part), usual)
        return said
    check_fields(paths[1], steps[-1], {"clean_text": (True,)}, "normalizer.")
    if [step["type"] for step in _steps(fast.get("pre_tokenizer"), "pretokenizers")] != ["BertPreTokenizer"]:
        refuse(paths[1], "pre_tokenizer", fast.get("pre_tokenizer"), "BertPreTokenizer")
    theirs = {ours: steps[-1][name] for ours, name in _RULES.values() if steps[-1].get(name) is not None}
    if len(steps) > 1:
        theirs |= {"lower_case": True, "strip_accents": theirs.get("strip_accents", theirs.get("lower_case"))}
    # `transformers` lower-cases where a file does not say it.
    theirs, followed = ({"lower_case": True, **rules} for rules in (theirs, said))
    if any_rules or Normalization(**followed) == Normalization(**theirs):
        return theirs
    if "lower_case" not in said and Normalization(**{**theirs, **said}) == Normalization(**theirs):
        return said
    _contradiction(paths, Normalization(**theirs).fields, Normalization(**followed).fields)


def _contradiction(paths: list[str], theirs: Mapping[str, Any], said: Mapping[str, Any]) -> NoReturn:
    first, second = (", ".join(f"{name}={value}" for name, value in rules.items()) for rules in (theirs, said))
    raise InputError(
        f"{paths[1]}: its normalizer has {first}, but {TOKENIZER_FILE} beside it {second}, which transformers follows; "
        "make both say how the model was trained"
    )


def _check_unigram(paths: list[str], settings: dict[str, Any], fast: dict[str, Any], format_: SequenceFormat) -> None:
    steps = [step["type"] for step in _steps(fast.get("normalizer"), "normalizers")]
    is_albert = format_ == FORMATS["albert"]
    said = dict(zip(UNIGRAM_RULES, (is_albert, not is_albert), strict=True))
    theirs = dict(zip(UNIGRAM_RULES, ("Lowercase" in steps, "StripAccents" not in steps), strict=True))
    if format_ != FORMATS["roberta"]:
        said |= {name: settings[name] for name in said if settings.get(name) is not None}
    elif theirs != said:  # XLM-RoBERTa's and CamemBERT's classes have no rules
        refuse(paths[1], "normalizer", steps, "no Lowercase, StripAccents beside a SentencePiece file")
    if theirs != said:
        _contradiction(paths, theirs, said)
