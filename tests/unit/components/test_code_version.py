"""Changes of code change the fingerprint; changes of docstrings and comments do not."""

import pytest

from components.code_version import _closure, code_fingerprint

FILES = {
    "components/__init__.py": "",
    "components/stage/__init__.py": '"""A stage."""',
    "components/stage/component.py": "from components.stage import executor\nfrom bert_keras.loss import nll\n",
    "components/stage/executor.py": "import numpy\n\ndef do():\n    import bert_keras.tables.words\n",
    "components/other.py": "x = 1\n",
    "bert_keras/__init__.py": "",
    "bert_keras/loss.py": '"""A loss."""\n\n\ndef nll(x):\n    """The loss."""\n    return -x\n',
    "bert_keras/tables/__init__.py": "",
    "bert_keras/tables/words.py": "x = 2\n",
    "bert_keras/tables/words.npz": "one",
    "bert_keras/unused.py": "x = 3\n",
}


@pytest.fixture
def project(tmp_path):
    for name, source in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    return tmp_path


def fingerprint(project):
    return code_fingerprint("components.stage.component", root=project)


@pytest.mark.parametrize(
    ("name", "old", "new", "counts"),
    [
        ("bert_keras/loss.py", "-x", "x", True),
        ("bert_keras/loss.py", "def nll(x)", "def nll(x, y=1)", True),
        ("bert_keras/tables/words.py", "2", "3", True),  # imported in a function
        ("bert_keras/tables/words.npz", "one", "two", True),
        ("bert_keras/tables/__init__.py", "", "x = 1", True),  # runs when anything below it is imported
        ("components/stage/executor.py", "do", "done", True),
        ("components/stage/__init__.py", "A stage", "One stage", False),
        ("bert_keras/loss.py", "A loss.", "Another\nloss.", False),
        ("bert_keras/loss.py", '    """The loss."""\n', "", False),
        ("bert_keras/loss.py", "return -x", "return  - x  # negated", False),
        ("bert_keras/unused.py", "3", "4", False),
        ("components/other.py", "1", "4", False),
    ],
)
def test_imported_code_changes_the_fingerprint_but_docstrings_do_not(project, name, old, new, counts):
    before = fingerprint(project)
    source = FILES[name]
    assert old in source
    (project / name).write_text(source.replace(old, new, 1))
    assert (fingerprint(project) != before) is counts


def test_a_missing_module_is_an_error(project):
    with pytest.raises(ModuleNotFoundError, match=r"components\.stage\.main"):
        code_fingerprint("components.stage.main", root=project)


@pytest.mark.parametrize(
    ("stage", "reads", "does_not"),
    [
        (
            "components.trainer.pretrain",
            {"bert_keras.pretraining", "bert_keras.training.step", "bert_keras.models.layers"},
            {"bert_keras.convert.huggingface", "bert_keras.finetuning.finetune"},
        ),
        (
            "components.trainer.finetune",
            {"bert_keras.training.step", "bert_keras.convert.weight_map", "bert_keras.finetuning.search"},
            {"bert_keras.pretraining"},
        ),
        (
            "components.corpus_gen.component",
            {"components.io.shards", "bert_keras.tokenizers.normalize"},
            {"bert_keras.training.step"},
        ),
        ("components.pretrain_example_gen.component", {"bert_keras.data.masking"}, {"bert_keras.training.step"}),
        # The engine of ONNX files answers by the code of the task types, which has their losses too.
        (
            "pipeline.commands.server.serve",
            {"serving.models.servable", "bert_keras.convert.onnx_answers"},
            {"components", "bert_keras.training.loop"},
        ),
    ],
)
def test_what_stages_of_this_project_depend_on(stage, reads, does_not):
    found = set(_closure((stage,)))
    assert reads <= found
    assert not does_not & found
