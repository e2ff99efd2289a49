# SPDX-License-Identifier: Apache-2.0
"""Tests the runtime: its rules, its errors, and the registers that it writes."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dysharp.golden.al_map import DynamicObject, StaticObject
from dysharp.golden.allocator import Allocator
from dysharp.golden.cuda import (
    CudaError,
    CUDymulticastObjectProp,
    CUmulticastObjectProp,
    CUresult,
)
from dysharp.golden.runtime import Runtime
from dysharp.rtl.flits import Stage
from dysharp.rtl.gpu_params import GPU_PRESETS
from dysharp.rtl.hub_register_map import hub_register_map
from dysharp.rtl.params import PRESETS
from dysharp.rtl.register_map import register_map

SWITCH, GPU = PRESETS["tiny"], GPU_PRESETS["tiny"]
MEMORY = 1 << 20
DY = CUDymulticastObjectProp(numDevices=4, hsize=2880)
STATIC = CUmulticastObjectProp(numDevices=2, size=4096)
STAGES = (Stage.DISPATCH, Stage.COMBINE)


def made(**changes: Any) -> Runtime:
    return Runtime(SWITCH, GPU, **{"memory": MEMORY, "experts_per_gpu": 2} | changes)


def registers(runtime: Runtime, device: int | None = None) -> dict[str, int]:
    """Return what is in the registers that were written since the last time."""
    todo = runtime.take()
    table = register_map(SWITCH) if device is None else hub_register_map(GPU)
    names = {register.address: register for register in table}
    writes = todo.switch if device is None else todo.hubs.get(device, [])
    for address, value in writes:
        assert names[address].access != "ro"
        assert 0 <= value < 1 << 32
    return {names[address].name: value for address, value in writes}


def regions(runtime: Runtime, device: int, counts: list[int], block: int) -> dict[Any, list[int]]:
    return {
        stage: [runtime.cuMemAlloc(device, count * block) if count else 0 for count in counts]
        for stage in STAGES
    }


def bound(runtime: Runtime, prop: CUDymulticastObjectProp = DY, ntoken: int = 8) -> int:
    handle = runtime.cuDyMulticastCreate(prop)
    for device in range(prop.numDevices):
        runtime.cuDyMulticastAddDevice(handle, device)
    for device in range(prop.numDevices):
        places = regions(runtime, device, [3, 4], prop.block)
        runtime.cuDyMulticastBindAddr(handle, device, ntoken, [3, 4], places)
    return handle


def static(runtime: Runtime, devices: tuple[int, ...] = (1, 3)) -> tuple[int, dict[int, int]]:
    handle = runtime.cuMulticastCreate(STATIC)
    for device in devices:
        runtime.cuMulticastAddDevice(handle, device)
    places = {device: runtime.cuMemAlloc(device, 8192) for device in devices}
    for device, place in places.items():
        runtime.cuMulticastBindAddr(handle, device, place)
    return handle, places


def test_results_have_the_numbers_of_cuda() -> None:
    assert int(CUresult.CUDA_SUCCESS) == 0
    assert int(CUresult.CUDA_ERROR_NOT_PERMITTED) == 800
    assert str(CudaError(CUresult.CUDA_ERROR_INVALID_VALUE, "why")) == (
        "CUDA_ERROR_INVALID_VALUE: why"
    )


def test_what_holds_for_all_objects_is_written_first() -> None:
    runtime = made(memory=3 << 32)
    todo = runtime.take()
    assert sorted(todo.hubs) == [0, 1, 2, 3]
    runtime = made(memory=(3 << 32) + 16)
    assert registers(runtime, 2) == {"memory_lo": 16, "memory_hi": 3}
    assert registers(made()) == {"experts_per_gpu": 2}
    assert not runtime.take().hubs


def test_registers_of_a_dynamic_object() -> None:
    runtime = made()
    runtime.take()
    handle = runtime.cuDyMulticastCreate(DY)
    for device in (3, 2, 1, 0):
        runtime.cuDyMulticastAddDevice(handle, device)
    places = regions(runtime, 2, [3, 4], 2880)
    runtime.cuDyMulticastBindAddr(handle, 2, 8, [3, 4], places)
    tables = runtime.binding(handle, 2).tables
    base = 1 << 44
    todo = runtime.take()
    assert todo.zeros == [(2, table, 32) for table in tables]
    assert not todo.switch
    names = {register.address: register.name for register in hub_register_map(GPU)}
    written = [(names[address], value) for address, value in todo.hubs[2]]
    assert written[-1] == ("object0_mode", 2)
    values = dict(written)
    assert values == {
        "object0_mode": 2,
        "object0_base_lo": 0,
        "object0_base_hi": base >> 32,
        "object0_blocks": 8,
        "object0_block": 180,
        "object0_reciprocal_lo": -(-(1 << 44) // 180) & 0xFFFF_FFFF,
        "object0_reciprocal_hi": -(-(1 << 44) // 180) >> 32,
        "object0_shift": 8,
        "object0_size_lo": 8 * 2880,
        "object0_size_hi": 0,
        "object0_first_expert": 4,
        "object0_experts": 2,
        "object0_stages": 3,
        **{
            f"expert0_{expert}_{name}_{half}": value
            for expert in range(2)
            for name, places_of in (
                ("dispatch", places[Stage.DISPATCH]),
                ("combine", places[Stage.COMBINE]),
                ("table", tables),
            )
            for half, value in (("lo", places_of[expert]), ("hi", 0))
        },
        "expert0_0_nactive": 3,
        "expert0_1_nactive": 4,
    }


@pytest.mark.parametrize("block", [16, 32, 2880, 7168, 14336, 4096, 1 << 20])
def test_quotients_are_exact(block: int) -> None:
    runtime = made(memory=1 << 30)
    bound(runtime, CUDymulticastObjectProp(numDevices=1, hsize=16, bsize=block))
    values = registers(runtime, 0)
    factor = values["object0_reciprocal_lo"] | values["object0_reciprocal_hi"] << 32
    assert factor < 1 << 37
    shift, units = values["object0_shift"], block // 16
    for quotient in (0, 1, 2, 1000, ((1 << 36) - 1) // units):
        for rest in {0, 1, units - 1}:
            n = quotient * units + rest
            if n < 1 << 36:
                assert n * factor >> 36 + shift == n // units


def test_stages_without_memory() -> None:
    runtime = made()
    handle = runtime.cuDyMulticastCreate(replace(DY, numDevices=1, stages=(Stage.COMBINE,)))
    runtime.cuDyMulticastAddDevice(handle, 0)
    place = runtime.cuMemAlloc(0, 2880)
    runtime.cuDyMulticastBindAddr(handle, 0, 1, [1, 0], {Stage.COMBINE: [place, 0]})
    values = registers(runtime, 0)
    assert values["object0_stages"] == 2
    assert not any("dispatch" in name for name in values)


def test_registers_of_a_static_object() -> None:
    runtime = made()
    runtime.take()
    handle, places = static(runtime)
    todo = runtime.take()
    names = {register.address: register.name for register in register_map(SWITCH)}
    assert [(names[a], v) for a, v in todo.switch] == [("group0_0", 0b1010)]
    names = {register.address: register.name for register in hub_register_map(GPU)}
    assert sorted(todo.hubs) == [1, 3]
    written = [(names[a], v) for a, v in todo.hubs[3]]
    assert written[-1] == ("object0_mode", 1)
    assert dict(written)["object0_memory_lo"] == places[3]
    assert dict(written)["object0_size_lo"] == 4096
    assert dict(written)["object0_base_hi"] == 1 << 12
    assert runtime.group(handle) == 0
    assert runtime.address(handle) == 1 << 44
    for device in (1, 3):
        runtime.cuMulticastUnbind(handle, device)
    runtime.cuMulticastDestroy(handle)
    todo = runtime.take()
    assert [value for _, value in todo.switch] == [0]
    assert [(names[a], v) for a, v in todo.hubs[1]] == [("object0_mode", 0)]


def test_objects_as_the_hub_knows_them() -> None:
    runtime = made()
    one, places = static(runtime)
    two = bound(runtime)
    assert runtime.hub_object(one, 3) == StaticObject(
        base=runtime.address(one), size=4096, memory=places[3]
    )
    seen = runtime.hub_object(two, 1)
    binding = runtime.binding(two, 1)
    assert isinstance(seen, DynamicObject)
    assert (seen.base, seen.blocks, seen.block) == (runtime.address(two), 8, 180)
    assert seen.first_expert == 2
    assert [expert.table for expert in seen.experts] == list(binding.tables)
    assert [expert.nactive for expert in seen.experts] == [3, 4]
    assert [expert.dispatch for expert in seen.experts] == list(binding.addresses[Stage.DISPATCH])
    assert [expert.combine for expert in seen.experts] == list(binding.addresses[Stage.COMBINE])
    with pytest.raises(CudaError, match="device 0 is not bound"):
        runtime.hub_object(one, 0)


def test_objects_do_not_overlap_and_slots_come_back() -> None:
    runtime = made()
    one, places = static(runtime)
    two = bound(runtime)
    assert (runtime.slot(one), runtime.slot(two)) == (0, 1)
    assert runtime.address(two) >= runtime.address(one) + STATIC.size
    assert runtime.address(two) % (1 << 21) == 0
    for device in places:
        runtime.cuMulticastUnbind(one, device)
        runtime.cuMemFree(device, places[device])
    runtime.cuMulticastDestroy(one)
    three = runtime.cuDyMulticastCreate(DY)
    assert runtime.slot(three) == 0
    assert three not in (one, two)


def test_epochs_count_clears_and_bindings() -> None:
    """A slot that was in use is cleared at the next bind: its TLB may hold old blocks."""
    runtime = made()
    handle = bound(runtime)
    assert "clear" not in registers(runtime, 1)
    assert runtime.binding(handle, 1).epoch == 1
    runtime.cuDyMulticastClear(handle)
    assert registers(runtime, 1) == {"clear": 1}
    assert runtime.binding(handle, 1).epoch == 2
    old = runtime.binding(handle, 1)
    runtime.cuDyMulticastUnbind(handle, 1)
    runtime.cuDyMulticastBindAddr(handle, 1, 8, [3, 4], old.addresses)
    todo = runtime.take()
    assert len(todo.zeros) == 2
    names = {register.address: register.name for register in hub_register_map(GPU)}
    assert names[todo.hubs[1][-1][0]] == "clear"
    assert runtime.binding(handle, 1).epoch == 3
    assert runtime.binding(handle, 0).epoch == 2
    for _ in range(252):
        runtime.cuDyMulticastClear(handle)
    assert runtime.binding(handle, 1).epoch == 255
    runtime.cuDyMulticastClear(handle)
    assert runtime.binding(handle, 1).epoch == 1


def test_rebind_with_another_size_once_all_are_unbound() -> None:
    runtime = made()
    handle = bound(runtime)
    for device in range(4):
        runtime.cuDyMulticastUnbind(handle, device)
    for device in range(4):
        places = regions(runtime, device, [1, 1], 2880)
        runtime.cuDyMulticastBindAddr(handle, device, 16, [1, 1], places)
    assert registers(runtime, 0)["object0_blocks"] == 16


def test_tables_come_back() -> None:
    runtime = made(memory=1 << 16)
    handle = runtime.cuDyMulticastCreate(replace(DY, numDevices=1))
    runtime.cuDyMulticastAddDevice(handle, 0)
    empty = dict.fromkeys(STAGES, (0, 0))
    for _ in range(20):
        runtime.cuDyMulticastBindAddr(handle, 0, 4000, [0, 0], empty)
        runtime.cuDyMulticastUnbind(handle, 0)


Call = Callable[[Runtime], object]


def dy(**changes: Any) -> CUDymulticastObjectProp:
    return replace(DY, **changes)


def bind(
    prop: CUDymulticastObjectProp = DY,
    *,
    add: tuple[int, ...] = (0, 1, 2, 3),
    device: int = 0,
    ntoken: Any = 8,
    nactive: Any = (3, 4),
    places: Any = None,
    times: int = 1,
) -> Call:
    """Create, add and bind, each with what is wrong about it."""

    def call(runtime: Runtime) -> None:
        handle = runtime.cuDyMulticastCreate(prop)
        for number in add:
            runtime.cuDyMulticastAddDevice(handle, number)
        for _ in range(times):
            where = regions(runtime, 0, [3, 4], prop.block) if places is None else places(runtime)
            runtime.cuDyMulticastBindAddr(handle, device, ntoken, nactive, where)

    return call


def at(*places: int) -> Callable[[Runtime], dict[Any, list[int]]]:
    return lambda _: {stage: list(places) for stage in STAGES}


def overlapping(runtime: Runtime) -> dict[Any, list[int]]:
    place = runtime.cuMemAlloc(0, 20 * 2880)
    return {
        Stage.DISPATCH: [place, place + 3 * 2880],
        Stage.COMBINE: [place + 6 * 2880, place + 9 * 2880],
    }


def too_short(runtime: Runtime) -> dict[Any, list[int]]:
    return regions(runtime, 0, [3, 3], 2880)


def on_a_table(runtime: Runtime) -> None:
    handle = bound(runtime)
    static_handle = runtime.cuMulticastCreate(replace(STATIC, size=16, numDevices=1))
    runtime.cuMulticastAddDevice(static_handle, 0)
    runtime.cuMulticastBindAddr(static_handle, 0, runtime.binding(handle, 0).tables[0])


def bind_static(address: int, times: int = 1, devices: int = 1) -> Call:
    def call(runtime: Runtime) -> None:
        place = runtime.cuMemAlloc(0, 8192)
        for _ in range(times):
            handle = runtime.cuMulticastCreate(replace(STATIC, numDevices=devices))
            runtime.cuMulticastAddDevice(handle, 0)
            runtime.cuMulticastBindAddr(handle, 0, place + address)

    return call


def sequence(*calls: Call) -> Call:
    def call(runtime: Runtime) -> None:
        for item in calls:
            item(runtime)

    return call


def bound_then(use: Callable[[Runtime, int], object]) -> Call:
    return lambda runtime: use(runtime, bound(runtime))


def static_then(use: Callable[[Runtime, int], object]) -> Call:
    return lambda runtime: use(runtime, static(runtime)[0])


def call(runtime: Runtime, name: str, *arguments: Any) -> object:
    """Call a function of the runtime by its name."""
    result: object = getattr(runtime, name)(*arguments)
    return result


def free_bound(runtime: Runtime) -> None:
    handle = bound(runtime)
    runtime.cuMemFree(0, runtime.binding(handle, 0).addresses[Stage.DISPATCH][0])


def free_table(runtime: Runtime) -> None:
    handle = bound(runtime)
    runtime.cuMemFree(0, runtime.binding(handle, 0).tables[0])


MISUSES: list[tuple[str, Call, str]] = [
    ("INVALID_DEVICE", lambda r: r.cuMemAlloc(4, 16), "`device` must be 0 to 3, not 4"),
    ("INVALID_DEVICE", lambda r: r.cuMemFree(-1, 16), "`device` must be 0 to 3, not -1"),
    ("INVALID_VALUE", lambda r: r.cuMemAlloc(0, 0), "`size` must be 1 or more, not 0"),
    ("INVALID_VALUE", lambda r: r.cuMemAlloc(0, True), "`size` must be 1 or more, not True"),
    ("OUT_OF_MEMORY", lambda r: r.cuMemAlloc(0, MEMORY), "no 1048576 bytes in one piece"),
    ("INVALID_VALUE", lambda r: r.cuMemFree(0, 256), "no allocation of device 0 begins at 256"),
    ("INVALID_VALUE", lambda r: r.cuMemFree(0, r.cuMemAlloc(0, 512) + 256), "begins at 512"),
    ("NOT_PERMITTED", free_bound, "is bound"),
    ("INVALID_VALUE", free_table, "no allocation of device 0 begins at"),
    # Create.
    ("INVALID_VALUE", lambda r: r.cuDyMulticastCreate(dy(numDevices=0)), "must be 1 to 4, not 0"),
    ("INVALID_VALUE", lambda r: r.cuDyMulticastCreate(dy(numDevices=5)), "must be 1 to 4, not 5"),
    ("INVALID_VALUE", lambda r: r.cuDyMulticastCreate(dy(hsize=0)), "`hsize` must be a multiple"),
    ("INVALID_VALUE", lambda r: r.cuDyMulticastCreate(dy(hsize=24)), "multiple of 16, 16 or more"),
    ("INVALID_VALUE", lambda r: r.cuDyMulticastCreate(dy(bsize=2864)), "`bsize` must be a mult"),
    ("INVALID_VALUE", lambda r: r.cuDyMulticastCreate(dy(bsize=2888)), "`bsize` must be a mult"),
    ("INVALID_VALUE", lambda r: r.cuDyMulticastCreate(dy(stages=())), "`stages` must be stages"),
    (
        "INVALID_VALUE",
        lambda r: r.cuDyMulticastCreate(dy(stages=(Stage.COMBINE,) * 2)),
        "`stages` must be stages, each once",
    ),
    (
        "NOT_SUPPORTED",
        lambda r: r.cuDyMulticastCreate(dy(bsize=(1 << 20) + 16)),
        "`bsize` must be 1048576 at most",
    ),
    (
        "OUT_OF_MEMORY",
        lambda r: [r.cuDyMulticastCreate(DY) for _ in range(3)],
        "a hub knows no more than 2 objects",
    ),
    ("INVALID_VALUE", lambda r: r.cuMulticastCreate(replace(STATIC, numDevices=5)), "not 5"),
    ("INVALID_VALUE", lambda r: r.cuMulticastCreate(replace(STATIC, size=20)), "multiple of 16"),
    (
        "NOT_SUPPORTED",
        lambda r: r.cuMulticastCreate(replace(STATIC, size=(1 << 40) + 16)),
        "`size` must be 1099511627776 at most",
    ),
    # Handles.
    ("INVALID_HANDLE", lambda r: r.cuDyMulticastAddDevice(1, 0), "no object has handle 1"),
    ("INVALID_HANDLE", lambda r: r.cuMulticastDestroy(1), "no object has handle 1"),
    ("INVALID_HANDLE", lambda r: r.address(7), "no object has handle 7"),
    (
        "INVALID_HANDLE",
        lambda r: r.cuDyMulticastAddDevice(r.cuMulticastCreate(STATIC), 0),
        "1 is a static object",
    ),
    (
        "INVALID_HANDLE",
        lambda r: r.cuMulticastAddDevice(r.cuDyMulticastCreate(DY), 0),
        "1 is a dynamic object",
    ),
    (
        "INVALID_HANDLE",
        lambda r: [call(r, "cuDyMulticastDestroy", h) for h in [r.cuDyMulticastCreate(DY)] * 2],
        "no object has handle 1",
    ),
    # Add.
    ("INVALID_DEVICE", bind(add=(0, 1, 2, 4)), "`device` must be 0 to 3, not 4"),
    ("INVALID_VALUE", bind(add=(0, 1, 1)), "device 1 was added already"),
    ("ILLEGAL_STATE", bind(dy(numDevices=1), add=(0, 1)), "all 1 devices were added already"),
    # Bind.
    ("ILLEGAL_STATE", bind(add=(0, 1, 2)), "all 4 devices must be added before memory is bound"),
    ("ILLEGAL_STATE", bind_static(0, devices=2), "all 2 devices must be added"),
    ("INVALID_DEVICE", bind(dy(numDevices=1), add=(1,)), "device 0 was not added"),
    ("INVALID_DEVICE", bind(device=9), "`device` must be 0 to 3, not 9"),
    ("ILLEGAL_STATE", bind(times=2), "device 0 is bound already"),
    ("INVALID_VALUE", bind(ntoken=0), "`ntoken` must be 1 or more, not 0"),
    ("INVALID_VALUE", bind(ntoken=8.0), "`ntoken` must be 1 or more, not 8.0"),
    ("NOT_SUPPORTED", bind(ntoken=(1 << 24) + 1), "`ntoken` must be 16777216 at most"),
    (
        "NOT_SUPPORTED",
        bind(dy(bsize=1 << 20), ntoken=(1 << 20) + 1, places=at(0, 0), nactive=(0, 0)),
        "`ntoken` must be 1048576 at most",
    ),
    ("INVALID_VALUE", bind(nactive=(3,)), "`nactive` must have 2 items, not 1"),
    ("INVALID_VALUE", bind(nactive=(3, -1)), "`nactive` must be 0 or more, not -1"),
    ("INVALID_VALUE", bind(nactive=(3, 9)), "`nactive` must be 8 at most, not 9"),
    ("INVALID_VALUE", bind(places=lambda _: {Stage.COMBINE: [0, 0]}), "must have the stages"),
    ("INVALID_VALUE", bind(places=at(0)), "`addresses` of DISPATCH must have 2 items, not 1"),
    ("INVALID_VALUE", bind(places=at(8, 0)), "`addresses` must be a multiple of 16, 0 or more"),
    ("INVALID_VALUE", bind(places=at(-16, 0)), "`addresses` must be a multiple of 16, 0 or more"),
    ("INVALID_VALUE", bind(places=at(512, 512)), "no allocation of device 0 holds 8640 bytes at"),
    ("INVALID_VALUE", bind(places=too_short), "no allocation of device 0 holds 11520 bytes at"),
    ("NOT_PERMITTED", bind(places=overlapping), "of device 0 would be bound twice"),
    ("INVALID_VALUE", on_a_table, "no allocation of device 0 holds 16 bytes"),
    ("INVALID_VALUE", bind_static(8), "`address` must be a multiple of 16"),
    ("INVALID_VALUE", bind_static(4112), "no allocation of device 0 holds 4096 bytes"),
    ("NOT_PERMITTED", bind_static(16, times=2), "would be bound twice"),
    (
        "OUT_OF_MEMORY",
        bind(ntoken=1 << 20, nactive=(0, 0), places=at(0, 0)),
        "device 0 has no room for AL tables",
    ),
    (
        "INVALID_VALUE",
        bound_then(
            lambda r, h: [
                call(r, "cuDyMulticastUnbind", h, 0),
                call(r, "cuDyMulticastBindAddr", h, 0, 9, [0, 0], dict.fromkeys(STAGES, (0, 0))),
            ]
        ),
        "`ntoken` must be 8 as on other devices",
    ),
    # Unbind, destroy, use.
    (
        "ILLEGAL_STATE",
        bound_then(lambda r, h: call(r, "cuDyMulticastDestroy", h)),
        "device 0 is still bou",
    ),
    ("ILLEGAL_STATE", static_then(lambda r, h: r.cuMulticastDestroy(h)), "device 1 is still bou"),
    ("ILLEGAL_STATE", static_then(lambda r, h: r.cuMulticastUnbind(h, 0)), "device 0 is not bound"),
    ("INVALID_DEVICE", static_then(lambda r, h: r.cuMulticastUnbind(h, 4)), "not 4"),
    (
        "ILLEGAL_STATE",
        bound_then(lambda r, h: [call(r, "cuDyMulticastUnbind", h, 2) for _ in range(2)]),
        "device 2 is not bound",
    ),
    (
        "ILLEGAL_STATE",
        bound_then(lambda r, h: [call(r, "cuDyMulticastUnbind", h, 2), r.binding(h, 2)]),
        "device 2 is not bound",
    ),
    (
        "ILLEGAL_STATE",
        bound_then(lambda r, h: [call(r, "cuDyMulticastUnbind", h, 2), r.address(h)]),
        "1 devices are not bound",
    ),
    (
        "ILLEGAL_STATE",
        lambda r: r.cuDyMulticastClear(r.cuDyMulticastCreate(DY)),
        "4 devices are not bound",
    ),
    ("INVALID_HANDLE", bound_then(lambda r, h: r.group(h)), "1 is a dynamic object"),
]


@pytest.mark.parametrize(
    ("result", "call", "reason"), MISUSES, ids=[f"{n}-{m[0]}" for n, m in enumerate(MISUSES)]
)
def test_misuse(result: str, call: Call, reason: str) -> None:
    runtime = made()
    with pytest.raises(CudaError, match=re.escape(reason)) as caught:
        call(runtime)
    assert caught.value.result is CUresult[f"CUDA_ERROR_{result}"]
    assert "\n" not in str(caught.value)


def test_groups_run_out() -> None:
    runtime = Runtime(SWITCH, replace(GPU, objects=8), memory=MEMORY)
    for _ in range(SWITCH.groups):
        runtime.cuMulticastCreate(STATIC)
    with pytest.raises(CudaError, match="the switch has no more than 4 groups"):
        runtime.cuMulticastCreate(STATIC)


def test_multimem_space_runs_out() -> None:
    runtime = Runtime(replace(SWITCH, groups=256), replace(GPU, objects=16), memory=MEMORY)
    runtime._space = Allocator(0, 1 << 40, 1 << 21)
    runtime.cuMulticastCreate(replace(STATIC, size=1 << 40))
    with pytest.raises(CudaError, match="the multimem space is full"):
        runtime.cuMulticastCreate(STATIC)
    handle = runtime.cuDyMulticastCreate(replace(DY, numDevices=1))
    runtime.cuDyMulticastAddDevice(handle, 0)
    with pytest.raises(CudaError, match="the multimem space is full"):
        runtime.cuDyMulticastBindAddr(handle, 0, 1, [0], dict.fromkeys(STAGES, (0,)))


def test_a_call_that_fails_changes_nothing() -> None:
    """Every misuse of bind, then the right call: it goes as if nothing had been."""
    runtime = made()
    handle = runtime.cuDyMulticastCreate(replace(DY, numDevices=1))
    runtime.cuDyMulticastAddDevice(handle, 0)
    places = regions(runtime, 0, [3, 4], 2880)
    runtime.take()
    for ntoken, nactive, where in (
        (0, [3, 4], places),
        (8, [3, 9], places),
        (8, [3, 4], at(512, 512)(runtime)),
        (1 << 20, [3, 4], places),
    ):
        with pytest.raises(CudaError):
            runtime.cuDyMulticastBindAddr(handle, 0, ntoken, nactive, where)
    todo = runtime.take()
    assert (todo.zeros, todo.switch, todo.hubs) == ([], [], {})
    runtime.cuDyMulticastBindAddr(handle, 0, 8, [3, 4], places)
    assert runtime.address(handle) == 1 << 44
    assert runtime.binding(handle, 0).epoch == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"memory": 8}, "`memory` must be a multiple of 16"),
        ({"memory": 0}, "`memory` must be a multiple of 16"),
        ({"experts_per_gpu": 0}, "`experts_per_gpu` must be 1 to 4, not 0"),
        ({"experts_per_gpu": 5}, "`experts_per_gpu` must be 1 to 4, not 5"),
    ],
)
def test_wrong_system(changes: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        made(**changes)


def test_switch_and_gpus_must_fit() -> None:
    for switch in (PRESETS["default"], replace(SWITCH, links_per_gpu=2)):
        with pytest.raises(ValueError, match="one link for each GPU"):
            Runtime(switch, GPU, memory=MEMORY)


def test_allocator() -> None:
    space = Allocator(1, 1024, 16)
    one, two, three = (space.allocate(size) for size in (16, 1, 100))
    assert (one, two, three) == (16, 32, 48)
    assert space.range_of(15) is None
    assert space.range_of(40) == (32, 48)
    assert space.range_of(160) is None
    assert not space.free(33)
    assert space.free(32)
    assert not space.free(32)
    assert space.allocate(17) == 160
    assert space.allocate(16) == 32
    assert space.allocate(1024 - 192) == 192
    assert space.allocate(1) is None
