"""Entry point of the fork server, for `pipeline.fork_server.client`: `python -m pipeline.fork_server_main LISTENER`."""

import sys

from pipeline.cli import main as command_line
from pipeline.fork_server.server import main

if __name__ == "__main__":
    main(int(sys.argv[1]), command_line)
