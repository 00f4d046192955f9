"""Rules of word pieces (`unicode_tables.Normalization`): the released vocabularies', and others."""

import unicodedata

RULES = {
    "cased": {"lower_case": False},
    "uncased": {"lower_case": True},
    "lowered": {"lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
    "stripped": {"lower_case": False, "strip_accents": True},
}


def in_contexts(char, rules):
    """Words with a character: inside a word; before, after and around a sigma; between two marks that NFD exchanges.

    Of the 93,000 ideographs, which have neither case nor marks, only some are in more than one word.
    """
    if not any(rules.values()) or (unicodedata.name(char, "").startswith("CJK UNIFIED") and ord(char) % 97):
        return f"a{char}b"
    return f"a{char}b {char}Σ AΣ{char}A x\U0001d16d{char}\u1b44 A{char}Σ{char}"
