"""Custom TFX stages of the pipeline; README.md lists them with their artifacts."""
