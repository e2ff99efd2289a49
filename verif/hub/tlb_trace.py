# SPDX-License-Identifier: Apache-2.0
"""Lookups that a routing trace makes in the hubs, and what a TLB finds of them."""

import numpy as np
import numpy.typing as npt
from dysharp.gen.traces import Trace
from dysharp.golden.al_map import tlb_hit_rate
from dysharp.rtl.hub.translation_layouts import INDEX_BITS

__all__ = ["hit_rates", "hub_lookups"]


def hub_lookups(
    trace: Trace, *, gpus: int, experts_per_gpu: int, packets: int
) -> list[npt.NDArray[np.int64]]:
    """Return the tags that the hub of each GPU looks up when all tokens are dispatched.

    Token *t* starts at GPU *t* mod `gpus` and is block *t* of one object. Each GPU sends its tokens
    in order, each in so many packets behind each other. To a hub comes one packet from each GPU in
    turn, of those that have a target there; its targets are looked up in the order of the list.

    Parameters
    ----------
    trace : Trace
        Experts of each token.
    gpus, experts_per_gpu : int
        The experts of a GPU follow on each other.
    packets : int
        Packets of a token.
    """
    tokens, ranks = np.divmod(np.arange(trace.ids.size), trace.top_k)
    experts = trace.ids.ravel()
    hubs, local = np.divmod(experts, experts_per_gpu)
    sources = tokens % gpus
    tags = local << INDEX_BITS | tokens
    out = []
    for hub in range(gpus):
        here = hubs == hub
        token, rank, source, tag = tokens[here], ranks[here], sources[here], tags[here]
        # Tokens with a target here, counted for each source: its packets come in these turns.
        first = np.r_[True, token[1:] != token[:-1]] if len(token) else np.zeros(0, np.bool_)
        place = np.zeros(len(token), np.int64)
        for one in range(gpus):
            mine = source == one
            place[mine] = np.cumsum(first[mine]) - 1
        turn = (place[:, None] * packets + np.arange(packets)).ravel()
        source, rank, tag = (np.repeat(values, packets) for values in (source, rank, tag))
        out.append(tag[np.lexsort((rank, source, turn))])
    return out


def hit_rates(
    lookups: list[npt.NDArray[np.int64]], entries: int | None, form: str = "cam"
) -> tuple[float, float]:
    """Share of lookups that hit in a TLB per hub: the mean of the hubs, and the worst one."""
    rates = [tlb_hit_rate(tags, entries, form) for tags in lookups if len(tags)]
    return float(np.mean(rates)), min(rates)
