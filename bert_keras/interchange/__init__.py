"""BERT's weights from and to other programs' files: Hugging Face's (`huggingface`) and the original's (`tf1`).

Imports neither TensorFlow nor Keras before something is read or written.
"""
