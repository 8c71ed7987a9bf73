"""A pool without threads, for tests in which the calls of a build or a merge must come in the same order every time."""

from fpstore.base.threads import Job


class InPlace:
    """Does all work at once, in the thread that submits it."""

    def __init__(self, threads):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, work, *args):
        job = Job(lambda: work(*args))
        job.run()
        if getattr(work, "__name__", "") != "sync":  # an error of a sync is found later
            job.result()
        return job

    def cancel(self):
        pass

    def shutdown(self):
        pass
