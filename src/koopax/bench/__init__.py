"""How fast things are on this machine: one file per measurement, all with the same clock."""
