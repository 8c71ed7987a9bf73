"""A pool without threads: the calls of a build or a merge come in the same order every time."""

from concurrent.futures import Future


class InlinePool:
    """Does all work at once, in the thread that submits it."""

    def __init__(self, threads):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, work, *args):
        job = Future()
        try:
            job.set_result(work(*args))
        except BaseException as error:
            if getattr(work, "__name__", "") != "sync":  # an error of a sync is found later
                raise
            job.set_exception(error)
        return job

    def cancel(self):
        pass

    def shutdown(self, cancel=False):
        pass
