"""ModelPush: TFX's Pusher with an executor of its own."""

from tfx.components import Pusher
from tfx.dsl.components.base import executor_spec

from components.model_push.executor import Executor


class ModelPush(Pusher):
    """`model`, `model_blessing` -> `pushed_model` (PushedModel); a model that is not blessed is not pushed."""

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)
