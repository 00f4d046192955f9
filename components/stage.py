"""A stage as a TFX component, from a declaration of its inputs, outputs and parameters."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from tfx.dsl.components.base import base_beam_executor, base_component, base_executor, executor_spec
from tfx.types import Artifact, channel
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter

from components.code_version import code_fingerprint


class _Nothing(ComponentSpec):
    PARAMETERS, INPUTS, OUTPUTS = {}, {}, {}


class Stage(base_component.BaseComponent):
    """A component that its subclass declares:

        class ExampleGate(
            Stage,
            executor=Executor,
            inputs={"examples": standard_artifacts.Examples},
            parameters={"limits": str, "code": str},
            outputs={"verdict": ExampleVerdict},
        )

        ExampleGate(example_gen.outputs["examples"], DataLimits()).outputs["verdict"]

    takes inputs and parameters by position or name. A text parameter gets anything but text as JSON, a dataclass by its
    fields; `code` is the fingerprint of the module that declares the stage, unless it is given.
    """

    TYPE_ANNOTATION: Any = None  # TFX's kind of execution, which ML Metadata records

    def __init_subclass__(
        cls,
        executor: type[base_executor.BaseExecutor],
        inputs: Mapping[str, type[Artifact]],
        parameters: Mapping[str, type],
        outputs: Mapping[str, type[Artifact]] | None = None,
        optional: tuple[str, ...] = (),
        like: type[ComponentSpec] = _Nothing,
    ):
        """Make the specification, `optional` inputs and parameters, and all those of a TFX component's, `like`."""
        super().__init_subclass__()
        channels = {name: ChannelParameter(type=kind, optional=name in optional) for name, kind in inputs.items()}
        declared = {name: ExecutionParameter(type=kind, optional=name in optional) for name, kind in parameters.items()}
        made = {name: ChannelParameter(type=kind) for name, kind in (outputs or {}).items()}
        spec = {
            "PARAMETERS": {**like.PARAMETERS, **declared},
            "INPUTS": {**like.INPUTS, **channels},
            "OUTPUTS": {**like.OUTPUTS, **made},
            "TYPE_ANNOTATION": cls.TYPE_ANNOTATION,
        }
        cls.SPEC_CLASS = type(f"{cls.__name__}Spec", (ComponentSpec,), spec)
        in_beam = issubclass(executor, base_beam_executor.BaseBeamExecutor)
        cls.EXECUTOR_SPEC = (executor_spec.BeamExecutorSpec if in_beam else executor_spec.ExecutorClassSpec)(executor)

    def __init__(self, *arguments: Any, **values: Any):
        spec = self.SPEC_CLASS
        names = [*spec.INPUTS, *spec.PARAMETERS]
        given = names[: len(arguments)]
        # TFX leaves out what it does not know.
        if wrong := (set(values) - set(names)) | (set(values) & set(given)):
            raise TypeError(f"{type(self).__name__}: {', '.join(sorted(wrong))}: unknown, or given twice")
        values.update(zip(given, arguments, strict=True))
        if "code" in spec.PARAMETERS:
            values.setdefault("code", code_fingerprint(type(self).__module__))
        for name, value in values.items():
            parameter = spec.PARAMETERS.get(name)
            is_text = parameter and parameter.type is str and not (parameter.optional and value is None)
            if is_text and not isinstance(value, str):
                values[name] = json.dumps(value, default=dataclasses.asdict, sort_keys=True)
        made = {name: channel.Channel(type=output.type) for name, output in spec.OUTPUTS.items()}
        super().__init__(spec(**values, **made))
