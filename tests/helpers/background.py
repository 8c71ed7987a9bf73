"""The threads that the package keeps in the background, by their names."""

import threading


def threads_of(work):
    """Return the threads of this process that do a work: merge, flush or open."""
    return [thread for thread in threading.enumerate() if thread.name == f"fpstore-{work}"]


def wait_for_threads(work):
    """Wait until the threads that do a work have ended."""
    for thread in threads_of(work):
        thread.join(60)
        assert not thread.is_alive()
