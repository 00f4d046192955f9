"""Work that libraries do for each small graph or pipeline and that no test looks at: a tenth of the tests' CPU time."""

import argparse
import sys


def patch():
    """Patch the libraries that are imported."""
    if tf_stack := sys.modules.get("tensorflow.python.util.tf_stack"):
        # TensorFlow keeps the stack of Python, fifty frames of pytest's, of each operation of a graph.
        stack = tf_stack.extract_stack()
        tf_stack.extract_stack = lambda stacklevel=1: stack
    if userstate := sys.modules.get("apache_beam.transforms.userstate"):
        userstate.get_dofn_specs = _once_for_each_class(userstate.get_dofn_specs)
    if options := sys.modules.get("apache_beam.options.pipeline_options"):
        # argparse makes a formatter for each of Beam's options, which asks for the size of the terminal.
        formatter = argparse.HelpFormatter("beam")
        options._BeamArgumentParser._get_formatter = lambda self: formatter
    if statecache := sys.modules.get("apache_beam.runners.worker.statecache"):
        # Beam walks the globals of all modules to measure a side input for its cache.
        statecache.get_deep_size = lambda *values: 64


def _once_for_each_class(get_dofn_specs):
    """Beam inspects every method of a DoFn some eight times, a sixth of the time of a small pipeline.

    What it finds depends on the class, and on the method that a `Map` or `FlatMap` wraps.
    """
    found = {}

    def specs(dofn):
        key = type(dofn), getattr(vars(dofn).get("process"), "__func__", None)
        if key not in found:
            found[key] = get_dofn_specs(dofn)
        return found[key]

    return specs
