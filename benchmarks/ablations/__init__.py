"""The paper's experiments at small scale (docs/ablations.md)."""
