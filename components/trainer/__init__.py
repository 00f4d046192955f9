"""Entry points of TFX's Trainer and Tuner: they turn TFX's arguments into the library's jobs, and run them."""
