"""Tables of what was measured of data on disk and of several processes."""

from typing import Any

from rich.table import Table


def disk_table(found: dict[str, Any]) -> Table:
    """Steps from disk and from memory."""
    table = Table("data", "ms per step", "speed")
    taken = found["milliseconds"]
    table.add_row("in memory", f"{taken['memory']:.1f}", "100 %")
    size = f"{found['settings']['bytes'] / 1e9:.1f} GB on disk"
    table.add_row(size, f"{taken['disk']:.1f}", f"{100 * found['speed_of_memory']:.0f} %")
    read, own = found["read_from_disk_bytes"] / 1e6, found["own_memory_bytes"] / 2**20
    table.caption = f"{read:.0f} MB were read from the disk; the process held {own:.0f} MiB of its own"
    return table


def hosts_table(found: dict[str, Any]) -> Table:
    """Windows per second by the number of processes."""
    table = Table("processes", "windows per second", "of that many alone")
    rates = found["windows_per_second"]
    table.add_row("1", f"{rates['1']:.0f}", "100 %")
    table.add_row("2", f"{rates['2']:.0f}", f"{100 * found['weak_scaling']:.0f} %")
    return table
