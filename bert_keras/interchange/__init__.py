"""Weights from and to other programs' files: Hugging Face's (`huggingface`), keras-hub's (`presets`), the original's
(`tf1`) and the pipeline's own (`pushed`).

`names` is the one table of what each calls a weight, `architecture` says which model of ours has it, `transfer` reads
and writes by the table, and `vocabularies` knows the tokenizers' files.

Imports neither TensorFlow nor Keras before something is read or written.
"""
