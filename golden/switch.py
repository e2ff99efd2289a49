# SPDX-License-Identifier: Apache-2.0
"""The switch as a function from packets to packets: copies, refusals and counters.

What leaves a port is exact up to the interleaving of its sources: the packets from one input port
in one virtual channel keep their order, packets of different pairs may mix in any order.

Answers of GPUs to multicast requests (*parts*) do not leave; how they meet is a matter of time. The
model says which requests arm entries and which parts reach them; :mod:`dysharp.golden.reduction`
says what becomes of them in a given order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np

from ..rtl.flits import (
    LANES,
    MAX_DATA_FLITS,
    TARGET_BITS,
    Addressing,
    Opcode,
    Status,
    Vc,
)
from ..rtl.params import SwitchParams
from ..rtl.register_map import COUNTERS
from .arms import Arms, replaced_results
from .arrays import FlitArray, IntArray, Mask, offsets, ragged_index, value_of, values_of
from .batch import Batch, Copies, arms_of, entry_status, header_status, plain_copies
from .flits import (
    extension_flits,
    lanes_of,
    replace_fields,
    unpack_headers,
)
from .packets import Packets
from .route import ports_of, prune

__all__ = ["SwitchConfig", "SwitchModel", "SwitchResult"]

_COUNTER_MASK = (1 << 32) - 1
_CHANNELS = values_of(Vc)
_COPIES_AT_ONCE = 2048
"""So many that indices and flits stay in the cache."""
_NO_PACKETS = Packets()


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"`{name}` must be {low} to {high}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class SwitchConfig:
    """What software writes into the switch's registers.

    Parameters
    ----------
    experts_per_gpu : int
        1 to 65535.
    groups : tuple of int
        GPU mask of each static group; 0 for one that is not configured. Bits of GPUs that do not
        exist are ignored.
    partitions : tuple of int
        Partition of each port.
    timeout : int
        Limit on the life of a reduction entry in ticks of 64 cycles, 0 to 65535; 0 is no limit.
    """

    experts_per_gpu: int
    groups: tuple[int, ...]
    partitions: tuple[int, ...]
    timeout: int = 0

    def __post_init__(self) -> None:
        """Check all values; their number is checked by :class:`SwitchModel`."""
        _check_range("experts_per_gpu", self.experts_per_gpu, 1, (1 << TARGET_BITS) - 1)
        for mask in self.groups:
            _check_range("groups", mask, 0, (1 << 64) - 1)
        for partition in self.partitions:
            _check_range("partitions", partition, 0, (1 << 32) - 1)
        _check_range("timeout", self.timeout, 0, (1 << 16) - 1)

    @classmethod
    def at_reset(cls, params: SwitchParams) -> "SwitchConfig":
        """Return what the registers hold after reset: one expert a GPU, no group, one partition."""
        return cls(experts_per_gpu=1, groups=(0,) * params.groups, partitions=(0,) * params.ports)


@dataclass(frozen=True, eq=False)
class SwitchResult:
    """What the switch makes of its inputs.

    Parameters
    ----------
    outputs : tuple of dict
        For each output port, the forwarded packets in order by (source port, virtual channel).
        Pairs without a packet are left out.
    refusals : tuple of Packets
        For each port, the answers to its own malformed requests in order. They leave by that port
        in the response channel.
    counters : dict
        For each name in :data:`dysharp.rtl.register_map.COUNTERS`, one value a port. On ports that
        are not `settled`, results are left out and the counters from ``late`` on are 0.
    arms : tuple of Arms
        For each port, its own requests that arm reduction entries, in order.
    parts : tuple of dict
        For each port, the well-formed parts for it by source port, in order. Sources without a part
        are left out.
    settled : tuple of bool
        For each port, whether results follow from the inputs alone: no request arms an entry, or
        there are neither parts nor a time-out.
    results : tuple of Packets
        For each settled port, its results in order: all ``REPLACED``, as no answers came.
    """

    outputs: tuple[Mapping[tuple[int, int], Packets], ...]
    refusals: tuple[Packets, ...]
    counters: dict[str, IntArray]
    arms: tuple[Arms, ...]
    parts: tuple[Mapping[int, Packets], ...]
    settled: tuple[bool, ...]
    results: tuple[Packets, ...]

    def packets(self, port: int, source: int, vc: Enum | int) -> Packets:
        """Return the packets that went from port `source` to `port`, perhaps none."""
        channel = value_of(vc) if isinstance(vc, Enum) else vc
        return self.outputs[port].get((source, channel), _NO_PACKETS)


class SwitchModel:
    """Golden model of one switch.

    Parameters
    ----------
    params : SwitchParams
        Shape of the switch.
    config : SwitchConfig
        Its registers.

    Errors
    ------
    Requests that break a rule are consumed whole and answered with the first
    :class:`~dysharp.rtl.flits.Status` that applies, in the order of the numbers (``refused``). The
    answer is the request's header with ``RSP_ACK``, the status, no data and the response channel.
    Responses that break a rule are consumed whole without an answer (``dropped``): another channel,
    a GPU that does not exist, a wrong length, a byte-enable flit, or a requester outside the
    sender's partition.
    """

    def __init__(self, params: SwitchParams, config: SwitchConfig) -> None:
        for name, length in (("groups", params.groups), ("partitions", params.ports)):
            value = getattr(config, name)
            if len(value) != length:
                raise ValueError(f"`{name}` must be {length} values, not {len(value)!r}")
        self._params = params
        self._config = config
        known = np.zeros(16, bool)
        for opcode in values_of(Opcode):
            known[opcode] = params.dynamic or opcode >> 2 != value_of(Addressing.DYNAMIC)
        self._known = known
        self._partitions = np.array(config.partitions, np.int64)
        gpus = range(params.gpus)
        self._groups = np.array([[mask >> gpu & 1 for gpu in gpus] for mask in config.groups], bool)

    @property
    def params(self) -> SwitchParams:
        """Shape of the switch."""
        return self._params

    @property
    def config(self) -> SwitchConfig:
        """Its registers."""
        return self._config

    def process(self, inputs: Sequence[Packets | FlitArray]) -> SwitchResult:
        """Send packets through the switch.

        Parameters
        ----------
        inputs : sequence of Packets or ndarray
            For each input port, its whole packets in order.

        Raises
        ------
        ValueError
            If there is not one input for each port, or one ends inside a packet.
        """
        if len(inputs) != self._params.ports:
            raise ValueError(
                f"`inputs` must be one for each of {self._params.ports} ports, not {len(inputs)!r}"
            )
        streams = [item if isinstance(item, Packets) else Packets(item) for item in inputs]
        joined = Packets.concatenate(*streams)
        batch = Batch(
            flits=joined.flits,
            starts=joined.starts,
            sizes=joined.sizes,
            source=np.repeat(np.arange(len(streams)), [len(stream) for stream in streams]),
            fields=unpack_headers(joined.headers),
        )
        status = header_status(self._params, self._known, batch)
        dropped, responses, parts = self._responses(batch)
        requests = [
            self._unicast(batch, status),
            self._static(batch, status),
            self._dynamic(batch, status),
        ]
        outputs, sent_flits, sent = self._send(batch, [responses, *requests])
        refusals = self._refuse(batch, status)
        arms = arms_of(self._params, batch, requests)
        at_port = self._parts_at_ports(joined, batch, parts)
        arrived = np.array([sum(map(len, sources.values())) for sources in at_port])
        armed = np.array([len(some) for some in arms])
        settled = (armed == 0) | ((arrived == 0) & (self._config.timeout == 0))
        results = tuple(
            replaced_results(some, port // self._params.links_per_gpu) if known else _NO_PACKETS
            for port, (some, known) in enumerate(zip(arms, settled.tolist(), strict=True))
        )

        def per_port(port: IntArray) -> IntArray:
            return np.bincount(port, minlength=self._params.ports)

        responds = batch.is_response
        refused = per_port(batch.source[status > 0])
        replaced = np.array([len(packets) for packets in results])
        nothing = np.zeros_like(replaced)
        counters = {
            "rx_flits": np.array([len(stream.flits) for stream in streams]),
            "rx_requests": per_port(batch.source[~responds]),
            "rx_responses": per_port(batch.source[responds]),
            "tx_flits": sent_flits + refused + [len(packets.flits) for packets in results],
            "tx_requests": sent[value_of(Vc.REQUEST)],
            "tx_responses": sent[value_of(Vc.RESPONSE)] + refused + replaced,
            "refused": refused,
            "dropped": per_port(batch.source[dropped]),
            "late": np.where(settled, arrived, 0),
            "duplicates": nothing,
            "wrong": nothing,
            "timeouts": nothing,
            "replaced": replaced,
        }
        return SwitchResult(
            outputs,
            refusals,
            {counter.name: counters[counter.name] & _COUNTER_MASK for counter in COUNTERS},
            arms,
            at_port,
            tuple(settled.tolist()),
            results,
        )

    def _crosses(self, batch: Batch, packet: IntArray, port: IntArray) -> Mask:
        """Return whether these packets would leave their sender's partition."""
        crosses: Mask = self._partitions[batch.source[packet]] != self._partitions[port]
        return crosses

    def _responses(self, batch: Batch) -> tuple[Mask, Copies, Copies]:
        """Which packets are dropped, and where the other responses and the parts go."""
        params, fields = self._params, batch.fields
        opcode, length = fields["opcode"], fields["length"]
        has_data = (opcode == value_of(Opcode.RSP_DATA)) | (opcode == value_of(Opcode.PART_DATA))
        wrong = fields["vc"] != value_of(Vc.RESPONSE)
        wrong |= (fields["gpu"] >= params.gpus) | (fields["byte_enable"] == 1)
        wrong |= np.where(has_data, (length == 0) | (length > MAX_DATA_FLITS), length != 0)
        good = np.flatnonzero(batch.is_response & ~wrong)
        port = ports_of(fields["gpu"][good], fields["address"][good], params.links_per_gpu)
        stays = ~self._crosses(batch, good, port)
        dropped = batch.is_response.copy()
        good, port = good[stays], port[stays]
        dropped[good] = False
        part = (opcode[good] == value_of(Opcode.PART_ACK)) | (
            opcode[good] == value_of(Opcode.PART_DATA)
        )
        return (
            dropped,
            plain_copies(good[~part], port[~part]),
            plain_copies(good[part], port[part]),
        )

    def _parts_at_ports(
        self, joined: Packets, batch: Batch, parts: Copies
    ) -> tuple[dict[int, Packets], ...]:
        """Parts by port and then by source."""
        pair = parts.port * self._params.ports + batch.source[parts.packet]
        order = np.argsort(pair, kind="stable")
        packets, pair = joined.select(parts.packet[order]), pair[order]
        at_port: tuple[dict[int, Packets], ...] = tuple({} for _ in range(self._params.ports))
        bounds = [*np.flatnonzero(np.diff(pair, prepend=-1)).tolist(), len(pair)]
        for first, last in pairwise(bounds):
            port, source = divmod(int(pair[first]), self._params.ports)
            at_port[port][source] = packets.slice(first, last)
        return at_port

    def _addressed(self, batch: Batch, status: IntArray, how: int) -> IntArray:
        """Return the requests of one addressing that no check has refused so far."""
        same = batch.fields["opcode"] >> 2 == how
        return np.flatnonzero(same & (status == value_of(Status.OK)))

    def _admitted(self, batch: Batch, status: IntArray, copies: Copies) -> Copies:
        """Refuse requests by the checks from PARTITION on; return the copies of the others."""
        status[copies.packet] = entry_status(self._params, batch)[copies.packet]
        status[copies.packet[self._crosses(batch, copies.packet, copies.port)]] = value_of(
            Status.PARTITION
        )
        keep = status[copies.packet] == value_of(Status.OK)
        of_kept = np.repeat(keep, np.maximum(copies.count, 0))
        return Copies(
            copies.packet[keep], copies.port[keep], copies.count[keep], copies.targets[of_kept]
        )

    def _unicast(self, batch: Batch, status: IntArray) -> Copies:
        params, fields = self._params, batch.fields
        packet = self._addressed(batch, status, value_of(Addressing.UNICAST))
        beyond = fields["count"][packet] >= params.gpus
        status[packet[beyond]] = value_of(Status.BAD_TARGET)
        packet = packet[~beyond]
        port = ports_of(fields["count"][packet], fields["address"][packet], params.links_per_gpu)
        return self._admitted(batch, status, plain_copies(packet, port))

    def _static(self, batch: Batch, status: IntArray) -> Copies:
        params, fields = self._params, batch.fields
        packet = self._addressed(batch, status, value_of(Addressing.STATIC))
        group = fields["count"][packet]
        configured = np.zeros(1 << 15, bool)
        configured[: params.groups] = self._groups.any(axis=1)
        status[packet[~configured[group]]] = value_of(Status.NO_GROUP)
        packet, group = packet[configured[group]], group[configured[group]]
        row, gpu = np.nonzero(self._groups[group])
        packet = packet[row]
        port = ports_of(gpu, fields["address"][packet], params.links_per_gpu)
        return self._admitted(batch, status, plain_copies(packet, port))

    def _dynamic(self, batch: Batch, status: IntArray) -> Copies:
        params, fields = self._params, batch.fields
        packet = self._addressed(batch, status, value_of(Addressing.DYNAMIC))
        counts = fields["count"][packet]
        status[packet[counts == 0]] = value_of(Status.COUNT_ZERO)
        status[packet[counts > params.max_targets]] = value_of(Status.TOO_MANY_TARGETS)
        packet = packet[(counts > 0) & (counts <= params.max_targets)]

        counts = fields["count"][packet]
        lanes = ragged_index((batch.starts[packet] + 1) * LANES, counts)
        targets = lanes_of(batch.flits)[lanes].astype(np.int64)
        beyond = targets >= self._config.experts_per_gpu * params.gpus
        status[np.repeat(packet, counts)[beyond]] = value_of(Status.BAD_TARGET)
        good = status[packet] == value_of(Status.OK)
        targets, packet = targets[np.repeat(good, counts)], packet[good]

        pruned = prune(
            targets,
            counts[good],
            fields["address"][packet],
            experts_per_gpu=self._config.experts_per_gpu,
            gpus=params.gpus,
            links_per_gpu=params.links_per_gpu,
        )
        copies = Copies(packet[pruned.packet], pruned.port, pruned.count, pruned.targets)
        return self._admitted(batch, status, copies)

    def _send(
        self, batch: Batch, kinds: Sequence[Copies]
    ) -> tuple[tuple[dict[tuple[int, int], Packets], ...], IntArray, list[IntArray]]:
        """Make all copies; returns outputs, flits a port, and packets a port of each channel."""
        ports = self._params.ports
        packet = np.concatenate([copies.packet for copies in kinds])
        port = np.concatenate([copies.port for copies in kinds])
        count = np.concatenate([copies.count for copies in kinds])
        vc = batch.fields["vc"][packet]
        pair = (port * ports + batch.source[packet]) * len(_CHANNELS) + vc

        # Dynamic copies are last and the lists follow their order, so lists are moved with them.
        order = np.lexsort((packet, pair))
        targets = np.concatenate([copies.targets for copies in kinds])
        list_begins = offsets(np.maximum(count, 0))[order]
        packet, port, count, vc, pair = (x[order] for x in (packet, port, count, vc, pair))
        targets = targets[ragged_index(list_begins, np.maximum(count, 0))]

        flits, starts = self._make(batch, packet, count, targets)
        packets = Packets(flits, starts)
        outputs: tuple[dict[tuple[int, int], Packets], ...] = tuple({} for _ in range(ports))
        bounds = [*np.flatnonzero(np.diff(pair, prepend=-1)).tolist(), len(pair)]
        for first, last in pairwise(bounds):
            key = (int(batch.source[packet[first]]), int(vc[first]))
            outputs[int(port[first])][key] = packets.slice(first, last)
        sent_flits = np.zeros(ports, np.int64)
        np.add.at(sent_flits, port, packets.sizes)
        sent = [np.bincount(port[vc == channel], minlength=ports) for channel in _CHANNELS]
        return outputs, sent_flits, sent

    @staticmethod
    def _make(
        batch: Batch, packet: IntArray, count: IntArray, targets: IntArray
    ) -> tuple[FlitArray, IntArray]:
        """Flits of copies and where each copy begins."""
        pruned = count >= 0
        new_lists = extension_flits(np.maximum(count, 0))
        old_lists = np.where(pruned, extension_flits(batch.fields["count"][packet]), 0)
        cut = old_lists - new_lists
        sizes = batch.sizes[packet] - cut
        starts = offsets(sizes)
        # A copy and its packet are equal at their ends, so both are read from there; of a pruned
        # copy, header and list are then written over. 16 bytes at a time, which NumPy moves whole.
        flits = np.empty((int(sizes.sum()), 2), np.uint64)
        whole, begins = batch.flits.view("V16"), batch.starts[packet] + cut
        for first in range(0, len(sizes), _COPIES_AT_ONCE):
            some = slice(first, first + _COPIES_AT_ONCE)
            source = ragged_index(begins[some], sizes[some])
            at = starts[first]
            flits[at : at + len(source)] = whole[source].view(np.uint64).reshape(-1, 2)

        headers = batch.flits[batch.starts[packet[pruned]]]
        flits[starts[pruned]] = replace_fields(headers, count=count[pruned])
        flits[ragged_index(starts[pruned] + 1, new_lists[pruned])] = 0
        lanes = flits.astype(np.dtype("<u8"), copy=False).reshape(-1).view(np.dtype("<u2"))
        lanes[ragged_index((starts[pruned] + 1) * LANES, count[pruned])] = targets
        return lanes.view(np.dtype("<u8")).reshape(-1, 2).astype(np.uint64, copy=False), starts

    def _refuse(self, batch: Batch, status: IntArray) -> tuple[Packets, ...]:
        """Answers to malformed requests, for each port."""
        packet = np.flatnonzero(status)
        answers = replace_fields(
            batch.flits[batch.starts[packet]],
            opcode=Opcode.RSP_ACK,
            aux=status[packet],
            length=0,
            byte_enable=0,
            vc=Vc.RESPONSE,
        )
        every = Packets(answers, np.arange(len(answers)))
        ends = np.searchsorted(batch.source[packet], np.arange(self._params.ports + 1)).tolist()
        return tuple(every.slice(a, b) for a, b in pairwise(ends))
