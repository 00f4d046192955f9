"""Search over a grid of trainings: KerasTuner chooses the settings, the training loop trains."""

from __future__ import annotations

import dataclasses
import os

import keras_tuner
from keras_tuner.engine import base_tuner
from keras_tuner.errors import FatalError
from rich.console import Console

from bert_keras.errors import InputError, StageError
from bert_keras.finetuning.fine_tuner import FineTuner
from bert_keras.jobs import FinetuneJob
from bert_keras.tasks.settings import FineTuningConfig, SearchSettings


def search(job: FinetuneJob) -> FineTuningConfig:
    """The best settings of the grid `job.search`; what it does not vary is as in `job.training`.

    Raises:
        InputError: rows, settings and initial checkpoint do not fit each other, or the job needs several workers.
        StageError: no training ended with a score.
    """
    tuner = create_tuner(job, os.path.join(job.training_root, "search"))
    tuner.search()
    assert tuner.best is not None  # `search` has raised
    return tuner.best


def create_tuner(job: FinetuneJob, directory: str) -> GridTuner:
    """The tuner of a job; errors as of `search`.

    Args:
        directory: for KerasTuner's records.
    """
    if job.training.strategy == "multi_worker":
        raise InputError(
            "a search runs in one process, not with training.strategy=multi_worker; search on one machine, then train "
            "on several with --set training.* of what it found"
        )
    return GridTuner(FineTuner.of(job), job.training, job.search, directory)


class GridTuner(base_tuner.BaseTuner):
    """Tuner over all trainings of a grid; the best has the highest first metric of the task on the held-out rows.

    A killed search resumes: each training has a folder with the scores of a finished training or the checkpoints of a
    killed one. KerasTuner's own records of the trials are discarded, because its grid search cannot resume from them
    (1.4.8: the oracle stops at once, or fails). Only the model of the best training is kept.

    Args:
        fine_tuner: rows and initial checkpoint.
        config: the settings outside the grid.
        search: the grid.
        directory: folder of KerasTuner's records.

    Attributes:
        best: the best settings so far.
    """

    def __init__(self, fine_tuner: FineTuner, config: FineTuningConfig, search: SearchSettings, directory: str):
        self.fine_tuner, self.config = fine_tuner, config
        space = keras_tuner.HyperParameters()
        self.points = 1
        for name, values in search.grid.items():
            space.Choice(name, values)
            self.points *= len(values)
        oracle = keras_tuner.oracles.GridSearchOracle(
            objective=keras_tuner.Objective(fine_tuner.task.metrics[0], "max"),
            max_trials=self.points,
            hyperparameters=space,
            # A diverged training does not stop the search.
            max_consecutive_failed_trials=self.points + 1,
        )
        oracle.verbose = 0
        self.best: FineTuningConfig | None = None
        self._best_score = float("-inf")
        super().__init__(oracle, directory=directory, project_name="search", overwrite=True)

    def run_trial(self, trial, *fit_args, **fit_kwargs) -> dict[str, float]:
        """Train and score one point; nan, for a diverged training, is a failed trial for KerasTuner."""
        name, values = self.oracle.objective.name, trial.hyperparameters.values
        point = ", ".join(f"{key} {value:g}" for key, value in values.items())
        config = dataclasses.replace(self.config, **values)
        try:
            score = self.fine_tuner.held_out_scores(config)[name]
        except Exception as error:
            # Otherwise KerasTuner would count it as a failed trial and continue, even after SIGTERM.
            raise FatalError(str(error)) from error
        console = Console(highlight=False, soft_wrap=True)
        console.print(f"search {int(trial.trial_id) + 1}/{self.points}: {point}: {name} {score:.4g}")
        self._keep_the_better(config, score)
        return {name: score}

    def search(self, *fit_args, **fit_kwargs) -> None:
        """Run the remaining trials.

        Raises:
            StageError: no training ended with a score.
            Exception: the error that stopped a training; the same search resumes there.
        """
        try:
            super().search(*fit_args, **fit_kwargs)
        except FatalError as error:
            raise error.__cause__ or error from None
        if self.best is None:
            raise StageError(
                f"none of the {self.points} trainings of the search ended with a score: lower search.learning_rate"
            )

    def search_space_summary(self, extended: bool = False) -> None:
        """Print nothing; the trials print their own lines."""

    def results_summary(self, num_trials: int = 10) -> None:
        """Print nothing; the run's summary has the results."""

    def _keep_the_better(self, config: FineTuningConfig, score: float) -> None:
        if score > self._best_score:
            worse, self.best, self._best_score = self.best, config, score
        else:
            worse = config
        if worse is not None:
            self.fine_tuner.forget_model(worse)
