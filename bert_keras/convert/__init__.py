"""Conversion from and to other programs' files: Hugging Face's (`huggingface`), keras-hub's (`keras_hub`), the
original's (`tf1`) and this project's own (`bert_tfx`).

`tensor_files` reads files of tensors, `weight_map` is the table of all names of a weight, `architecture` creates the
model for a file, and `weight_copy` reads and writes by the table.

TensorFlow and Keras are imported only on reading or writing.
"""
