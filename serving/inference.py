"""The one way from a request to an answer, for gRPC and REST alike: Predict, and whatever is made of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serving.batching import BatchingSettings
from serving.model_manager import ModelManager, Target
from serving.protos import SignatureDef
from serving.request_queue import Admission, Call, QueueSettings, Turns
from serving.servable import DEFAULT_SIGNATURE, Work

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
        checks: called with each request's `Work` before it waits or computes; what one raises is the answer. Limits
            on batch or text length go here.
    """

    def __init__(self, models: ModelManager, queue: QueueSettings, batching: BatchingSettings | None):
        self.models = models
        self.checks: list[Callable[[Work], None]] = []
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
            servable = self.models.get(target)
            inputs = read_inputs(servable.signature(signature_name))
            work = servable.prepare(signature_name, inputs, output_filter)
            for check in self.checks:
                check(work)
            with (self._batched if work.batched else self._alone).taken(call):
                outputs = work.run()
        return Answer(servable.name, servable.version, signature_name or DEFAULT_SIGNATURE, outputs)

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn now."""
        return self._alone.waiting + self._batched.waiting

    def drain(self, seconds: float) -> bool:
        """New requests are UNAVAILABLE from now on; False if some are still under way after `seconds`."""
        return self._admission.close(seconds)
