"""The one way from a request to an answer, for gRPC and REST alike: Predict, and the calls on tf.Examples."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serving import calls
from serving.batching import BatchingSettings
from serving.classify import ExampleCalls
from serving.guard import Guard
from serving.model_manager import ModelManager, Target
from serving.protos import ModelSpec, SignatureDef
from serving.request_queue import Admission, Call, QueueSettings, Turns
from serving.servable import DEFAULT_SIGNATURE, Servable

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Answer:
    """What a servable answered.

    Attributes:
        model, version: of the servable; it alone computed the answer.
        signature_name: in full.
        outputs: by name, as far as they were wanted.
    """

    model: str
    version: int
    signature_name: str
    outputs: Mapping[str, np.ndarray]


class Inference:
    """Answers requests with the models of `models`, within `queue`'s bounds; safe to call from any thread.

    Attributes:
        guard: whose limits every request is held to, before it waits or computes.
    """

    def __init__(self, models: ModelManager, queue: QueueSettings, batching: BatchingSettings | None, guard: Guard):
        self.models = models
        self.guard = guard
        self._admission = Admission(queue.max_requests)
        self._alone = Turns(queue.max_running)
        # One batch computes in each batch thread while the next one gathers.
        self._batched = Turns(2 * batching.num_batch_threads * batching.max_batch_size if batching else 1)

    def predict(
        self,
        target: Target,
        signature_name: str,
        read_inputs: Callable[[SignatureDef], Arrays],
        call: Call,
        output_filter: Sequence[str] = (),
    ) -> Answer:
        """Answers one request.

        Args:
            target: the model and its version.
            signature_name: "" is serving_default.
            read_inputs: the request's arrays, in the dtypes of the signature.
            call: how long there is.
            output_filter: the outputs wanted; none is all.

        Raises:
            ServingError: NOT_FOUND, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED,
                or the graph's own.
        """
        with self._admission.entered():
            # Held until it has answered, whatever is swapped meanwhile.
            servable = self.find(target, signature_name)
            inputs = read_inputs(servable.signature(signature_name))
            outputs = self._run(servable, signature_name, inputs, call, output_filter)
        return Answer(servable.name, servable.version, signature_name or DEFAULT_SIGNATURE, outputs)

    @contextlib.contextmanager
    def on_examples(self, target_of: Callable[[ModelSpec], Target], call: Call) -> Iterator[ExampleCalls]:
        """Admits one Classify, Regress or MultiInference; errors as of `predict`."""

        def get(spec: ModelSpec) -> Servable:
            return self.find(target_of(spec), spec.signature_name)

        def run(servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
            return self._run(servable, signature_name, inputs, call)

        with self._admission.entered():
            yield ExampleCalls(get, run)

    def find(self, target: Target, signature_name: str = "") -> Servable:
        """The servable that a request means, noted in the request's record; NOT_FOUND, INVALID_ARGUMENT."""
        servable = self.models.get(target)
        calls.describe(servable, signature_name)
        return servable

    def _run(
        self,
        servable: Servable,
        signature_name: str,
        inputs: Mapping[str, np.ndarray],
        call: Call,
        output_filter: Sequence[str] = (),
    ) -> Arrays:
        self.guard.check(servable, signature_name, inputs)
        work = servable.prepare(signature_name, inputs, output_filter)
        with (self._batched if work.batched else self._alone).taken(call):
            return work.run()

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn now."""
        return self._alone.waiting + self._batched.waiting

    def drain(self, seconds: float) -> bool:
        """New requests are UNAVAILABLE from now on; False if some are still under way after `seconds`."""
        return self._admission.close(seconds)
