"""Training: loop, optimizer, phases, checkpoints, devices."""
