"""What the benchmark of serving says of its turns: percentiles, batches, aims."""

import json
import threading

import pytest

from benchmarks.serving.bench_serving import aims, report
from benchmarks.serving.serving_backends import OURS, UNBATCHED, batches
from benchmarks.serving.serving_load import closed_loop, percentile, sentences


@pytest.mark.parametrize(
    ("values", "percent", "wanted"),
    [
        ([7.0], 99, 7.0),
        (range(100, 0, -1), 50, 50),
        (range(1, 101), 99, 99),
        (range(1, 11), 95, 10),
        ([3, 1, 2], 50, 2),
    ],
)
def test_a_percentile_is_the_nearest_rank(values, percent, wanted):
    assert percentile(list(values), percent) == wanted


def test_raw_batches_are_of_one_bucket_and_hold_every_text_once():
    texts = ["a" * 64, "é" * 33, "b", "c" * 129, "d" * 2, "e" * 64]
    # 64 bytes are in the first bucket, 66 in the second.
    assert batches(texts, (64, 128), 3) == [["a" * 64, "b", "d" * 2], ["e" * 64], ["é" * 33], ["c" * 129]]


def turns(rate, cpu=0.0):
    """A turn a round, of a second."""
    return [{"requests": each, "wall": 1.0, "cpu": cpu * each} for each in rate]


def test_aims_are_judged_by_the_median_of_ratios_of_one_round():
    measured = {
        ("raw, batches", 0): turns([100, 100, 100], cpu=0.010),
        (OURS, 16): turns([80, 50, 80], cpu=0.0114),
        (UNBATCHED, 16): turns([45, 20, 10]),
    }
    cpu, wall, batching = aims(measured)
    assert cpu.values == pytest.approx([1.14] * 3) and cpu.is_met
    assert wall.values == pytest.approx([1.25, 2, 1.25]) and not wall.is_met
    assert batching.values == pytest.approx([16 / 9, 2.5, 8]) and batching.is_met
    assert batching.what == "batching over none: requests/s, 16 clients"
    # Backends that did not run are not judged.
    assert aims({("raw, batches", 0): turns([1]), (UNBATCHED, 4): turns([1])}) == aims({}) == []


def test_the_report_has_a_row_a_side_and_an_aim():
    turn = {"requests": 10, "wall": 1.0, "cpu": 0.1, "client_cpu": 0.01, "p50": 5.0, "p95": 6.0, "p99": 7.0}
    matmul = {"requests": 1, "wall": 1.0, "cpu": 1.0, "flops": 1e11}
    measured = {("raw, matmul", 0): [matmul], ("raw, batches", 0): [turn], (OURS, 4): [turn]}
    about = {"texts": "some", "tokens": 9.0, "flops": 5e8, "cores": [0], "client_cores": [1], "rounds": 1, "seconds": 1}
    text = report(measured, about | {"differences": {OURS: 2e-6}})
    # 5e8 FLOPs at 1e11 a second are 5 ms, half of 10 ms.
    assert "| 4 | bert-tfx | 10 | 5.0 | 6.0 | 7.0 | 10.00 | 1.00 | 50% |" in text
    assert "at most 1.15 | 1.00 [1.00 - 1.00] | yes |" in text
    assert "bert-tfx 2.0e-06" in text


def test_a_loop_asks_one_by_one_a_client_and_raises_what_a_call_raises():
    under_way, most, asked = [0, 0], [0, 0], set()
    lock = threading.Lock()

    def call(client, text):
        with lock:
            under_way[client] += 1
            most[client] = max(most[client], under_way[client])
            asked.add(text)
        under_way[client] -= 1

    calls = [lambda text, client=client: call(client, text) for client in range(2)]
    latencies, wall = closed_loop(calls, 0.5, 5)
    assert most == [1, 1]
    assert asked and asked <= set(range(5)) and len(latencies) >= len(asked)
    assert wall >= 0.5
    # However late the threads are, each asks once.
    assert [len(closed_loop(calls, seconds, 5)[0]) for seconds in (0.0, -1.0)] == [2, 2]

    def fails(text):
        raise ValueError(text)

    with pytest.raises(ValueError, match="0"):
        closed_loop([fails], 0.0, 5)


def test_sentences_are_the_same_each_time_and_of_both_sources(tmp_path, monkeypatch):
    for name, header, line in (
        ("SST-2/train.tsv", "sentence\tlabel", "short {} \t1"),
        ("MRPC/msr_paraphrase_train.txt", "Quality\t1\t2\tfirst\tsecond", "1\t2\t3\tlonger {}\tother"),
    ):
        path = tmp_path / "glue" / name
        path.parent.mkdir(parents=True)
        path.write_text("\n".join([header, *(line.format(i) for i in range(20)), ""]), encoding="utf-8-sig")
    monkeypatch.setenv("BERT_DATA_DIR", str(tmp_path))
    texts, _ = sentences(10)
    assert sorted(text.split()[0] for text in texts) == ["longer"] * 5 + ["short"] * 5
    assert len(set(texts)) == 10
    assert texts == sentences(10)[0]
    monkeypatch.delenv("BERT_DATA_DIR")
    generated, origin = sentences(10)
    assert "generated" in origin
    assert len(json.dumps(generated)) > 100
