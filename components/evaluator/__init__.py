"""What the gate measures."""
