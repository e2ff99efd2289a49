# SPDX-License-Identifier: Apache-2.0
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from dysharp.gen.loads import trace_of_loads
from dysharp.gen.traces import KINDS, Trace, TraceError, read_trace, synthetic_trace, write_trace
from hypothesis import given
from hypothesis import strategies as st

ROUTES = Path(__file__).parents[2].parent / "shared" / "data" / "moe_routes"


def test_trace_is_read_with_its_record_and_without_its_weights(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"type": "meta", "top_k": 2}\n{"t": 0, "ids": [3, 1], "w": [0.5, 0.5]}\n{"ids": [0, 2]}\n'
    )
    trace = read_trace(path, experts=4)
    assert trace.ids.tolist() == [[3, 1], [0, 2]]
    assert trace.ids.dtype == np.int64
    assert trace.meta == {"type": "meta", "top_k": 2}
    assert (trace.tokens, trace.top_k) == (2, 2)


def test_record_is_optional_and_reading_ends_after_the_tokens_wanted(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"ids": [3, 1]}\n{"ids": [0, 2]}\nnot JSON\n')
    assert read_trace(path, experts=4, tokens=2).ids.tolist() == [[3, 1], [0, 2]]
    assert read_trace(path, experts=4, tokens=1).ids.tolist() == [[3, 1]]


GOOD = '{"ids": [3, 1]}\n'


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("", 1, "the trace holds no token"),
        ('{"type": "meta"}\n', 1, "the trace holds no token"),
        (GOOD + "{\n", 2, "malformed JSON: Expecting property name enclosed in double quotes"),
        (GOOD + "\n", 2, "malformed JSON: Expecting value"),
        (GOOD + "[3, 1]\n", 2, "a line must be a JSON object, not '[3, 1]'"),
        (GOOD + '{"type": "meta"}\n', 2, "the meta record must be the first line"),
        (GOOD + '{"t": 1}\n', 2, "`ids` is missing"),
        (GOOD + '{"ids": 3}\n', 2, "`ids` must be a list of experts, not 3"),
        (GOOD + '{"ids": []}\n', 2, "`ids` must be a list of experts, not []"),
        (GOOD + '{"ids": [1, 2.0]}\n', 2, "an expert must be an integer, not 2.0"),
        (GOOD + '{"ids": [1, true]}\n', 2, "an expert must be an integer, not True"),
        (GOOD + '{"ids": [1, "2"]}\n', 2, "an expert must be an integer, not '2'"),
        (GOOD + '{"ids": [1, null]}\n', 2, "an expert must be an integer, not None"),
        (GOOD + '{"ids": [1, -1]}\n', 2, "an expert must be 0 to 3, not -1"),
        (GOOD + '{"ids": [1, 4]}\n', 2, "an expert must be 0 to 3, not 4"),
        (GOOD + '{"ids": [1, 1]}\n', 2, "the experts of a token must differ, not [1, 1]"),
        (
            GOOD + '{"ids": [1, 2, 3]}\n',
            2,
            "`ids` must have 2 experts like the lines before, not 3",
        ),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_wrong_line_is_named(tmp_path, content, line, message, suffix):
    path = tmp_path / f"t.jsonl{suffix}"
    path.write_bytes(gzip.compress(content.encode()) if suffix else content.encode())
    with pytest.raises(TraceError, match=f"^{re.escape(f'{path}:{line}: {message}')}$"):
        read_trace(path, experts=4)


def test_nesting_without_end_is_malformed(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("[" * 100_000)
    with pytest.raises(TraceError, match=r"t\.jsonl:1: malformed JSON: "):
        read_trace(path, experts=4)


def test_too_few_tokens_are_told(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(GOOD)
    with pytest.raises(TraceError, match=r"t\.jsonl:1: the trace holds 1 tokens, not 2$"):
        read_trace(path, experts=4, tokens=2)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"none\.jsonl:1: No such file or directory$"):
        read_trace(tmp_path / "none.jsonl", experts=4)


def test_folder_is_no_trace(tmp_path):
    with pytest.raises(TraceError, match=r":1: Is a directory$"):
        read_trace(tmp_path, experts=4)


def test_text_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(TraceError, match=r"t\.jsonl:1: not UTF-8 text: invalid start byte$"):
        read_trace(path, experts=4)


def test_plain_text_under_a_compressed_name_is_told(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    path.write_text(GOOD)
    with pytest.raises(TraceError, match=r"t\.jsonl\.gz:1: bad gzip data: Not a gzipped file"):
        read_trace(path, experts=4)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b[:12] + b"\xff" * 9])
def test_damaged_compression_is_told(tmp_path, damage):
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(damage(gzip.compress((GOOD * 9999).encode())))
    with pytest.raises(TraceError, match=r"t\.jsonl\.gz:\d+: bad gzip data: "):
        read_trace(path, experts=4)


@given(
    kind=st.sampled_from(KINDS),
    tokens=st.integers(1, 40),
    experts=st.integers(1, 70),
    seed=st.integers(0, 2**40),
    data=st.data(),
)
def test_synthetic_tokens_take_different_experts(kind, tokens, experts, seed, data):
    top_k = data.draw(st.integers(1, experts))
    trace = synthetic_trace(kind, tokens=tokens, experts=experts, top_k=top_k, seed=seed)
    assert trace.ids.shape == (tokens, top_k)
    assert trace.ids.min() >= 0
    assert trace.ids.max() < experts
    assert all(len(set(row)) == top_k for row in trace.ids.tolist())


def loads(kind, **options):
    trace = synthetic_trace(
        kind, **{"tokens": 20_000, "experts": 32, "top_k": 4, "seed": 7} | options
    )
    return np.sort(np.bincount(trace.ids.ravel(), minlength=32) / trace.tokens)[::-1]


def test_uniform_loads_are_alike():
    # 4 of 32: probability 1/8, standard deviation of the mean below 0.0024.
    assert np.abs(loads("uniform") - 1 / 8).max() < 0.012


def test_power_law_of_single_draws_has_the_exponent():
    # With one expert a token the load is the popularity itself.
    expected = np.arange(1, 33) ** -1.5
    expected /= expected.sum()
    assert np.abs(loads("power", top_k=1, alpha=1.5) - expected).max() < 0.015


def test_normal_loads_of_single_draws_are_a_bell_curve():
    distance = (np.arange(32) - 15.5) / (0.2 * 32)
    expected = np.sort(np.exp(-0.5 * distance**2))[::-1]
    expected /= expected.sum()
    assert np.abs(loads("normal", top_k=1, std=0.2) - expected).max() < 0.01


def test_draws_without_replacement_have_the_right_pairs():
    # Two of three experts with popularity 1, 1/2, 1/4 (in the order of the seed's permutation).
    trace = synthetic_trace("power", tokens=60_000, experts=4, top_k=2, seed=3, alpha=1.0)
    single = synthetic_trace("power", tokens=60_000, experts=4, top_k=1, seed=3, alpha=1.0)
    p = np.bincount(single.ids.ravel(), minlength=4) / 60_000
    for first in range(4):
        for second in range(4):
            if first != second:
                seen = np.mean((trace.ids[:, 0] == first) & (trace.ids[:, 1] == second))
                assert seen == pytest.approx(p[first] * p[second] / (1 - p[first]), abs=0.012)


def test_exponent_0_is_uniform_and_a_larger_one_is_less_even():
    assert loads("power", alpha=0.0)[0] < 0.14
    assert loads("power", alpha=0.5)[0] < loads("power", alpha=1.0)[0] < loads("power", alpha=2)[0]


def test_popular_experts_depend_on_the_seed():
    tops = {
        int(np.bincount(synthetic_trace(
            "power", tokens=500, experts=32, top_k=1, seed=seed, alpha=2.0
        ).ids.ravel()).argmax())
        for seed in range(8)
    }  # fmt: skip
    assert len(tops) > 3


def test_block_size_does_not_change_the_draw(monkeypatch):
    arguments = {"tokens": 50, "experts": 16, "top_k": 3, "seed": 1}
    whole = synthetic_trace("normal", **arguments).ids
    monkeypatch.setattr("dysharp.gen.traces._BLOCK", 40)
    assert (synthetic_trace("normal", **arguments).ids == whole).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 0}, "`tokens` must be an integer of 1 or more, not 0"),
        ({"experts": 0}, "`experts` must be an integer of 1 or more, not 0"),
        ({"top_k": 0}, "`top_k` must be an integer of 1 or more, not 0"),
        ({"top_k": 9}, "`top_k` must be at most `experts` (8), not 9"),
        ({"seed": -1}, "`seed` must be an integer of 0 or more, not -1"),
        ({"seed": True}, "`seed` must be an integer of 0 or more, not True"),
        ({"alpha": -0.5}, "`alpha` must be 0 or more, not -0.5"),
        ({"alpha": float("inf")}, "`alpha` must be 0 or more, not inf"),
        ({"std": 0.0}, "`std` must be more than 0, not 0.0"),
        ({"std": float("nan")}, "`std` must be more than 0, not nan"),
    ],
)
def test_wrong_argument_is_refused(change, message):
    arguments = {"tokens": 1, "experts": 8, "top_k": 2, "seed": 0} | change
    with pytest.raises(TraceError, match=f"^{re.escape(message)}$"):
        synthetic_trace("uniform", **arguments)


def test_wrong_kind_is_refused():
    with pytest.raises(
        TraceError, match=r"^`kind` must be one of uniform, power, normal, not 'x'$"
    ):
        synthetic_trace("x", tokens=1, experts=8, top_k=2, seed=0)


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "new/folder/t.jsonl.gz"])
def test_written_trace_reads_back_and_has_the_same_bytes_each_time(tmp_path, name):
    trace = synthetic_trace("power", tokens=30, experts=16, top_k=4, seed=5)
    path = tmp_path / name
    write_trace(path, trace)
    first = path.read_bytes()
    back = read_trace(path, experts=16)
    assert (back.ids == trace.ids).all()
    assert back.meta == {"type": "meta", **trace.meta}
    write_trace(path, back)
    assert path.read_bytes() == first
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_trace_without_a_record_has_token_lines_only(tmp_path):
    write_trace(tmp_path / "t", Trace(np.array([[1, 0]])))
    assert (tmp_path / "t").read_text() == '{"t": 0, "ids": [1, 0]}\n'


def test_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match=r"file: (Not a directory|File exists)$"):
        write_trace(tmp_path / "file" / "t", Trace(np.array([[1, 0]])))


@pytest.mark.skipif(not ROUTES.is_dir(), reason="the real traces are not there")
@pytest.mark.parametrize(("model", "experts", "top_k"), [("olmoe", 64, 8), ("qwen", 60, 4)])
def test_real_traces_are_read(model, experts, top_k):
    (path,) = ROUTES.glob(f"{model}*.jsonl.gz")
    trace = read_trace(path, experts)
    assert trace.top_k == top_k == trace.meta["top_k"]
    assert trace.tokens == 2999
    assert trace.meta["num_experts"] == experts
    with pytest.raises(TraceError, match=r":\d+: an expert must be 0 to 31, not \d+$"):
        read_trace(path, 32)


def test_weights_are_read_and_written(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"ids": [3, 1], "w": [0.1, 0.9]}\n{"ids": [0, 2], "w": [1, -2.5e-7]}\n')
    trace = read_trace(path, 4)
    assert trace.weights.dtype == np.float32
    assert trace.weights.tolist() == np.float32([[0.1, 0.9], [1, -2.5e-7]]).tolist()
    again = tmp_path / "again.jsonl.gz"
    write_trace(again, trace)
    assert np.array_equal(read_trace(again, 4).weights, trace.weights)
    path.write_text('{"ids": [3, 1], "w": [0.1, 0.9]}\n{"ids": [0, 2]}\n')
    assert read_trace(path, 4).weights is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[0.5]", "`w` must be a list of 2 weights, not [0.5]"),
        ("0.5", "`w` must be a list of 2 weights, not 0.5"),
        ('[0.5, "1"]', "a weight must be a number, not '1'"),
        ("[0.5, true]", "a weight must be a number, not True"),
        ("[0.5, NaN]", "a weight must be a number, not nan"),
        ("[0.5, 1e39]", "a weight must be a number, not 1e+39"),
    ],
)
def test_wrong_weights(tmp_path, text, message):
    path = tmp_path / "trace.jsonl"
    path.write_text(f'{{"ids": [3, 1], "w": {text}}}\n')
    with pytest.raises(TraceError, match=f":1: {re.escape(message)}$"):
        read_trace(path, 4)


def test_masked_experts(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"ids": [3, -1, -1]}\n')
    assert read_trace(path, 4, masked=True).ids.tolist() == [[3, -1, -1]]
    with pytest.raises(TraceError, match=r":1: an expert must be 0 to 3, not -1$"):
        read_trace(path, 4)
    path.write_text('{"ids": [3, -1, 3]}\n')
    with pytest.raises(TraceError, match="the experts of a token must differ"):
        read_trace(path, 4, masked=True)


def test_trace_of_loads_follows_the_loads(tmp_path):
    path = tmp_path / "loads.json.gz"
    loads = [[0] * 8, [8, 4, 2, 1, 1, 0, 0, 0]]
    path.write_bytes(gzip.compress(json.dumps({"logical_count": loads}).encode()))
    trace = trace_of_loads(path, layer=1, tokens=20_000, top_k=1, seed=3)
    share = np.bincount(trace.ids.reshape(-1), minlength=8) / 20_000
    assert np.abs(share - np.array(loads[1]) / 16).max() < 0.02
    assert (trace.meta["loads"], trace.meta["num_experts"]) == ("loads.json.gz", 8)
    again = trace_of_loads(path, layer=1, tokens=20_000, top_k=1, seed=3)
    assert np.array_equal(again.ids, trace.ids)
    with pytest.raises(TraceError, match="`top_k` must be at most 5, the experts with a load"):
        trace_of_loads(path, layer=1, tokens=1, top_k=6, seed=3)


@pytest.mark.parametrize(
    ("content", "layer", "message"),
    [
        ("{", 0, "loads.json:1: malformed JSON: "),
        ("[]", 0, "`logical_count` must be a list of layers"),
        ('{"logical_count": 3}', 0, "`logical_count` must be a list of layers"),
        ('{"logical_count": [[1]]}', 1, "`layer` must be 0 to 0, not 1"),
        ('{"logical_count": [[1]]}', -1, "`layer` must be an integer of 0 or more, not -1"),
        ('{"logical_count": [[0, 0]]}', 0, "layer 0 has no loads; another one may"),
        ('{"logical_count": [["a"]]}', 0, "the loads of layer 0 must be numbers"),
        ('{"logical_count": [[1, -1]]}', 0, "must be numbers of 0 or more"),
        ('{"logical_count": [[1, [2]]]}', 0, "the loads of layer 0 must be numbers"),
    ],
)
def test_wrong_loads(tmp_path, content, layer, message):
    path = tmp_path / "loads.json"
    path.write_text(content)
    with pytest.raises(TraceError, match=re.escape(message)):
        trace_of_loads(path, layer=layer, tokens=1, top_k=1, seed=0)
