"""What TensorFlow needs before it starts (pytest reads this before anything below this folder), the choice of the quick
tests, the order of the queue, and fixtures of more than one folder."""

import gc
import importlib.abc
import importlib.machinery
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hypothesis
import numpy as np
import pytest

from tests.support import quick_libraries

# A time limit of an example fails on a machine that is busy, and says nothing of the code.
hypothesis.settings.register_profile("bert-tfx", deadline=None)
hypothesis.settings.load_profile("bert-tfx")

HEAVY = {
    "jax",
    "keras",
    "tensorflow",
    "tensorflow_data_validation",
    "tensorflow_model_analysis",
    "tensorflow_text",
    "tfx",
}


class _TwoCpus(importlib.machinery.PathFinder):
    """Finds TensorFlow; once it is imported, and before it computes, it gets two logical CPUs for MirroredStrategy."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = super().find_spec(name, path, target) if name == "tensorflow" else None
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                (cpu,) = module.config.list_physical_devices("CPU")
                module.config.set_logical_device_configuration(cpu, [module.config.LogicalDeviceConfiguration()] * 2)

            spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _TwoCpus)


class _Skip(importlib.machinery.PathFinder, importlib.abc.Loader):
    """Finds what is in `HEAVY`; to import it skips the test that does, or the whole module of tests."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = super().find_spec(name, path, target) if name in HEAVY else None
        if spec is not None:
            spec.loader = cls()
        return spec

    def exec_module(self, module):
        pytest.skip(f"not quick: imports {module.__name__}", allow_module_level=True)


def pytest_addoption(parser):
    parser.addoption(
        "--quick", action="store_true", help="skip tests that import TensorFlow or TFX, or start programs that do"
    )


def pytest_configure(config):
    if config.getoption("--quick"):
        sys.meta_path.insert(0, _Skip)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Only in tests/e2e and in started programs TensorFlow optimises graphs: it takes longer than a few calls."""
    if tensorflow := sys.modules.get("tensorflow"):
        quick = not item.nodeid.startswith("tests/e2e/")
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": quick})


# These go first, the longest in front, so that no process is left alone with one of them at the end.
FIRST = (
    *("tests/e2e/", "tests/contract/test_dependencies.py"),
    *("tests/unit/bert_keras/training/", "tests/unit/pipeline/", "tests/unit/bert_keras/"),
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file a process (`--dist loadfile`); the files of tests/e2e that share one run of the pipeline go to one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SharedRun(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            shares = file.startswith("tests/e2e/") and "first_run" in (config.rootpath / file).read_text()
            return "first_run" if shares else file

    config.option.loadscopereorder = False  # else xdist starts with the files of the most tests
    return SharedRun(config, log)


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: [not item.nodeid.startswith(path) for path in FIRST])
    if config.getoption("--quick"):
        chosen = [item for item in items if not item.get_closest_marker("programs")]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


def pytest_collection_finish():
    quick_libraries.patch()
    # What was imported stays, and graphs are many objects: garbage collection takes a tenth of the time otherwise.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def random_bert():
    """Makes a model whose every weight is random: zeros and ones would hide one that is left out, or put elsewhere."""

    def make(config, model_class, seed=0):
        model = model_class(config)
        model.build()
        generator = np.random.default_rng(seed)
        model.set_weights([generator.normal(0, 0.3, weight.shape) for weight in model.get_weights()])
        return model

    return make
