"""Names of a fine-tuning's files in the Trainer's `model_run` artifact, besides its logs."""

# The official scores by split and name.
SCORES_FILE = "scores.json"
# The report of `bert_keras.finetuning.restarts`.
RESTARTS_FILE = "restarts.json"
# The report of `bert_keras.finetuning.search`, if there was a search.
SEARCH_FILE = "search.json"
# The teacher's official scores on the held-out rows, and its size beside the model's, if there was one.
TEACHER_FILE = "teacher.json"
# Prediction files (`bert_keras.tasks.submissions.prediction_files`), one folder per split.
PREDICTIONS_FOLDER = "predictions"
