# SPDX-License-Identifier: Apache-2.0
"""Tables of a replay."""

from rich.console import Console

from .console import make_table
from .replay import ReplayResult

__all__ = ["print_replay"]


def print_replay(console: Console, result: ReplayResult) -> None:
    """Print what every link carried, the fan-out of packets, and the summary."""
    figures = result.figures()
    links = result.params.links_per_gpu
    table = make_table(
        "links", "port", "GPU", "flits in", "% of cycles", "flits out", "% of cycles"
    )
    for link in figures["links"]:
        table.add_row(
            str(link["port"]),
            str(link["port"] // links),
            f"{link['flits_in']:,}",
            f"{100 * link['utilisation_in']:.1f}",
            f"{link['flits_out']:,}",
            f"{100 * link['utilisation_out']:.1f}",
        )
    console.print(table)

    table = make_table("fan-out", "GPUs", "packets", "%")
    for gpus, packets in figures["fan_out"].items():
        table.add_row(gpus, f"{packets:,}", f"{100 * packets / figures['packets']:.1f}")
    console.print(table)

    table = make_table(
        "packets that a source would send", "packets", "flits", "saved, %", first="way"
    )
    for way, packets, flits in (
        ("list, copied by the switch", "packets", "request_flits"),
        ("one to each GPU of the list", "packets_per_gpu_unicast", "request_flits_gpu_unicast"),
        ("one to each expert", "packets_per_expert_unicast", "request_flits_expert_unicast"),
    ):
        saved = 1 - figures["packets"] / figures[packets]
        table.add_row(
            way,
            f"{figures[packets]:,}",
            f"{figures[flits]:,}",
            f"{100 * saved:.1f}" if packets != "packets" else "",
        )
    console.print(table)

    console.print(
        f"{' and '.join(figures['stages'])}: copies delivered {figures['copies']:,}, "
        f"results {figures['results']:,}, all as the golden model says; "
        f"{100 * figures['copies_saved_against_expert_unicast']:.1f} % fewer than one per expert",
        f"ideal {figures['ideal_cycles']:,} cycles, measured {figures['measured_cycles']:,}: "
        f"efficiency {figures['efficiency']:.4f}",
        sep="\n",
        highlight=False,
        soft_wrap=True,
    )
