"""Pushed folders of which a test reads the weights alone, and signatures of which it calls a few.

To trace the signatures of a model takes seconds. What they answer: tests/unit/bert_keras/saved_model.
"""

import contextlib
import functools
import os
from unittest import mock

from bert_keras.saved_model import pretrained, task_signatures
from bert_keras.saved_model.saved_model_files import traced


class LazySignature:
    """A signature that is traced when it is used first."""

    def __init__(self, function, specs):
        self._function, self._specs = function, specs
        self.structured_input_signature = tuple(specs), {}

    @functools.cached_property
    def traced(self):
        return traced(self._function, self._specs)

    def __call__(self, *inputs, **named):
        return self.traced(*inputs, **named)

    def __getattr__(self, name):
        return getattr(self.traced, name)


@contextlib.contextmanager
def replaced(**functions):
    """Within it, the exports of pre-trained and of task models call other functions."""
    with contextlib.ExitStack() as patches:
        for module in (pretrained, task_signatures):
            for name in functions.keys() & vars(module).keys():
                patches.enter_context(mock.patch.object(module, name, functions[name]))
        yield


@contextlib.contextmanager
def lazily_traced():
    """Within it, signatures are traced when they are used first."""
    with replaced(traced=LazySignature):
        yield


@contextlib.contextmanager
def without_graph():
    """Within it, a pushed folder has weights, configuration and vocabulary, but no SavedModel.

    Gives a list, which gets the signatures of each export by name, traced when they are used first.
    """
    exported = []

    def save_servable(module, directory, signatures):
        os.makedirs(directory, exist_ok=True)
        exported.append({**signatures})

    nothing = dict.fromkeys(("write_warmup_requests", "_name_example_method"), lambda *of: None)
    with replaced(traced=LazySignature, save_servable=save_servable, **nothing):
        yield exported


@contextlib.contextmanager
def only_served(*names):
    """Within it, the SavedModel of a pre-trained or task model has these signatures alone, the first as the default."""

    def chosen(every):
        def signatures(module):
            made = every(module)
            found = {name: made[name].traced for name in names}
            return {"serving_default": found[names[0]], **found}

        return signatures

    with contextlib.ExitStack() as patches:
        patches.enter_context(replaced(traced=LazySignature, _name_example_method=lambda *of: None))
        for served in (pretrained.ServedBert, task_signatures.ServedTask):
            patches.enter_context(mock.patch.object(served, "signatures", chosen(served.signatures)))
        yield
