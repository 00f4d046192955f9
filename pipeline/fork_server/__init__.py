"""Fork server: a process that imports TFX once and forks for each stage."""
