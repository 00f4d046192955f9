"""Files of tasks that a test writes, and their rows or the error that reading them gives."""

import pytest

from bert_keras.errors import InputError
from bert_keras.tasks.table import TASKS
from components.task_example_gen.readers import read_rows

NOT_UTF8 = "its text, label or name has half of a surrogate pair or a byte that is not UTF-8"
MEND = "correct it, or skip such rows with --set data.on_bad_row=skip"


def written(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def rows(task, path, on_bad_row="fail", columns=None):
    return list(read_rows(TASKS[task], path, on_bad_row, columns))


def error(task, path, columns=None):
    with pytest.raises(InputError) as caught:
        rows(task, path, columns=columns)
    return str(caught.value)
