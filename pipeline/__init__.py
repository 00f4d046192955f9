"""Wiring: recipes, the TFX pipeline, the gate, the command line. No Beam transforms and no maths."""
