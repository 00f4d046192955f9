"""Work that is repeated in a thread of its own."""

import threading
from collections.abc import Callable


def repeat(name: str, seconds: float, work: Callable[[], None]) -> Callable[[], None]:
    """Call `work` now and again after so many seconds; what is returned ends this, after a call under way."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            work()
            stop.wait(seconds)

    def end() -> None:
        stop.set()
        thread.join()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return end
