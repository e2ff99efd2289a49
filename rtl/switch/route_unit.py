# SPDX-License-Identifier: Apache-2.0
"""Route unit: which GPUs the targets of an extension flit live on."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, one_hot_mux, tree
from ..common.round_robin import RoundRobin
from ..flits import EXTENSION, FLIT_BITS, LANES, TARGET_BITS
from ..params import SwitchParams

__all__ = ["MULTIPLE_BITS", "RouteSignature", "RouteUnit", "lane_layout"]

MULTIPLE_BITS = TARGET_BITS + 1
"""Width of a multiple of ``experts_per_gpu``; one that is larger than every target saturates."""


def lane_layout(params: SwitchParams) -> data.StructLayout:
    """Where one target lives: ``valid`` and the number of its GPU."""
    return data.StructLayout({"valid": 1, "gpu": range(params.gpus)})


class RouteSignature(wiring.Signature):
    """A port's side of a :class:`RouteUnit`, without the flit.

    Members
    -------
    request, count : Out
        An extension flit is offered, and how many of its lanes hold a target.
    grant : In(1)
        It is taken.
    done : In(1)
        The result of the flit that was taken last is there:
    lanes, gpus, bad : In
        as in :class:`RouteUnit`.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "request": Out(1),
                "count": Out(range(LANES + 1)),
                "grant": In(1),
                "done": In(1),
                "lanes": In(data.ArrayLayout(lane_layout(params), LANES)),
                "gpus": In(params.gpus),
                "bad": In(1),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RouteSignature) and self.members == other.members

    def __repr__(self) -> str:
        return f"RouteSignature({self._params!r})"


class RouteUnit(wiring.Component):
    """Maps the targets of one extension flit to GPUs, for several ports in turn.

    GPU *g* owns the targets from ``g * experts_per_gpu`` up to, not including,
    ``(g + 1) * experts_per_gpu``. The unit compares every target with all multiples, which stand
    ready in registers, and so divides exactly for every ``experts_per_gpu``.

    Parameters
    ----------
    params : SwitchParams
        ``gpus`` and ``lanes`` are used.
    ports : int
        Ports that share the unit.

    Members
    -------
    multiples : In(17), one per GPU
        ``(g + 1) * experts_per_gpu``, saturated to 2**16.
    request : In(ports)
        Bit *i*: port *i* offers an extension flit.
    flit, count : In, one per port
        The flit, and how many of its lanes hold a target, 1 to 8.
    grant : Out(ports)
        One-hot: whose flit is taken in this cycle.
    done : Out(ports)
        One-hot: whose result is on ``lanes``, ``gpus`` and ``bad``.
    lanes : Out
        The GPU of each lane (:func:`lane_layout`).
    gpus : Out
        Bit *g*: a lane's target lives on GPU *g*.
    bad : Out(1)
        A lane's target lives on no GPU.

    Timing
    ------
    The result follows ``grant`` by ``8 / lanes`` cycles, and the unit takes the next flit in the
    cycle of ``done``. Combinational paths: ``request`` and ``flit`` to ``grant`` and a register;
    register to the result.

    Ordering
    --------
    Round robin between the ports.

    Area
    ----
    ``lanes * gpus`` comparators of 16 bits, one flit register, and a ``ports``-way multiplexer.
    """

    def __init__(self, params: SwitchParams, ports: int) -> None:
        self._params = params
        self._ports = ports
        super().__init__(
            {
                "multiples": In(MULTIPLE_BITS).array(params.gpus),
                "request": In(ports),
                "flit": In(FLIT_BITS).array(ports),
                "count": In(range(LANES + 1)).array(ports),
                "grant": Out(ports),
                "done": Out(ports),
                "lanes": Out(data.ArrayLayout(lane_layout(params), LANES)),
                "gpus": Out(params.gpus),
                "bad": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``grant`` to ``done``."""
        return LANES // self._params.lanes

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        width = params.lanes
        m.submodules.arbiter = arbiter = RoundRobin(self._ports)

        owner = Signal(self._ports)
        flit = Signal(EXTENSION)
        valid = Signal(LANES)
        step = Signal(range(self.latency + 1))  # parts of the flit that are still to be mapped
        last_step = step == 1
        can_take = (step == 0) | last_step

        m.d.comb += [
            arbiter.request.eq(self.request & can_take.replicate(self._ports)),
            arbiter.advance.eq(1),
            self.grant.eq(arbiter.grant),
            self.done.eq(owner & last_step.replicate(self._ports)),
        ]
        with m.If(arbiter.grant.any()):
            m.d.sync += [
                owner.eq(arbiter.grant),
                flit.as_value().eq(one_hot_mux(arbiter.grant, self.flit)),
                step.eq(self.latency),
            ]
            count = one_hot_mux(arbiter.grant, self.count)
            m.d.sync += valid.eq(Cat(count > lane for lane in range(LANES)))
        with m.Elif(step != 0):
            m.d.sync += step.eq(step - 1)

        # The lanes that are mapped in this cycle: a group of `width`, from lane 0 upwards.
        groups = LANES // width
        mapped = []
        for lane in range(width):
            target = Signal(TARGET_BITS, name=f"target{lane}")
            is_valid = Signal(name=f"is_valid{lane}")
            choices = [flit[group * width + lane] for group in range(groups)]
            valids = [valid[group * width + lane] for group in range(groups)]
            select = Cat(step == groups - group for group in range(groups))
            m.d.comb += [
                target.eq(one_hot_mux(select, choices) if groups > 1 else choices[0]),
                is_valid.eq(one_hot_mux(select, valids) if groups > 1 else valids[0]),
            ]
            mapped.append(_map_lane(m, params, target, is_valid, self.multiples, lane))
        gpus = tree([one_hot for one_hot, _, _ in mapped])
        bad = any_of(is_bad for _, _, is_bad in mapped)
        lanes = Cat(entry for _, entry, _ in mapped)
        if groups == 1:
            m.d.comb += [self.gpus.eq(gpus), self.bad.eq(bad), self.lanes.as_value().eq(lanes)]
            return m
        kept_gpus = Signal(params.gpus)
        kept_bad = Signal()
        kept_lanes = Signal(len(lanes) * (groups - 1))
        first = step == groups
        m.d.sync += [
            kept_gpus.eq(Mux(first, 0, kept_gpus) | gpus),
            kept_bad.eq(~first & kept_bad | bad),
            kept_lanes.eq(Cat(kept_lanes, lanes)[len(lanes) :]),
        ]
        m.d.comb += [
            self.gpus.eq(kept_gpus | gpus),
            self.bad.eq(kept_bad | bad),
            self.lanes.as_value().eq(Cat(kept_lanes, lanes)),
        ]
        return m


def _map_lane(m: Module, params: SwitchParams, target, valid, multiples, lane: int):
    """Return the GPU mask, the lane entry and the bad flag of one target."""
    # beyond[g]: the target lies beyond GPU g. A thermometer code, since the multiples grow.
    beyond = Signal(params.gpus, name=f"beyond{lane}")
    m.d.comb += beyond.eq(Cat(target >= multiple for multiple in multiples))
    below = Cat(1, beyond[:-1])
    one_hot = Signal(params.gpus, name=f"one_hot{lane}")
    m.d.comb += one_hot.eq(below & ~beyond & valid.replicate(params.gpus))
    entry = Signal(lane_layout(params), name=f"entry{lane}")
    m.d.comb += [entry.valid.eq(valid)]
    for bit in range(len(entry.gpu)):
        m.d.comb += entry.gpu[bit].eq(
            any_of(one_hot[gpu] for gpu in range(params.gpus) if gpu >> bit & 1)
        )
    return one_hot, entry.as_value(), beyond[-1] & valid
