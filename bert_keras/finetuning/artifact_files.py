"""Names of a fine-tuning's files in the Trainer's `model_run` artifact, besides its logs."""

SCORES_FILE = "scores.json"  # the official scores by split and name
# The reports of `bert_keras.finetuning.restarts` and, if there was a search, of `bert_keras.finetuning.search`.
RESTARTS_FILE, SEARCH_FILE = "restarts.json", "search.json"
# The teacher's official scores on the held-out rows, and its size beside the model's, if there was one.
TEACHER_FILE = "teacher.json"
# Prediction files (`bert_keras.tasks.submissions.prediction_files`), one folder per split.
PREDICTIONS_FOLDER = "predictions"
