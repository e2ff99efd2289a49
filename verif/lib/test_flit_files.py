# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import numpy as np
import pytest
from dysharp.golden.packets import Packets
from dysharp.rtl.flits import Opcode
from dysharp.verif.lib.flit_files import read_log, write_stimulus
from dysharp.verif.switch.stimulus import make_packets


def packets() -> Packets:
    return Packets.concatenate(
        make_packets(Opcode.WRITE, gpu=1, address=[1, 2], length=2),
        make_packets(Opcode.RSP_ACK, gpu=1, address=[3], length=0),
    )


def words(path: Path) -> list[int]:
    return [
        int.from_bytes(path.read_bytes()[i : i + 4], "big")
        for i in range(0, path.stat().st_size, 20)
    ]


def test_stimulus_holds_gaps_channels_and_flits(tmp_path: Path) -> None:
    path = tmp_path / "new" / "stim.bin"
    sent = packets()
    write_stimulus(path, sent, np.array([5, 6, 7]), inner_gaps=np.arange(7))
    assert words(path) == [5, 1, 2, 9, 4, 5, 13 | 1 << 31]
    last = int.from_bytes(path.read_bytes()[-16:], "big")
    assert last == int(sent.flits[-1, 1]) << 64 | int(sent.flits[-1, 0])


def test_stimulus_may_be_forced_or_end_inside_a_packet(tmp_path: Path) -> None:
    path = tmp_path / "stim.bin"
    write_stimulus(path, packets(), forced=True, flits=4)
    assert words(path) == [1 << 30] * 4
    write_stimulus(path, packets(), tags=True)
    assert words(path) == [1 << 29] * 6 + [1 << 31 | 1 << 29]


def test_gaps_out_of_range_are_refused(tmp_path: Path) -> None:
    for gap in (-1, 1 << 16):
        with pytest.raises(ValueError, match=r"^`gaps` must be 0 to 65535$"):
            write_stimulus(tmp_path / "stim.bin", packets(), np.array([gap, 0, 0]))


def test_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text(f"0000000a {0x123 << 64 | 0xABC:032x}\n000000ff {1:032x}\n")
    log = read_log(path)
    assert log.cycles.tolist() == [10, 255]
    assert log.flits.tolist() == [[0xABC, 0x123], [1, 0]]


def test_log_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    log = read_log(tmp_path / "none.log")
    assert len(log.cycles) == len(log.packets) == 0


def test_unknown_bits_and_torn_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text(f"0000000a {1:032x}\n0000000b {'x' * 32}\n")
    with pytest.raises(ValueError, match=r"out\.log:2: an unknown bit in a flit$"):
        read_log(path)
    path.write_text("0000000a 12\n")
    with pytest.raises(ValueError, match="not a whole number of lines"):
        read_log(path)
