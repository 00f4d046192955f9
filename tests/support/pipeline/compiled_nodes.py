"""A run's spec without its request's resolution, and the nodes that TFX compiles from it."""

from tfx.dsl.compiler import compiler

from pipeline.dags.pipeline import create_pipeline
from pipeline.runs.request import RunRequest
from pipeline.runs.spec import RunInputs, RunSpec


def spec_of(recipe, run_dir, inputs=None, **request):
    """The spec of a recipe; `request` has further fields of the request."""
    asked = RunRequest(recipe.name, str(run_dir), **{"name": "named", **request})
    return RunSpec(asked, recipe, inputs or RunInputs())


def compiled(spec):
    """{stage: its node in TFX's intermediate representation}, in order."""
    ir = compiler.Compiler().compile(create_pipeline(spec, ["--runner=FnApiRunner"]))
    assert ir.pipeline_info.id == spec.request.name
    return {node.pipeline_node.node_info.id: node.pipeline_node for node in ir.nodes}


def producers(node, key):
    """Stages whose output a node reads under `key`."""
    inputs = node.inputs.inputs
    keys = [key, *inputs[key].mixed_inputs.input_keys]  # a union of channels is put under keys of its own
    return {channel.producer_node_query.id for key in keys for channel in inputs[key].channels} - {""}


def parameter(node, key):
    """An execution property of a node."""
    return node.parameters.parameters[key].field_value


def changed(before, after):
    """Stages whose execution properties differ: those that the cache does not serve."""
    return {stage for stage in {*before, *after} if before[stage].parameters != after[stage].parameters}
