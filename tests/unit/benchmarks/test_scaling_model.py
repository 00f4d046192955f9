"""The cost model: benchmarks/examples/scaling.md has its tables, docs/scaling.md rows of them."""

from pathlib import Path

import pytest

from benchmarks.examples import scaling_model as model

ROOT = Path(__file__).parents[3]


def test_the_notes_have_the_tables_that_the_program_prints():
    page = (ROOT / "benchmarks/examples/scaling.md").read_text()
    assert len(model.TABLES) == 4
    for table in model.TABLES:
        assert f"\n\n{table()}\n\n" in page + "\n", f"{table.__name__}: scaling_model.py prints it again"


def test_the_page_for_users_has_rows_of_the_same_tables():
    rows = {row for table in model.TABLES for row in table().splitlines()}
    tables = [block.splitlines() for block in (ROOT / "docs/scaling.md").read_text().split("\n\n")]
    ours = [table for table in tables if table[0] in rows]
    assert len(ours) == 2
    assert not {row for table in ours for row in table} - rows


def test_a_small_corpus_by_hand():
    """1 GB with buckets of 32 MiB, runs of 64 MiB, two passes."""
    made = model.Generation(model.Corpus("a", 1e9, 32 << 20, 2))
    assert (made.buckets, made.runs) == (30, 15)
    assert made.requests == 30 * 15 * 3
    assert made.instances == pytest.approx(3252 * 1000 * 2)
    hours = made.stages()
    assert hours["sort"] * 3600 * 0.915 == pytest.approx(1350 * 0.02)
    assert hours["examples"] * 3600 * 0.915 == pytest.approx(0.058 * 1000 * 2)
    assert made.process_gigabytes == pytest.approx((600 * 2**20 + 25 * 32 * 2**20) / 1e9)
    # 44 x (32 MiB / 6) ^ 0.49 = 88 thousand words a shard.
    assert made.shuffled_bytes == pytest.approx(30 * 88_800 * 16, rel=0.02)


def test_a_bucket_twice_as_large_is_a_quarter_of_the_small_reads():
    small, large = (model.Generation(model.Corpus("a", 1e12, size << 20, 1)) for size in (128, 256))
    assert small.requests / large.requests == pytest.approx(4, rel=0.01)


def test_parts_are_commands_of_their_own():
    whole = model.Generation(model.Corpus("a", 1e12, 256 << 20, 1))
    ten = model.Generation(model.Corpus("a", 10e12, 256 << 20, 1, parts=10))
    assert ten.core_hours == pytest.approx(10 * whole.core_hours)
    assert sum(ten.dollars().values()) == pytest.approx(10 * sum(whole.dollars().values()))


def test_the_flops_of_a_run_are_those_of_both_phases():
    """Base: 256 x (900,000 x 69.9e9 + 100,000 x a sequence of 512)."""
    recipe = model.bert_base()
    long = model.training_flops(recipe.model, 512, recipe.example_sets[1].masking.max_predictions_per_seq)
    assert model.run_flops(recipe) == pytest.approx(256 * (900_000 * 69.9e9 + 100_000 * long), rel=0.001)
