"""A training that starts at step 0 reports the changed settings."""

import pytest

from bert_keras.training.checkpoint_dir import digest_of, run_folder, tell_what_changed

SETTINGS = {"training": {"num_train_steps": 100, "seed": 1}, "pretraining": None, "code": "one"}


def told(root, settings, capsys, patterns=()):
    tell_what_changed(run_folder(str(root), settings, patterns), settings)
    return capsys.readouterr().out


def test_differences_to_the_most_similar_run_are_reported(tmp_path, capsys):
    assert told(tmp_path, SETTINGS, capsys) == ""
    longer = SETTINGS | {"training": {"num_train_steps": 200, "seed": 1}}
    first = run_folder(str(tmp_path), SETTINGS, ())
    assert told(tmp_path, longer, capsys) == (
        f"training starts at step 0, not from {first}; changed since: training.num_train_steps was 100, is 200\n"
    )
    both = longer | {"code": "two", "pretraining": {"family": "electra"}}
    line, nearest = told(tmp_path, both, capsys), run_folder(str(tmp_path), longer, ())
    assert f"from {nearest}; changed since: the code; pretraining.family was None, is electra" in line
    # They are there already: they go on.
    assert told(tmp_path, SETTINGS, capsys) == told(tmp_path, both, capsys) == ""


def test_few_of_many_differences_are_printed(tmp_path, capsys):
    for count, end in ((8, "s7 was None, is 7\n"), (9, "s7 was None, is 7; and 1 more, in settings.json\n")):
        root = tmp_path / str(count)
        told(root, {"code": "one"}, capsys)
        assert told(root, {"code": "one"} | {f"s{i}": i for i in range(count)}, capsys).endswith(end)


def test_changed_input_files_are_reported(tmp_path, capsys):
    (tmp_path / "shard").write_text("one")
    told(tmp_path / "runs", SETTINGS, capsys)
    assert told(tmp_path / "runs", SETTINGS, capsys, [str(tmp_path / "shard")]).endswith(
        "changed since: the input files\n"
    )


def test_all_files_of_a_folder_count_whatever_the_folder_is_called(tmp_path):
    """`bert[a]` is no pattern; the weights of a SavedModel are in a subfolder; a renamed folder is the same input."""
    digests = {}
    for name, files in {
        "bert[a]": {"vocab.txt": "a", "variables/data": "1"},
        "bert[b]": {"vocab.txt": "b", "variables/data": "1"},
        "bert*": {"vocab.txt": "a", "variables/data": "2"},
        "other": {"vocab.txt": "a", "data": "1"},
        "moved": {"vocab.txt": "a", "variables/data": "1"},
    }.items():
        for file, text in files.items():
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text(text)
        digests[name] = digest_of(str(tmp_path / name))
    assert digests.pop("moved") == digests["bert[a]"]
    assert len(set(digests.values())) == 4
    with pytest.raises(FileNotFoundError):
        digest_of(str(tmp_path / "nothing"))
