"""What the benchmark of serving says of its turns: percentiles, aims; and its clients."""

import asyncio
import contextlib
import json
import threading

import pytest

from benchmarks.serving.bench_serving import aims, report
from benchmarks.serving.serving_backends import FASTAPI, FLOAT32, GRPC, INT8, REST, TENSORFLOW, THIN, THIN_BATCHED
from benchmarks.serving.serving_load import closed_loop, percentile, posts, sentences


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


def turns(*rates, cpu=0.001):
    """A turn a round, of a second."""
    latency = {"client_cpu": 0.01, "p50": 5.0, "p95": 6.0, "p99": 7.0}
    return [{"requests": rate, "wall": 1.0, "cpu": cpu * rate, **latency} for rate in rates]


def test_aims_are_judged_by_the_median_of_ratios_of_one_round():
    measured = {
        (TENSORFLOW, GRPC, 4): turns(50, 300, 50),
        (FLOAT32, GRPC, 4): turns(100, 100, 100),
        (THIN, GRPC, 4): turns(80, 100, 50),
        (THIN_BATCHED, GRPC, 4): turns(125, 90, 40),
        (FASTAPI, REST, 4): turns(1),
        (INT8, GRPC, 1): turns(1, cpu=0.0024),
        (INT8, GRPC, 4): turns(1),
        (INT8, GRPC, 64): turns(699),
        (INT8, REST, 64): turns(701),
    }
    int8_of_rest, int8_cpu, float32, int8 = aims(measured)
    assert int8_of_rest.what == "int8, texts/s, REST, 64 clients" and int8_of_rest.is_met
    assert float32.values == pytest.approx([0.8, 3.0, 2.0]) and float32.is_met
    assert float32.what == "best float32 over the best peer, requests/s, gRPC, 4 clients"
    assert (int8.values, int8.is_met) == ([699], False)
    assert int8_cpu.values == pytest.approx([2.4]) and int8_cpu.is_met
    assert aims({}) == []  # sides that did not run are not judged


def test_the_report_has_a_row_a_side_and_an_aim():
    measured = {(FLOAT32, REST, 4): turns(10, cpu=0.01), (FASTAPI, REST, 4): turns(8)}
    about = {"texts": "some", "tokens": 9.0, "cores": [0], "client_cores": [1], "rounds": 1, "seconds": 1}
    text = report(measured, about | {"differences": {"bert-tfx": 2e-6}})
    assert "| REST | 4 | bert-tfx, ONNX Runtime | 10 | 5.0 | 6.0 | 7.0 | 10.00 | 1.00 |" in text
    assert "at least 1 | 1.25 [1.25 - 1.25] | yes |" in text
    assert "bert-tfx 2.0e-06" in text


def test_clients_of_rest_send_bodies_on_kept_connections_and_raise_refusals():
    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                status = b"200 OK" if body != b"bad" else b"400 Bad Request"
                writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    host, port = server.sockets[0].getsockname()
    with posts(f"{host}:{port}", 2) as (first, second):
        assert [first(b"a", timeout=1), second(b"bc", timeout=1), first(b"def", timeout=1)] == [b"a", b"bc", b"def"]
        with pytest.raises(RuntimeError, match="400 Bad"):
            first(b"bad", timeout=1)
    loop.call_soon_threadsafe(server.close)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), loop).result()  # the connections end
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


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
