# SPDX-License-Identifier: Apache-2.0
"""Results of many requests at once, if every one of them is answered as it should be.

What goes wrong, and what depends on time, is in :mod:`dysharp.golden.reduction`.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..rtl.flits import DType, Kind, Opcode, ReduceOp, Status
from ..rtl.params import SwitchParams
from .arms import IS_TO_F32, IS_WIDE, Arms, results
from .arrays import FlitArray, IntArray, Mask, as_integers, offsets, ragged_index, value_of
from .flits import unpack_headers
from .numerics import reduce_ordered
from .packets import Packets

__all__ = ["combine", "port_results", "sums"]

_LOAD = value_of(Kind.LOAD)
_OK = value_of(Status.OK)
_REQUESTS_AT_ONCE = 1024
"""So many that their data stays in the cache."""


def sums(
    op: int, dtype: int, parts: npt.NDArray[np.uint64], presum: Mask
) -> npt.NDArray[np.uint64]:
    """Add the parts of loads of one kind.

    Parameters
    ----------
    op, dtype : int
        Operation and type of all of them.
    parts : ndarray
        Shape ``(loads, parts, flits, 2)``: the data of their parts, in the order of the sum. If
        any part is a pre-sum, all that are none have as many flits more, which do not matter.
    presum : ndarray
        Shape ``(loads, parts)``, true where a part is an f32 pre-sum of a wide load.

    Returns
    -------
    ndarray
        Shape ``(loads, flits, 2)``.
    """
    ordered = parts.swapaxes(0, 1)
    half = ordered[:, :, : parts.shape[2] // 2] if presum.any() else ordered
    patterns, of_load = np.unique(presum, axis=0, return_inverse=True)
    made = {}
    for number, pattern in enumerate(patterns):
        same = np.flatnonzero(of_load.reshape(-1) == number)
        data = (ordered if pattern.any() else half)[:, same]
        made[number] = (
            same,
            reduce_ordered(ReduceOp(op), DType(dtype), data, pattern if pattern.any() else None),
        )
    out = np.empty((len(parts), *made[0][1].shape[1:]), np.uint64)
    for same, some in made.values():
        out[same] = some
    return out


def combine(
    arms: Arms,
    gpu: int,
    parts: npt.NDArray[np.uint64],
    *,
    answers: IntArray | None = None,
    presum: Mask | None = None,
    arrival: IntArray | None = None,
) -> Packets:
    """Results of requests that all their GPUs answer well.

    Parameters
    ----------
    arms : Arms
        The requests.
    gpu : int
        The GPU that sent them.
    parts : ndarray
        Shape ``(requests, parts, flits, 2)``: the data of all parts, of each request by ascending
        GPU. Flits behind the length of a part are not looked at; nothing is, of stores.
    answers : ndarray, optional
        How many parts each request has, if not as many as the array holds.
    presum : ndarray, optional
        Shape ``(requests, parts)``, true where a part is an f32 pre-sum of a wide load.
    arrival : ndarray, optional
        Shape ``(requests, parts)``: the numbers of the parts of a request in the order in which the
        switch took them. Looked at for requests that are not in canonical order.

    Returns
    -------
    Packets
        The results, in the order of the requests.

    Raises
    ------
    ValueError
        If the shapes do not agree, a request has no part, or a part is longer than the array.
    """
    if parts.ndim != 4 or parts.shape[0] != len(arms) or parts.shape[3] != 2:
        raise ValueError(f"`parts` must have the shape ({len(arms)}, p, f, 2), not {parts.shape!r}")
    number, most, flits, _ = parts.shape
    for name, array in (("presum", presum), ("arrival", arrival)):
        if array is not None and array.shape != (number, most):
            raise ValueError(
                f"`{name}` must have the shape {(number, most)!r}, not {array.shape!r}"
            )
    counts = as_integers("answers", most if answers is None else answers, 1, most)
    counts = np.broadcast_to(counts, number)
    load = arms.kind == _LOAD
    doubled = np.zeros((number, most), bool) if presum is None else presum & load[:, None]
    if (doubled & ~IS_WIDE[arms.dtype][:, None]).any():
        raise ValueError("`presum` must be false for loads that are not wide")
    order = np.broadcast_to(np.arange(most), (number, most))
    if arrival is not None:
        order = np.where(arms.canonical[:, None], order, arrival)
    used = (np.arange(most) < counts[:, None]) & load[:, None]
    row, place = np.nonzero(used)
    part = order[row, place]
    sizes = arms.length[row] * np.where(doubled[row, part], 2, 1)
    if (sizes > flits).any():
        raise ValueError(f"`parts` must have {int(sizes.max())} flits a part, not {flits!r}")
    data = _sums(
        arms.select(load),
        np.ascontiguousarray(parts).reshape(-1, 2),
        (row * most + part) * flits,
        sizes,
        counts[load],
    )
    return results(arms, gpu, Status.OK, data=data)


def _sums(
    loads: Arms, flits: FlitArray, begins: IntArray, sizes: IntArray, counts: IntArray
) -> FlitArray:
    """Return the sums of loads, end to end.

    `flits` holds the data of the parts, which stand at `begins` and have `sizes`. The first load
    has the first of `counts` parts, in the order of its sum.
    """
    becomes = loads.length * np.where(IS_TO_F32[loads.dtype], 2, 1)
    first_out, first_part = offsets(becomes), offsets(counts)
    out = np.empty((int(becomes.sum()), 2), np.uint64)
    kinds, kind = np.unique(
        np.stack([loads.dtype, loads.op, loads.length, counts], axis=1), axis=0, return_inverse=True
    )
    for number, (dtype, op, length, parts) in enumerate(kinds.tolist()):
        same = np.flatnonzero(kind.reshape(-1) == number)
        for at in range(0, len(same), _REQUESTS_AT_ONCE):
            some = same[at : at + _REQUESTS_AT_ONCE]
            part = first_part[some, None] + np.arange(parts)
            presum = sizes[part] != length
            place = np.arange(length * (2 if presum.any() else 1))
            at_part = np.minimum(place, sizes[part][:, :, None] - 1)
            data = flits[begins[part][:, :, None] + at_part]
            made = sums(op, dtype, data, presum)
            out[ragged_index(first_out[some], becomes[some])] = made.reshape(-1, 2)
    return out


def port_results(
    params: SwitchParams, port: int, arms: Arms, parts: Mapping[int, Packets]
) -> dict[tuple[int, int], FlitArray]:
    """Results of one port where every request is answered completely and correctly.

    A target's error is a correct answer too. Parts are added by ascending GPU. So results of
    requests in order of arrival are the right ones only if their data gives the same sum in any
    order.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    port : int
        The port.
    arms : Arms
        Its requests in order. A tag may come again; every use of it is answered before the next.
    parts : mapping
        The parts for it by source port, in order.

    Returns
    -------
    dict
        The flits of each result, by tag and by which use of the tag it is, from 0.

    Raises
    ------
    ValueError
        If a request is not answered completely and correctly, or parts are left over.
    """
    streams = sorted(parts.items())
    joined = Packets.concatenate(*(packets for _, packets in streams))
    sources = np.array([source for source, _ in streams], np.int64)
    gpu = np.repeat(sources // params.links_per_gpu, [len(packets) for _, packets in streams])
    fields = unpack_headers(joined.headers)
    request = _request_of_parts(params, arms, gpu, fields)
    order = np.lexsort((np.arange(len(gpu)), gpu, request))
    request, gpu = request[order], gpu[order]
    fields = {name: column[order] for name, column in fields.items()}
    _check_parts(arms, request, fields)

    status = np.zeros(len(arms), np.int64)
    np.maximum.at(status, request, fields["aux"])
    faulty = np.zeros(len(arms), np.uint64)
    bits = np.left_shift(np.uint64(1), gpu.astype(np.uint64))
    np.bitwise_or.at(faulty, request, np.where(fields["aux"] != _OK, bits, np.uint64(0)))
    summed = (arms.kind == _LOAD) & (status == _OK)
    used = summed[request]
    data = _sums(
        arms.select(summed),
        joined.flits,
        joined.starts[order][used] + 1,
        fields["length"][used],
        np.bincount(request, minlength=len(arms))[summed],
    )
    ended = results(arms, port // params.links_per_gpu, status, data=data, faulty=faulty)
    use = _ranks(arms.tag)
    keys = zip(arms.tag.tolist(), use.tolist(), strict=True)
    return dict(zip(keys, ended, strict=True))


def _ranks(keys: IntArray, steps: IntArray | None = None) -> IntArray:
    """How many `steps` (by default 1 each) of equal keys stand before each key."""
    order = np.argsort(keys, kind="stable")
    step = np.ones(len(keys), np.int64) if steps is None else steps[order]
    before = np.cumsum(step) - step
    first = np.diff(keys[order], prepend=-1) != 0
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = before - before[np.flatnonzero(first)][np.cumsum(first) - 1]
    return ranks


def _wrong(arms: Arms, index: int) -> ValueError:
    use = int(np.count_nonzero(arms.tag[:index] == arms.tag[index]))
    return ValueError(
        "`parts` must answer every request completely and correctly, "
        f"not use {use} of tag {int(arms.tag[index])}"
    )


def _request_of_parts(
    params: SwitchParams, arms: Arms, gpu: IntArray, fields: dict[str, IntArray]
) -> IntArray:
    """Request that each part answers: the *k*-th answer of a GPU to a tag is to its *k*-th copy."""
    gpus = np.arange(params.gpus, dtype=np.uint64)
    copies = np.nonzero(arms.expected[:, None] >> gpus & np.uint64(1))
    copy, copy_gpu = copies[0], copies[1]
    pair = copy_gpu * params.entries + arms.tag[copy]
    copy_key = pair * (len(arms) + 1) + _ranks(pair)
    last = (fields["more"] == 0).astype(np.int64)
    pair = gpu * params.entries + fields["tag"]
    part_key = pair * (len(arms) + 1) + np.minimum(_ranks(pair, last), len(arms))
    order = np.argsort(copy_key)
    at = np.searchsorted(copy_key[order], part_key)
    known = at < len(copy)
    known[known] = copy_key[order][at[known]] == part_key[known]
    known &= fields["tag"] < params.entries
    if not known.all():
        tag = int(fields["tag"][~known][0])
        raise ValueError(f"`parts` must be answers to requests, not to tag {tag}")
    answered = np.zeros(len(copy), np.int64)
    np.add.at(answered, order[at], last)
    if not answered.all():
        raise _wrong(arms, int(copy[answered == 0].min()))
    request: IntArray = copy[order[at]]
    return request


def _check_parts(arms: Arms, request: IntArray, fields: dict[str, IntArray]) -> None:
    load = arms.kind[request] == _LOAD
    dtype, length = arms.dtype[request], arms.length[request]
    same = (fields["dtype"] == dtype) & (fields["length"] == length)
    presum = (fields["dtype"] == value_of(DType.F32)) & (fields["length"] == 2 * length)
    has_data = fields["opcode"] == value_of(Opcode.PART_DATA)
    fits = np.where(
        load, (fields["aux"] != _OK) | (has_data & (same | (presum & IS_WIDE[dtype]))), ~has_data
    )
    fits &= (fields["gen"] == arms.gen[request]) & (fields["count"] > 0)
    covered = np.zeros(len(arms), np.int64)
    np.add.at(covered, request, fields["count"])
    wrong = covered != arms.total
    wrong[request[~fits]] = True
    if wrong.any():
        raise _wrong(arms, int(np.flatnonzero(wrong)[0]))
