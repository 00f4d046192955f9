"""Names of a fine-tuning's files in the Trainer's `model_run` artifact, besides its logs."""

# The official scores by split and name.
SCORES_FILE = "scores.json"
# The report of `bert_keras.finetuning.restarts`.
RESTARTS_FILE = "restarts.json"
# The report of `bert_keras.finetuning.search`, if there was a search.
SEARCH_FILE = "search.json"
# Prediction files (`bert_keras.tasks.submissions.prediction_files`), one folder per split.
PREDICTIONS_FOLDER = "predictions"
