# SPDX-License-Identifier: Apache-2.0
"""Packing and unpacking of flits against Amaranth's layouts and plain loops."""

import re
from typing import Any, cast

import numpy as np
import pytest
from dysharp.golden.arrays import as_integers
from dysharp.golden.flits import (
    as_flits,
    from_hex,
    pack_headers,
    pack_targets,
    packet_flits,
    packing_rates,
    replace_fields,
    split_packets,
    to_hex,
    unpack_field,
    unpack_headers,
    unpack_targets,
)
from dysharp.golden.packets import Packets
from dysharp.rtl.flits import (
    EXTENSION,
    HEADER,
    HEADER_FIELDS,
    LANES,
    Addressing,
    Opcode,
    Stage,
    Status,
    Vc,
    addressing,
    carries_data,
)
from hypothesis import given, settings
from hypothesis import strategies as st

WIDTHS = {field.name: field.width for field in HEADER_FIELDS}
FIELDS = st.fixed_dictionaries(
    {name: st.integers(0, (1 << width) - 1) for name, width in WIDTHS.items()}
)
derandomized = settings(derandomize=True, max_examples=150, deadline=None, database=None)


def as_number(flit: np.ndarray) -> int:
    low, high = flit.tolist()
    return high << 64 | low


@derandomized
@given(st.lists(FIELDS, min_size=1, max_size=5))
def test_headers_are_amaranths(packets: list[dict[str, int]]) -> None:
    columns = {name: [fields[name] for fields in packets] for name in WIDTHS}
    headers = pack_headers(**columns)
    wanted = [HEADER.const(fields).as_bits() for fields in packets]
    assert [as_number(flit) for flit in headers] == wanted
    assert {name: values.tolist() for name, values in unpack_headers(headers).items()} == columns


@derandomized
@given(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=LANES))
def test_extension_flits_are_amaranths(targets: list[int]) -> None:
    wanted = EXTENSION.const(targets + [0] * (LANES - len(targets))).as_bits()
    assert [as_number(flit) for flit in pack_targets([targets])] == [wanted]
    assert [as_number(flit) for flit in pack_targets(targets, [len(targets)])] == [wanted]


@derandomized
@given(FIELDS, FIELDS)
def test_replace_fields_changes_only_those(old: dict[str, int], new: dict[str, int]) -> None:
    header = pack_headers(**old)
    for name in WIDTHS:
        wanted = HEADER.const(old | {name: new[name]}).as_bits()
        assert as_number(replace_fields(header, **{name: new[name]})[0]) == wanted
    assert as_number(header[0]) == HEADER.const(old).as_bits()


def test_every_field_reaches_its_ends() -> None:
    for name, width in WIDTHS.items():
        largest = (1 << width) - 1
        header = pack_headers(**{name: largest})
        assert as_number(header[0]) == HEADER.const({name: largest}).as_bits()
        assert unpack_field(header, name).tolist() == [largest]
        for wrong in (-1, largest + 1):
            message = rf"^`{name}` must be 0 to {largest}, not {wrong}$"
            with pytest.raises(ValueError, match=message):
                pack_headers(**{name: wrong})
            with pytest.raises(ValueError, match=message):
                pack_headers(**{name: np.array([0, wrong])})
            with pytest.raises(ValueError, match=message):
                replace_fields(header, **{name: [wrong]})


def test_fields_broadcast_and_take_enums() -> None:
    headers = pack_headers(
        opcode=[Opcode.WRITE, Opcode.DY_ST, 15],
        stage=Stage.COMBINE,
        byte_enable=True,
        vc=np.uint8(1),
        tag=np.arange(3, dtype=np.uint16),
    )
    fields = unpack_headers(headers)
    assert fields["opcode"].tolist() == [1, 9, 15]
    assert fields["stage"].tolist() == [1, 1, 1]
    assert fields["byte_enable"].tolist() == [1, 1, 1]
    assert fields["vc"].tolist() == [Vc.RESPONSE.value] * 3
    assert fields["tag"].tolist() == [0, 1, 2]
    assert pack_headers().tolist() == [[0, 0]]
    assert pack_headers(tag=[]).shape == (0, 2)
    assert pack_headers(aux=Status.PARTITION).tolist() == [[0, 9 << 15]]


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (1.5, TypeError, "`tag` must be integers, not 1.5"),
        ([0, "a"], TypeError, "`tag` must be integers, not '0'"),
        ([Opcode.READ, None], TypeError, "`tag` must be integers, not None"),
        (1 << 70, ValueError, f"`tag` must be 0 to 511, not {1 << 70}"),
        ([Opcode.READ, 512], ValueError, "`tag` must be 0 to 511, not 512"),
        ([[1]], ValueError, "`tag` must have at most one dimension, not 2"),
    ],
)
def test_field_values_wrong(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        pack_headers(tag=value)


def test_field_names_wrong() -> None:
    message = r"^`name` must be a field of the header, not 'color'$"
    with pytest.raises(ValueError, match=message):
        pack_headers(color=1)
    with pytest.raises(ValueError, match=message):
        unpack_field(pack_headers(), "color")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17])
def test_targets_rectangular_and_ragged_agree(count: int) -> None:
    rng = np.random.default_rng(count)
    targets = rng.integers(0, 1 << 16, (5, count))
    flits = pack_targets(targets)
    assert flits.shape == (5 * -(-count // LANES), 2)
    assert flits.tolist() == pack_targets(targets.reshape(-1), [count] * 5).tolist()
    assert unpack_targets(flits, [count] * 5).tolist() == targets.reshape(-1).tolist()
    for number, flit in enumerate(flits.reshape(-1, 2)):
        packet, extension = divmod(number, -(-count // LANES))
        row = targets[packet, LANES * extension : LANES * (extension + 1)].tolist()
        value = sum(target << 16 * lane for lane, target in enumerate(row))
        assert as_number(flit) == value


def test_targets_ragged_round_trip() -> None:
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 40, 200)
    targets = rng.integers(0, 1 << 16, counts.sum())
    flits = pack_targets(targets, counts)
    assert len(flits) == sum(-(-count // LANES) for count in counts.tolist())
    assert unpack_targets(flits, counts).tolist() == targets.tolist()


def test_targets_wrong() -> None:
    with pytest.raises(ValueError, match=r"^`targets` must be 0 to 65535, not 65536$"):
        pack_targets([[65536]])
    with pytest.raises(ValueError, match=r"^`targets` must be 0 to 65535, not -1$"):
        pack_targets([-1], [1])
    with pytest.raises(ValueError, match=r"^`targets` must have the shape \(n, k\), not \(3,\)$"):
        pack_targets([1, 2, 3])
    with pytest.raises(ValueError, match=r"^`counts` must add up to 3, not 2$"):
        pack_targets([1, 2, 3], [1, 1])
    with pytest.raises(ValueError, match=r"^`flits` must be 2, not 1$"):
        unpack_targets(pack_targets([[1]]), [9])


@derandomized
@given(FIELDS)
def test_packet_flits_follows_the_framing_rules(fields: dict[str, int]) -> None:
    opcode = fields["opcode"]
    flits = 1 + fields["byte_enable"]
    if addressing(opcode) is Addressing.DYNAMIC:
        flits += (fields["count"] + 7) // 8
    if carries_data(opcode):
        flits += fields["length"]
    assert packet_flits(pack_headers(**fields)).tolist() == [flits]


def test_packet_flits_of_extreme_headers() -> None:
    largest = {"count": 32767, "length": 31, "byte_enable": 1}
    sizes = packet_flits(pack_headers(opcode=np.arange(16), **largest)).tolist()
    lists = 4096
    assert sizes[0x0:0x4] == [2, 33, 2, 33]
    assert sizes[0x4:0x8] == [2, 33, 2, 33]
    assert sizes[0x8:0xC] == [2 + lists, 33 + lists, 2 + lists, 33 + lists]
    assert sizes[0xC:0x10] == [2, 2, 33, 33]


@pytest.mark.parametrize("seed", range(5))
def test_split_packets_finds_any_packets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    headers = pack_headers(
        opcode=rng.integers(0, 16, 100),
        count=rng.choice([0, 1, 8, 9, 300], 100),
        length=rng.integers(0, 32, 100),
        byte_enable=rng.integers(0, 2, 100),
        crc=rng.integers(0, 1 << 25, 100),
    )
    flits: list[np.ndarray] = []
    starts = []
    for header, size in zip(headers, packet_flits(headers).tolist(), strict=True):
        starts.append(sum(len(part) for part in flits))
        body = rng.integers(0, 1 << 64, (size - 1, 2), dtype=np.uint64)
        flits += [header[None], body]
    stream = np.concatenate(flits)
    assert split_packets(stream).tolist() == starts
    with pytest.raises(ValueError, match=r"^`flits` must end with a whole packet, not inside"):
        split_packets(np.concatenate([stream, pack_headers(opcode=Opcode.WRITE, length=1)]))


def test_split_packets_wrong() -> None:
    assert split_packets(np.zeros((0, 2), np.uint64)).tolist() == []
    cut = pack_headers(opcode=[Opcode.READ, Opcode.WRITE], length=1)
    message = r"^`flits` must end with a whole packet, not inside packet 1$"
    with pytest.raises(ValueError, match=message):
        split_packets(cut)


def test_hex_round_trip() -> None:
    flits = np.random.default_rng(6).integers(0, 1 << 64, (50, 2), dtype=np.uint64)
    lines = to_hex(flits)
    assert [int(line, 16) for line in lines] == [as_number(flit) for flit in flits]
    assert from_hex(lines).tolist() == flits.tolist()
    assert from_hex(f"{line[:16]}_{line[16:24]} {line[24:]}" for line in lines).tolist() == (
        flits.tolist()
    )
    assert from_hex([]).shape == (0, 2)


@pytest.mark.parametrize("line", ["", "12", "g" * 32, "0" * 33, "-" + "0" * 31])
def test_hex_wrong(line: str) -> None:
    message = f"^`lines` must be 32 hexadecimal digits, not {re.escape(repr(line))}$"
    with pytest.raises(ValueError, match=message):
        from_hex([line])


def test_flit_arrays_wrong() -> None:
    with pytest.raises(TypeError, match=r"^`x` must be an array of uint64, not 'int64'$"):
        as_flits("x", np.zeros((1, 2), np.int64))
    with pytest.raises(TypeError, match=r"^`x` must be an array of uint64, not 'list'$"):
        as_flits("x", cast(Any, [[0, 0]]))
    for shape in ((2,), (2, 3)):
        message = rf"^`x` must have the shape \(n, 2\), not {re.escape(repr(shape))}$"
        with pytest.raises(ValueError, match=message):
            as_flits("x", np.zeros(shape, np.uint64))


def test_as_integers_keeps_the_dimension() -> None:
    assert as_integers("x", 3, 0, 5).shape == ()
    assert as_integers("x", [3], 0, 5).shape == (1,)
    assert as_integers("x", [], 0, 5).dtype == np.int64


def test_packets_sequence() -> None:
    headers = pack_headers(
        opcode=[Opcode.DY_ST, Opcode.READ, Opcode.WRITE], count=[9, 0, 1], length=1, byte_enable=0
    )
    headers = replace_fields(headers, byte_enable=[0, 0, 1])
    data = np.array([[1, 2], [3, 4]], np.uint64)
    enables = np.array([[5, 6]], np.uint64)
    packets = Packets.build(headers, targets=np.arange(9), byte_enables=enables, data=data)
    assert len(packets) == 3
    assert packets.sizes.tolist() == [4, 1, 3]
    assert packets.headers.tolist() == headers.tolist()
    assert packets[0][1:3].tolist() == pack_targets([list(range(9))]).tolist()
    assert packets[0][3].tolist() == [1, 2]
    assert packets[-1].tolist() == [headers[2].tolist(), [5, 6], [3, 4]]
    assert [len(packet) for packet in packets] == [4, 1, 3]
    assert Packets(packets.flits) == packets
    assert packets.select(np.array([True, False, True])).sizes.tolist() == [4, 3]
    assert packets.select(np.array([2, 0]))[0].tolist() == packets[2].tolist()
    assert packets.slice(1, 3).sizes.tolist() == [1, 3]
    assert len(packets.slice(2, 2)) == 0
    assert Packets.concatenate(packets.slice(0, 1), Packets(), packets.slice(1, 3)) == packets
    assert Packets.concatenate() == Packets()
    assert packets != Packets()
    assert packets != "packets"
    assert repr(packets) == "<3 packets, 8 flits>"
    with pytest.raises(IndexError):
        packets[3]
    with pytest.raises(TypeError, match=r"^unhashable type: 'Packets'$"):
        hash(packets)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"targets": [1]}, "`targets` must be 2 in all, not 1"),
        ({"targets": [1, 2]}, "`data` must be 1 in all, not 0"),
        (
            {"targets": [1, 2], "byte_enables": np.zeros((1, 2), np.uint64)},
            "`byte_enables` must be 0 in all, not 1",
        ),
    ],
)
def test_packets_build_wrong(part: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Packets.build(pack_headers(opcode=Opcode.DY_ST, count=2, length=1), **part)


def test_packing_rate() -> None:
    packed, unpacked = max(packing_rates() for _ in range(3))
    assert packed > 1e6
    assert unpacked > 1e6
