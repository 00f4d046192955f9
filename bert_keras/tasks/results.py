"""What a fine-tuning leaves beside its model, in the Trainer's `model_run` artifact, apart from its logs."""

# The official scores by split and name.
SCORES_FILE = "scores.json"
# The report of `bert_keras.tasks.restarts`.
RESTARTS_FILE = "restarts.json"
# Prediction files (`bert_keras.tasks.predictions`), a folder a split.
PREDICTIONS_FOLDER = "predictions"
