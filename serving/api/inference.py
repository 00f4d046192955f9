"""Request path shared by gRPC and REST: Predict, and the methods on tf.Examples."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np

from serving.api import classify
from serving.errors import ServingError
from serving.middleware import request_log
from serving.middleware.limits import check
from serving.middleware.settings import LimitSettings
from serving.models.manager import ModelManager, Target
from serving.models.servable import Servable
from serving.protos import ModelSpec, SignatureDef
from serving.scheduling.admission import Admission, QueueSettings, RequestContext
from serving.scheduling.batching_parameters import BatchingSettings
from serving.scheduling.jobs import Arrays, Job
from serving.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)

# Total budget: this many answers of the maximum size, or any number of smaller ones.
_LARGE_ANSWERS = 8
# Besides the answer as sent: its arrays in parts and whole, and the message that is made from them.
_COPIES = 3
# Texts as received, parsed, as an array, and as the engine's input.
_INPUT_COPIES = 4
# Time to answer the requests that are refused when draining ends.
_LAST_SECONDS = 1.0


class Inference:
    """Answers requests with the models of `models`, within the limits of `queue`. Thread-safe.

    Attributes:
        limits: applied to every request before queueing.
        run, run_in_loop: the wanted outputs of a job (`Scheduler`).
        reserve: memory until the end of a request (`Admission`).
    """

    def __init__(
        self, models: ModelManager, queue: QueueSettings, batching: BatchingSettings | None, limits: LimitSettings
    ):
        self.models, self.limits = models, limits
        memory = _LARGE_ANSWERS * (1 + _COPIES) * limits.max_answer_bytes
        self._admission, self._scheduler = Admission(queue.max_requests, memory), Scheduler(batching)
        self.reserve = self._admission.reserve
        self.run, self.run_in_loop = self._scheduler.run, self._scheduler.run_in_loop

    def prepare(
        self,
        target: Target,
        signature_name: str,
        read_inputs: Callable[[SignatureDef], Arrays],
        context: RequestContext,
        output_filter: Sequence[str] = (),
        growth: int = 1,
    ) -> tuple[Servable, Job]:
        """The servable that computes all of the answer, and the job, for `run` or `run_in_loop`.

        `read_inputs` reads the request's arrays, in the dtypes of the signature; `growth` is the size of the answer as
        sent, relative to its arrays. NOT_FOUND, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE.
        """
        self._admission.admit(context)
        # Kept loaded until it has answered, whatever versions are swapped meanwhile.
        servable = self.find(target, signature_name)
        inputs = read_inputs(servable.signature(signature_name))
        return servable, self._prepare(servable, signature_name, inputs, context, output_filter, growth)

    def on_examples(self, request: Any, target_of: Callable[[ModelSpec], Target], context: RequestContext) -> Any:
        """Answer one Classify or Regress; errors as in `prepare` and `run`."""

        def get(spec: ModelSpec) -> Servable:
            return self.find(target_of(spec), spec.signature_name)

        def run(servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
            return self.run(self._prepare(servable, signature_name, inputs, context), context)

        self._admission.admit(context)
        return classify.answer(request, get, run, self.limits)

    def find(self, target: Target, signature_name: str = "") -> Servable:
        """Servable for a request, noted in the request's record; NOT_FOUND, INVALID_ARGUMENT."""
        servable = self.models.get(target)
        request_log.annotate(servable, signature_name)
        return servable

    def check(self, servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray]) -> None:
        """Record the called signature and refuse inputs above the limits."""
        request_log.annotate(servable, signature_name, inputs)
        check(inputs, self.limits)

    def _prepare(
        self,
        servable: Servable,
        signature_name: str,
        inputs: Mapping[str, np.ndarray],
        context: RequestContext,
        output_filter: Sequence[str] = (),
        growth: int = 1,
    ) -> Job:
        self.check(servable, signature_name, inputs)
        job = servable.prepare(signature_name, inputs, output_filter)
        limit = self.limits.max_answer_bytes // growth
        if job.answer_bytes > limit:
            raise ServingError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the answer may take {job.answer_bytes} bytes; at most {limit}: send fewer or shorter rows,"
                " or ask for fewer outputs",
                http_status=413,  # clients repeat what got a 429
            )
        self.reserve(context, job.answer_bytes * (growth + _COPIES) + job.input_bytes * _INPUT_COPIES)
        return job

    @property
    def waiting(self) -> int:
        """Number of requests with waiting rows."""
        return self._scheduler.waiting

    def drain(self, seconds: float) -> bool:
        """Refuse new requests now and queued ones after `seconds`, as UNAVAILABLE; False if others are cut off."""
        done = self._admission.close(seconds)
        self._scheduler.close()
        if not done and not (done := self._admission.close(_LAST_SECONDS)):
            log.warning("stopped after %g s: %d admitted requests were not answered", seconds, self._admission.inside)
        return done
