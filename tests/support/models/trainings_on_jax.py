"""Small trainings on JAX, in a process of their own: python -m ... EXAMPLES (DIRECTORY CHANGES)...

CHANGES are JSON: fields of `TrainingConfig`; `model_dropout` false: a model without dropout; `taught` true: one with a
teacher; `killed_at`: the process kills itself when it has done that step. The environment variable DEVICES is the
number of virtual devices.
"""

import json
import os
import signal
import sys
import types
from pathlib import Path

from tests.support.processes import FAST_TO_COMPILE

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={os.environ['DEVICES']} {FAST_TO_COMPILE}"

from bert_keras.training.backends.on_jax.steps import JaxSteps
from tests.support.models.small_training import MODEL, QUIET, loop


def main(examples: str, *pairs: str) -> None:
    for directory, given in zip(pairs[::2], pairs[1::2], strict=True):
        changes = json.loads(given)
        model = MODEL if changes.pop("model_dropout", True) else QUIET
        killed_at = changes.pop("killed_at", None)
        calls = JaxSteps.__call__

        def killed(steps, batches, count, stop=False, *, calls=calls, killed_at=killed_at):
            if killed_at is not None and steps.step >= killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return calls(steps, batches, count, stop)

        JaxSteps.__call__ = killed
        loop(types.SimpleNamespace(dir=examples), Path(directory), model, backend="jax", **changes).run()
        JaxSteps.__call__ = calls
    assert "tensorflow" not in sys.modules


if __name__ == "__main__":
    main(*sys.argv[1:])
