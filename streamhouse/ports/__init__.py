"""Narrow protocols through which the rooms reach clocks, disks, stores and each other."""
