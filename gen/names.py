# SPDX-License-Identifier: Apache-2.0
"""Identifiers that every simulator, synthesiser and C++ compiler takes without escapes."""

import re

__all__ = ["RESERVED", "Namer", "snake_case"]

_SYSTEMVERILOG = """
accept_on alias always always_comb always_ff always_latch and assert assign assume automatic
before begin bind bins binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle
checker class clocking cmos config const constraint context continue cover covergroup coverpoint
cross deassign default defparam design disable dist do edge else end endcase endchecker endclass
endclocking endconfig endfunction endgenerate endgroup endinterface endmodule endpackage
endprimitive endprogram endproperty endsequence endspecify endtable endtask enum event eventually
expect export extends extern final first_match for force foreach forever fork forkjoin function
generate genvar global highz0 highz1 if iff ifnone ignore_bins illegal_bins implements implies
import incdir include initial inout input inside instance int integer interconnect interface
intersect join join_any join_none large let liblist library local localparam logic longint
macromodule matches medium modport module nand negedge nettype new nexttime nmos nor noshowcancelled
not notif0 notif1 null or output package packed parameter pmos posedge primitive priority program
property protected pull0 pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand
randc randcase randsequence rcmos real realtime ref reg reject_on release repeat restrict return
rnmos rpmos rtran rtranif0 rtranif1 s_always s_eventually s_nexttime s_until s_until_with scalared
sequence shortint shortreal showcancelled signed small soft solve specify specparam static string
strong strong0 strong1 struct super supply0 supply1 sync_accept_on sync_reject_on table tagged task
this throughout time timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand trior trireg
type typedef union unique unique0 unsigned until until_with untyped use uwire var vectored virtual
void wait wait_order wand weak weak0 weak1 while wildcard wire with within wor xnor xor
"""

_CPP = """
alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor bool
break case catch char char16_t char32_t char8_t class co_await co_return co_yield compl concept
const const_cast consteval constexpr constinit continue decltype default delete do double
dynamic_cast else enum explicit export extern false float for friend goto if inline int long
mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
reflexpr register reinterpret_cast requires return short signed sizeof static static_assert
static_cast struct switch synchronized template this thread_local throw true try typedef typeid
typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""

RESERVED = frozenset(_SYSTEMVERILOG.split()) | frozenset(_CPP.split())
"""Keywords of SystemVerilog (IEEE 1800-2017) and C++20, all in lower case."""

_BAD = re.compile(r"[^A-Za-z0-9_]+")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Namer:
    """One name space: gives every request a clean identifier of its own.

    Two identifiers never differ in case only, and none is a keyword in any case.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def __call__(self, wish: str) -> str:
        """Return `wish` if it is clean and free, else the nearest identifier that is."""
        stem = _BAD.sub("_", wish)
        if stem != wish:
            stem = stem.strip("_")
        if not stem or stem[0].isdigit():
            stem = f"n{stem}"
        key = stem.lower()
        name = stem
        if key in RESERVED or key in self._used:
            number = self._next.get(key, 1)
            while f"{key}_{number}" in self._used:
                number += 1
            self._next[key] = number + 1
            name = f"{stem}_{number}"
        self._used.add(name.lower())
        return name


def snake_case(name: str) -> str:
    """`PacketQueue` -> `packet_queue`."""
    return _WORD_START.sub("_", name).lower()
