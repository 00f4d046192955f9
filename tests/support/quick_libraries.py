"""Work that libraries do for each small graph or pipeline and that no test looks at: a fifth of the tests' time."""

import argparse
import sys


def patch():
    """Patch the libraries that are imported."""
    if tf_stack := sys.modules.get("tensorflow.python.util.tf_stack"):
        # The stack of Python, fifty frames of pytest's, is kept of each operation of a graph.
        stack = tf_stack.extract_stack()
        tf_stack.extract_stack = lambda stacklevel=1: stack
    if userstate := sys.modules.get("apache_beam.transforms.userstate"):
        userstate.get_dofn_specs = _once_for_each_class(userstate.get_dofn_specs)
    if options := sys.modules.get("apache_beam.options.pipeline_options"):
        # It is made of the size of the terminal for each of Beam's options, and checks their help.
        formatter = argparse.HelpFormatter("beam")
        options._BeamArgumentParser._get_formatter = lambda self: formatter
    if statecache := sys.modules.get("apache_beam.runners.worker.statecache"):
        # The size of a side input is that of what it refers to, without the globals of all modules.
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
