"""Which earlier model a new one is measured against."""
