# SPDX-License-Identifier: Apache-2.0
"""Tables of a layer."""

from rich.console import Console

from .console import make_table
from .layer import LayerResult

__all__ = ["print_layer"]


def print_layer(console: Console, result: LayerResult) -> None:
    """Print what every link carried, the steps, and the summary."""
    figures = result.figures()
    table = make_table("links", "GPU", "flits up", "% of cycles", "flits down", "% of cycles")
    for link in figures["links"]:
        table.add_row(
            str(link["gpu"]),
            f"{link['flits_up']:,}",
            f"{100 * link['utilisation_up']:.1f}",
            f"{link['flits_down']:,}",
            f"{100 * link['utilisation_down']:.1f}",
        )
    console.print(table)
    table = make_table("steps", "ideal cycles", "measured cycles", "efficiency", first="step")
    for step in figures["steps"]:
        table.add_row(
            step["name"],
            f"{step['ideal_cycles']:,}",
            f"{step['measured_cycles']:,}",
            f"{step['efficiency']:.4f}",
        )
    console.print(table)
    console.print(
        f"{figures['tokens']:,} tokens of {figures['hidden']:,} B, {figures['pairs']:,} pairs of "
        "token and expert; memories, AL maps and sums as the golden model says",
        f"AL TLBs: {figures['hub_lookups']:,} lookups, {100 * figures['tlb_hit_rate']:.2f} % hits, "
        f"{figures['hub_misses']:,} misses, {figures['hub_merged']:,} merged, "
        f"{figures['hub_allocations']:,} allocations",
        f"ideal {figures['ideal_cycles']:,} cycles, measured {figures['measured_cycles']:,}: "
        f"efficiency {figures['efficiency']:.4f}",
        sep="\n",
        highlight=False,
        soft_wrap=True,
    )
