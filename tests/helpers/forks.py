"""Forked processes that do the work of a test, or answer about a store."""

import os
import signal
import time
import traceback
from contextlib import suppress
from multiprocessing import Pipe

from store_model import answers

import fpstore


def wait_for(question, seconds=20):
    deadline = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Child:
    """A forked process that runs ``work(pipe)``, and the other end of its pipe."""

    def __init__(self, work):
        self.pipe, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                self.pipe.close()
                work(theirs)
                code = 0
            except (EOFError, BrokenPipeError):
                code = 0
            except BaseException as error:
                traceback.print_exc()
                theirs.send(error)
            finally:
                os._exit(code)
        theirs.close()

    def receive(self, seconds=60):
        assert self.pipe.poll(seconds), "no answer from the child"
        got = self.pipe.recv()
        if isinstance(got, BaseException):
            raise got
        return got

    def ask(self, *question):
        self.pipe.send(question)
        return self.receive()

    def kill(self):
        """Kill it; return what it had sent."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        sent = []
        try:
            while True:
                sent.append(self.pipe.recv())
        except EOFError:
            self.pipe.close()
        return sent

    def end(self):
        """Let it end by itself; return its exit code."""
        self.pipe.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def forked(work, *arguments):
    """Run work in a fork; return what it returned, or raise what it raised."""
    child, result = Child(lambda pipe: pipe.send(work(*arguments))), None
    try:
        with suppress(EOFError):
            result = child.receive()
    finally:
        code = child.end()
    assert code == 0, f"ended with {code}"
    return result


def reader(path, function=answers):
    """Start a process that opens a store and answers ``ask(*arguments)`` until its pipe closes."""

    def work(pipe):
        with fpstore.open(path) as store:
            pipe.send("open")
            while True:
                pipe.send(function(store, *pipe.recv()))

    child = Child(work)
    assert child.receive() == "open"
    return child
