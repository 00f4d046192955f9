"""Record small random models as TensorFlow's programs write them, with their outputs; not part of any test run.

uv pip install transformers==4.46.3 tensorflow-cpu==2.15.1 tf-keras==2.15.1 safetensors 'numpy<2'
uv pip install --no-deps tf-models-official==2.15.0 gin-config
python tests/unit/bert_keras/convert/golden_tensorflow/make.py tests/unit/bert_keras/convert/golden_tensorflow/models

(Python 3.11.) The archive has a folder for each, with `outputs.npz`: what encoder and pre-training heads make of `IDS`.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
import transformers
from official.legacy.bert import configs
from official.modeling.tf_utils import get_activation
from official.nlp.modeling import layers, models
from official.nlp.tools import export_tfhub_lib

IDS = np.array([[2, 5, 9, 11, 7, 3]], "int32")
SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
}
DISTILBERT = {"vocab_size": 40, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 12}
ROBERTA = {**SIZES, "max_position_embeddings": 14, "type_vocab_size": 1}
# Folder -> class, sizes, arguments of `save_pretrained`.
CLASSES = {
    "bert-classifier": ("BertForSequenceClassification", SIZES, {}),
    "bert-pretraining": ("BertForPreTraining", SIZES, {"max_shard_size": "9KB"}),
    "bert-tagger-safetensors": ("BertForTokenClassification", SIZES, {"safe_serialization": True}),
    "roberta-spans": ("RobertaForQuestionAnswering", ROBERTA, {}),
    "albert-pretraining": ("AlbertForPreTraining", {**SIZES, "embedding_size": 8}, {}),
    "electra-tagger": ("ElectraForTokenClassification", {**SIZES, "embedding_size": 8}, {}),
    "distilbert-classifier": ("DistilBertForSequenceClassification", DISTILBERT, {}),
}


def randomize(model):
    """Give a model random weights of few bits, which compress well."""
    generator = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(np.round(generator.normal(0, 0.2, weight.shape) * 32) / 32)


def write_transformers(folder, name, sizes, arguments):
    config = getattr(transformers, name.partition("For")[0] + "Config")(**sizes)
    model = getattr(transformers, f"TF{name}")(config)
    model(IDS)
    randomize(model)
    model.save_pretrained(folder, **arguments)
    outputs = {"encoder": getattr(model, model.base_model_prefix)(IDS)[0]}
    if "PreTraining" in name:
        outputs["mlm"], outputs["nsp"] = model(IDS)[:2]
    np.savez(folder / "outputs.npz", **outputs)


def write_model_garden(folder):
    """A pre-training checkpoint with its optimizer, and a SavedModel as TF Hub has them."""
    config = configs.BertConfig(**SIZES)
    encoder = export_tfhub_lib.get_bert_encoder(config)
    head = layers.ClassificationHead(16, 2, name="next_sentence")
    model = models.BertPretrainerV2(
        encoder, mlm_activation=get_activation(config.hidden_act), classification_heads=[head], name="bert"
    )
    model(model.inputs)
    randomize(model)
    optimizer = tf.keras.optimizers.legacy.Adam()
    optimizer._create_all_weights(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, **model.checkpoint_items)
    path = checkpoint.save(str(folder / "model-garden" / "ckpt"))
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("".join(f"{token}\n" for token in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *range(35)]))
    export_tfhub_lib.export_model(
        str(folder / "tf-hub"),
        bert_config=config,
        model_checkpoint_path=path,
        with_mlm=True,
        copy_pooler_dense_to_encoder=True,
        vocab_file=str(vocabulary),
        do_lower_case=True,
    )
    vocabulary.unlink()
    inputs = {"input_word_ids": IDS, "input_mask": np.ones_like(IDS), "input_type_ids": np.zeros_like(IDS)}
    results = model({**inputs, "masked_lm_positions": np.arange(6)[None]})
    outputs = {"encoder": results["sequence_output"], "mlm": results["mlm_logits"]}
    np.savez(folder / "tf-hub" / "outputs.npz", **outputs)
    np.savez(folder / "model-garden" / "outputs.npz", nsp=results["next_sentence"], **outputs)
    # Large, and not read.
    (folder / "tf-hub" / "saved_model.pb").write_bytes(b"")
    (folder / "tf-hub" / "keras_metadata.pb").unlink()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for name, (class_name, sizes, arguments) in CLASSES.items():
            write_transformers(Path(temporary) / name, class_name, sizes, arguments)
        write_model_garden(Path(temporary))
        shutil.make_archive(sys.argv[1], "xztar", temporary)
