"""Search over a grid of trainings, for TFX's Tuner: KerasTuner says what is tried, the training loop trains it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import keras_tuner
from keras_tuner.engine import base_tuner
from keras_tuner.errors import FatalError
from rich.console import Console

from bert_keras.errors import InputError, StageError
from bert_keras.tasks.experiment import Experiment, read_experiment
from bert_keras.tasks.settings import FineTuningConfig, SearchSettings


class Search(NamedTuple):
    """What TFX's Tuner wants of a `tuner_fn`, with the names of its `TunerFnResult`, which is not imported here."""

    tuner: base_tuner.BaseTuner
    fit_kwargs: dict[str, Any]


def tuner_fn(fn_args) -> Search:
    """The search over the grid of `fn_args.custom_config["search"]`, fields of `SearchSettings`.

    The rest is as of `bert_keras.finetune.run_fn`; all that is not searched stays as `custom_config["training"]` says.

    Raises:
        InputError: rows, settings and encoder do not fit each other, or it is to run on several workers.
    """
    custom = fn_args.custom_config
    config = FineTuningConfig(**custom["training"])
    if config.strategy == "multi_worker":
        raise InputError(
            "a search runs in one process, not with training.strategy=multi_worker; search on one machine, then train "
            "on several with --set training.* of what it found"
        )
    experiment = read_experiment(fn_args)
    return Search(GridTuner(experiment, config, SearchSettings(**custom["search"]), fn_args.working_dir), {})


class GridTuner(base_tuner.BaseTuner):
    """Tries all trainings of a grid; the best has the highest of the task's first score on the held-out rows.

    A search that was killed goes on where it was: each training has a folder, where a finished one has left its scores
    and a killed one its checkpoints. So KerasTuner's own record of the trials, which its grid search cannot go on from
    (1.4.8: the oracle stops at once, or fails), is begun anew. The model of the best training alone is kept.

    Args:
        experiment: rows and encoder.
        config: the settings that are not searched.
        search: the grid.
        directory: for KerasTuner's records.
    """

    def __init__(self, experiment: Experiment, config: FineTuningConfig, search: SearchSettings, directory: str):
        self.experiment, self.config = experiment, config
        space = keras_tuner.HyperParameters()
        self.points = 1
        for name, values in search.grid.items():
            space.Choice(name, values)
            self.points *= len(values)
        oracle = keras_tuner.oracles.GridSearchOracle(
            objective=keras_tuner.Objective(experiment.task.metrics[0], "max"),
            max_trials=self.points,
            hyperparameters=space,
            # One that diverges says nothing of the next one.
            max_consecutive_failed_trials=self.points + 1,
        )
        oracle.verbose = 0
        self._best: FineTuningConfig | None = None
        self._best_score = float("-inf")
        super().__init__(oracle, directory=directory, project_name="search", overwrite=True)

    def run_trial(self, trial, *fit_args, **fit_kwargs) -> dict[str, float]:
        """Trains and scores what `trial` says; nan, if the training diverges, is a failed trial to KerasTuner."""
        name, values = self.oracle.objective.name, trial.hyperparameters.values
        point = ", ".join(f"{key} {value:g}" for key, value in values.items())
        config = dataclasses.replace(self.config, **values)
        try:
            score = self.experiment.held_out_scores(config)[name]
        except Exception as error:
            # Else KerasTuner would count it as a failed trial and go on, on SIGTERM too.
            raise FatalError(str(error)) from error
        console = Console(highlight=False, soft_wrap=True)
        console.print(f"search {int(trial.trial_id) + 1}/{self.points}: {point}: {name} {score:.4g}")
        self._keep_the_better(config, score)
        return {name: score}

    def search(self, *fit_args, **fit_kwargs) -> None:
        """Tries what was not tried.

        Raises:
            StageError: no training ended with a score.
            Exception: whatever stopped a training; the same search again goes on from there.
        """
        try:
            super().search(*fit_args, **fit_kwargs)
        except FatalError as error:
            raise error.__cause__ or error from None
        if self._best is None:
            raise StageError(
                f"none of the {self.points} trainings of the search ended with a score: lower search.learning_rate"
            )

    def search_space_summary(self, extended: bool = False) -> None:
        """Says nothing; the trials do."""

    def results_summary(self, num_trials: int = 10) -> None:
        """Says nothing; the run's summary does."""

    def _keep_the_better(self, config: FineTuningConfig, score: float) -> None:
        if score > self._best_score:
            worse, self._best, self._best_score = self._best, config, score
        else:
            worse = config
        if worse is not None:
            self.experiment.forget_model(worse)
