# SPDX-License-Identifier: Apache-2.0
"""Tests the model of a whole layer against plain NumPy, the AL map, and sums one by one."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from dysharp.golden.al_map import AlMap, DynamicObject, lookup_array
from dysharp.golden.cuda import CUDymulticastObjectProp, DyBinding
from dysharp.golden.moe import MoeLayer, TwoGemms, from_float, to_float
from dysharp.golden.numerics import flits, reduce_ordered
from dysharp.golden.runtime import Runtime
from dysharp.rtl.flits import WIDE, DType, ReduceOp, Stage
from dysharp.rtl.gpu_params import GPU_PRESETS
from dysharp.rtl.params import PRESETS

TYPES = (DType.F32, DType.F16, DType.BF16, DType.F16_ACC32, DType.BF16_ACC32)
PRECISION = {DType.F32: 24, DType.F16: 11, DType.BF16: 8, DType.F16_ACC32: 11, DType.BF16_ACC32: 8}


def layer(
    dtype: Any = DType.BF16,
    *,
    tokens: int = 40,
    hidden: int = 64,
    gpus: int = 4,
    experts_per_gpu: int = 4,
    k: int = 4,
    masked: float = 0.2,
    seed: int = 0,
) -> MoeLayer:
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(gpus * experts_per_gpu)[:k] for _ in range(tokens)]
    ids = np.array(rows, np.int64).reshape(tokens, k)
    ids[rng.random(ids.shape) < masked] = -1
    return MoeLayer(
        gpus=gpus,
        experts_per_gpu=experts_per_gpu,
        dtype=dtype,
        tokens=from_float(dtype, rng.standard_normal((tokens, hidden))),
        sources=rng.integers(0, gpus, tokens),
        ids=ids,
        weights=rng.random(ids.shape).astype(np.float32),
    )


def one_by_one(
    moe: MoeLayer, outputs: npt.NDArray[Any], *, presum: bool, lengths: Any = None
) -> npt.NDArray[Any]:
    """Canonical sums, token by token and flit by flit, by the entry's own model."""
    result = np.zeros_like(moe.tokens)
    per_flit = 16 // moe.tokens.itemsize
    for token in range(len(moe.tokens)):
        for flit in range(moe.hsize // 16):
            part = slice(flit * per_flit, (flit + 1) * per_flit)
            short = lengths is None or lengths[token, flit] <= 8
            parts, presums = [], []
            for gpu in range(moe.gpus):
                rows = outputs[(moe.token == token) & (moe.gpu == gpu)]
                if not len(rows):
                    continue
                here = flits(rows[:, part])
                if moe.dtype in WIDE:
                    to_f32 = DType.F16_TO_F32 if moe.dtype is DType.F16_ACC32 else DType.BF16_TO_F32
                    if presum and len(here) > 2 and short:
                        parts.append(reduce_ordered(ReduceOp.ADD, to_f32, here))
                        presums.append(True)
                    else:
                        pad = [np.concatenate([flit, flit]) for flit in here]
                        parts += pad
                        presums += [False] * len(pad)
                elif presum and len(here):
                    parts.append(reduce_ordered(ReduceOp.ADD, moe.dtype, here))
                else:
                    parts += list(here)
            if parts:
                mask = np.array(presums) if moe.dtype in WIDE else None
                total = reduce_ordered(ReduceOp.ADD, moe.dtype, np.array(parts), mask)
                result[token, part] = total.view(np.uint8).view(result.dtype)
    return result


def bindings(moe: MoeLayer, hsize: int, bsize: int) -> tuple[Runtime, int, list[DyBinding]]:
    runtime = Runtime(
        PRESETS["tiny"],
        GPU_PRESETS["tiny"],
        memory=1 << 24,
        experts_per_gpu=moe.experts_per_gpu,
    )
    handle = runtime.cuDyMulticastCreate(
        CUDymulticastObjectProp(numDevices=moe.gpus, hsize=hsize, bsize=bsize)
    )
    nactive = moe.nactive.reshape(moe.gpus, -1).tolist()
    for device in range(moe.gpus):
        runtime.cuDyMulticastAddDevice(handle, device)
    for device in range(moe.gpus):
        places = {
            stage: [runtime.cuMemAlloc(device, max(1, n) * bsize) for n in nactive[device]]
            for stage in (Stage.DISPATCH, Stage.COMBINE)
        }
        runtime.cuDyMulticastBindAddr(handle, device, len(moe.ids), nactive[device], places)
    return runtime, handle, [runtime.binding(handle, device) for device in range(moe.gpus)]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("k", [1, 2, 8, 16])
def test_equals_plain_moe(dtype: Any, k: int) -> None:
    """Within the rounding of the outputs, of each sum, and of the products in f32.

    With u the unit roundoff of the type and s the sum of the outputs' magnitudes, an output is off
    by u of itself, each of k - 1 sums in the type by u * s (in f32 for the wide types, then once
    more in the type), and the matrices by less than 2**-20 of what goes in.
    """
    moe = layer(dtype, k=k, hidden=64)
    network = TwoGemms(moe.experts, 64, 32)
    outputs = moe.outputs(network)
    exact = moe.exact(network)
    unit = 2.0 ** -PRECISION[dtype]
    size = np.zeros(exact.shape)
    np.add.at(size, moe.token, np.abs(to_float(dtype, outputs)).astype(np.float64))
    adds = 2 if dtype in WIDE else k
    tiny = 2.0**-24 if dtype in (DType.F16, DType.F16_ACC32) else 0
    bound = 1.01 * (adds + 1) * unit * size + 2.0**-18 * (1 + size) + k * tiny
    for presum in (False, True):
        result = to_float(dtype, moe.combine(outputs, presum=presum))
        assert (np.abs(result - exact) <= bound).all()
        # And the bound is not so wide that everything would pass.
        assert (np.abs(exact) > 4 * bound).mean() > 0.4


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("presum", [False, True])
def test_canonical_sums_one_by_one(dtype: Any, presum: bool) -> None:
    moe = layer(dtype, tokens=24, hidden=16, k=12, seed=1)
    rng = np.random.default_rng(2)
    outputs = moe.outputs(TwoGemms(moe.experts, 16, 8))
    # Infinities, NaNs with a payload, and whatever else there is.
    wild = rng.random(outputs.shape) < 0.1
    top = np.iinfo(outputs.dtype).max
    outputs[wild] = rng.integers(0, top, int(wild.sum()), dtype=outputs.dtype, endpoint=True)
    lengths = rng.integers(1, 17, (len(moe.ids), moe.hsize // 16))
    for given in (None, lengths):
        got = moe.combine(outputs, presum=presum, lengths=given)
        assert np.array_equal(got, one_by_one(moe, outputs, presum=presum, lengths=given))


def test_presums_show() -> None:
    """The ways to add have other bits, so the tests above tell them apart."""
    for dtype in TYPES:
        moe = layer(dtype, k=12, masked=0.0)
        outputs = moe.outputs(TwoGemms(moe.experts, 64, 8))
        # Large ones that cancel out: what is lost beside them depends on the order.
        ends = np.flatnonzero(np.diff(moe.token, prepend=-1))
        big = np.float32(2.0**14 if dtype in (DType.F16, DType.F16_ACC32) else 2.0**20)
        outputs[ends] = from_float(dtype, np.array(big))
        outputs[ends + 11] = from_float(dtype, np.array(-big))
        outputs[ends + 5] = from_float(dtype, np.array(2.0**-9 / 3))
        assert (moe.combine(outputs) != moe.combine(outputs, presum=False)).any()
        assert (moe.combine(outputs, ranks=-moe.gpu) != moe.combine(outputs)).any()


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
def test_arrival_order(dtype: Any) -> None:
    """Ranks that are the canonical order give its bits; backwards is the mirrored system."""
    moe = layer(dtype, k=8, seed=3)
    outputs = moe.outputs(TwoGemms(moe.experts, 64, 8))
    for presum in (False, True):
        canonical = moe.combine(outputs, presum=presum)
        same = moe.combine(outputs, presum=presum, ranks=moe.gpu * 7)
        assert np.array_equal(same, canonical)
    ids = np.where(moe.ids < 0, -1, moe.experts - 1 - moe.ids)
    mirrored = MoeLayer(
        gpus=moe.gpus,
        experts_per_gpu=moe.experts_per_gpu,
        dtype=dtype,
        tokens=moe.tokens,
        sources=moe.sources,
        ids=ids,
        weights=moe.weights,
    )
    backwards = moe.combine(outputs, ranks=-moe.gpu)
    assert np.array_equal(backwards, mirrored.combine(outputs))


@pytest.mark.parametrize("bsize", [128, 144, 2880])
def test_memory_as_the_al_map_lays_it_out(bsize: int) -> None:
    """Dispatch packets in a random order through the model of each GPU's map."""
    moe = layer(tokens=30, seed=4)
    runtime, handle, bound = bindings(moe, moe.hsize, bsize)
    base = runtime.address(handle)
    rng = np.random.default_rng(5)
    arrival, memories = [], []
    for gpu in range(moe.gpus):
        memory = np.zeros(1 << 24, np.uint8)
        hub_object = runtime.hub_object(handle, gpu)
        assert isinstance(hub_object, DynamicObject)
        al_map = AlMap([hub_object], memory)
        tokens = rng.permutation(np.unique(moe.token[moe.gpu == gpu]))
        # Two packets a token, which mix.
        order = rng.permutation(np.repeat(tokens, 2))
        arrival.append(order)
        seen = dict.fromkeys(tokens.tolist(), 0)
        half = moe.hsize // 2
        for token in order.tolist():
            offset = seen[token]
            seen[token] += half
            targets = moe.expert[(moe.token == token) & (moe.gpu == gpu)].tolist()
            address = base + token * bsize + offset
            places, statuses = al_map.translate(
                lookup_array([(2, 0, True, target, address, half // 16) for target in targets])
            )
            assert not statuses.any()
            row = moe.tokens[token].view(np.uint8)[offset : offset + half]
            for place in places.tolist():
                memory[place : place + half] = row
        memories.append(memory)
    layout = moe.layout(arrival)
    images = moe.images(bound, bsize, layout)
    for memory, segments in zip(memories, images, strict=True):
        rest = memory.copy()
        for address, content in segments:
            assert np.array_equal(memory[address : address + len(content)], content)
            rest[address : address + len(content)] = 0
        assert not rest.any()
    assert any((moe.layout() != layout).tolist())


def test_outputs_stand_in_the_combine_regions() -> None:
    moe = layer(seed=6)
    _, _, bound = bindings(moe, moe.hsize, 256)
    layout = moe.layout()
    outputs = moe.outputs(TwoGemms(moe.experts, 64, 8))
    images = moe.images(bound, 256, layout, outputs)
    for pair in range(len(moe.token)):
        gpu, local = divmod(int(moe.expert[pair]), moe.experts_per_gpu)
        region = dict(images[gpu])[bound[gpu].addresses[Stage.COMBINE][local]].reshape(-1, 256)
        row = region[layout[pair]]
        assert row[: moe.hsize].tobytes() == outputs[pair].tobytes()
        assert not row[moe.hsize :].any()


def test_layout_counts_first_places_only() -> None:
    moe = layer(tokens=3, gpus=2, experts_per_gpu=1, k=2, masked=0.0)
    layout = moe.layout([np.array([2, 0, 2, 1, 0]), np.array([1, 0, 2])])
    found = {
        (int(e), int(t)): int(i) for e, t, i in zip(moe.expert, moe.token, layout, strict=True)
    }
    assert found == {(0, 2): 0, (0, 0): 1, (0, 1): 2, (1, 1): 0, (1, 0): 1, (1, 2): 2}
    with pytest.raises(ValueError, match="`arrival` of GPU 1 must have all of its tokens"):
        moe.layout([np.array([2, 0, 1]), np.array([1, 0])])


def test_order_of_tokens_changes_no_output() -> None:
    """Outputs are of pairs, wherever the pairs lie."""
    moe = layer(seed=7)
    outputs = moe.outputs(TwoGemms(moe.experts, 64, 8))
    rng = np.random.default_rng(8)
    arrival = [rng.permutation(len(moe.ids)) for _ in range(moe.gpus)]
    _, _, bound = bindings(moe, moe.hsize, 128)
    one = moe.images(bound, 128, moe.layout(), outputs)
    two = moe.images(bound, 128, moe.layout(arrival), outputs)
    for a, b in zip(one, two, strict=True):
        for (_, left), (_, right) in zip(a, b, strict=True):
            assert sorted(left.tobytes()) == sorted(right.tobytes())


@pytest.mark.parametrize("k", [1, 5, 32])
def test_top_k(k: int) -> None:
    moe = layer(k=k, experts_per_gpu=8, tokens=20, hidden=8, masked=0.0)
    assert (moe.counts == k).all()
    assert moe.nactive.sum() == 20 * k
    outputs = moe.outputs(TwoGemms(moe.experts, 8, 4))
    assert np.array_equal(moe.combine(outputs), one_by_one(moe, outputs, presum=True))


def test_experts_and_gpus_without_tokens_and_tokens_without_targets() -> None:
    moe = layer(masked=0.0)
    ids = np.where(moe.ids < 8, moe.ids, -1)  # GPUs 2 and 3 get nothing
    ids[ids == 3] = -1
    ids[5] = -1
    quiet = MoeLayer(
        gpus=4,
        experts_per_gpu=4,
        dtype=moe.dtype,
        tokens=moe.tokens,
        sources=moe.sources,
        ids=ids,
        weights=moe.weights,
    )
    assert quiet.counts[5] == 0
    assert not quiet.nactive[[3, *range(8, 16)]].any()
    outputs = quiet.outputs(TwoGemms(16, 64, 8))
    result = quiet.combine(outputs)
    assert not result[5].any()
    assert np.array_equal(result, one_by_one(quiet, outputs, presum=True))
    _, _, bound = bindings(quiet, quiet.hsize, 128)
    images = quiet.images(bound, 128, quiet.layout(), outputs)
    assert not any(content.any() for _, content in images[3])


def test_nobody_sends_anything() -> None:
    moe = layer(masked=1.1)
    outputs = moe.outputs(TwoGemms(16, 64, 8))
    assert outputs.shape == (0, 64)
    for presum in (False, True):
        assert not moe.combine(outputs, presum=presum).any()
    none = layer(tokens=0)
    assert none.combine(none.outputs(TwoGemms(16, 64, 8))).shape == (0, 64)


def test_a_single_part_has_the_canonical_nan() -> None:
    moe = layer(DType.F16, k=1, masked=0.0)
    outputs = moe.outputs(TwoGemms(16, 64, 8))
    outputs[:, 0] = 0xFD55
    for presum in (False, True):
        result = moe.combine(outputs, presum=presum)
        assert (result[:, 0] == 0x7E00).all()
        assert np.array_equal(result[:, 1:], outputs[:, 1:])


def test_too_little_room() -> None:
    moe = layer()
    _, _, bound = bindings(moe, moe.hsize, 128)
    more = layer(masked=0.0, k=8)
    with pytest.raises(ValueError, match="`nactive` of expert 0 must be"):
        more.images(bound, 128, more.layout())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"dtype": DType.U32}, "`dtype` must be a float type"),
        ({"dtype": DType.F16_TO_F32}, "`dtype` must be a float type"),
        ({"dtype": DType.F32}, "`tokens` must be a table of uint32"),
        ({"tokens": np.zeros((40, 4), np.uint16)}, "must be a multiple of 16 B, not 8"),
        ({"tokens": np.zeros((40, 0), np.uint16)}, "must be a multiple of 16 B, not 0"),
        ({"ids": np.zeros((39, 4), np.int64)}, "`ids` must have a row for each token"),
        ({"ids": np.zeros((40, 4), np.int64)}, "`ids` must not have an expert twice"),
        ({"ids": np.full((40, 4), 16)}, "`ids` must be below 16, not 16"),
        ({"weights": np.zeros((40, 4))}, "`weights` must be f32"),
        ({"weights": np.zeros((40, 3), np.float32)}, "`weights` must be f32 in the shape"),
        ({"sources": np.full(40, 4)}, "`sources` must be a GPU below 4"),
        ({"sources": np.zeros(39, np.int64)}, "`sources` must be a GPU below 4"),
    ],
)
def test_wrong_layers(changes: dict[str, Any], text: str) -> None:
    moe = layer()
    names = ("gpus", "experts_per_gpu", "dtype", "tokens", "sources", "ids", "weights")
    with pytest.raises(ValueError, match=text):
        MoeLayer(**{name: getattr(moe, name) for name in names} | changes)
