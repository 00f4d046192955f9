"""BERT as a Keras 3 library: tokenizer, model, masked-LM / next-sentence training, export.

Imports neither TFX nor Beam (`pretrain.run_fn`, the Trainer's entry point, takes TFX's arguments as they come).
"""
