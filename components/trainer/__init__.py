"""Entry points of TFX's Trainer: they turn TFX's arguments into the library's jobs, and run them."""
