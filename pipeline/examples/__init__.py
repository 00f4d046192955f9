"""Example generation without TFX: `bert-tfx examples`."""
