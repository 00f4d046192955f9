"""Rules of word pieces (`unicode_tables.Normalization`): the released vocabularies', and others."""

RULES = {
    "cased": {"lower_case": False},
    "uncased": {"lower_case": True},
    "lowered": {"lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
    "stripped": {"lower_case": False, "strip_accents": True},
}
