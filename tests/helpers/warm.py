"""A warm process, which has imported fpstore and forks the Python children of tests.

A process of ``python -m fpstore ...`` or ``python -c ...`` takes half a second to start, most of it
to import NumPy and fpstore. After ``install()``, ``subprocess`` has a warm process fork such a
child instead. The child has the arguments, environment, folder, files and parent that it would
have. A child starts truly if its own variables are among those that a start reads, if its script
looks at what is imported, or if the test has unusual settings of ``subprocess``. With
``FPSTORE_TRUE_STARTS=1`` all start truly.
"""

import atexit
import contextlib
import ctypes
import gc
import inspect
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

PR_SET_CHILD_SUBREAPER = 36
MAX_REQUEST_BYTES = 100_000  # bytes: below what a socket takes as one message
# What the interpreter, the loader, the C library, NumPy and the kernel read when a process starts.
READ_AT_START = re.compile(
    r"PYTHON(?!UNBUFFERED)|LD_|LC_|LANG|OPENBLAS|OMP_|MALLOC|GLIBC|FPSTORE_ISA|FPSTORE_SHOW_LEAKS"
    r"|[ALTU]+SAN_"
)
# A script that names these asks what a start has imported, or how much memory a process without
# imports takes.
ABOUT_STARTS = re.compile(r"sys\.modules|sys\.flags|importtime|ru_maxrss")
TRUE_START = subprocess.Popen._execute_child
PARAMETERS = inspect.signature(TRUE_START)


class Warm:
    """A warm process, and the socket to it."""

    def __init__(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = (
            f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import warm; "
            f"warm.serve({theirs.fileno()})"
        )
        command = [sys.executable, "-P", "-c", code + "; exec(warm.script)"]
        with theirs:
            theirs.set_inheritable(True)
            os.spawnv(os.P_NOWAIT, sys.executable, command)  # ends when the socket does
        self._socket, self._lock, self._owner = ours, threading.Lock(), os.getpid()
        self._environment = read_at_start(os.environ)

    def serves(self, environment):
        """Return whether a true start would read the same variables, in a child of this process."""
        return self._owner == os.getpid() and read_at_start(environment) == self._environment

    def fork(self, request, files):
        """Return the process id of a new child of this process."""
        libc = ctypes.CDLL(None)
        with self._lock:
            # the child's first parent ends at once, and this is the next
            libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [request], files)
                return int(self._socket.recv(64))
            finally:
                libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def read_at_start(environment):
    """Return the variables that only a true start reads."""
    return {name: value for name, value in environment.items() if READ_AT_START.match(name)}


def plain_python(args):
    """Return whether a command is the interpreter with a module or a script of the command line."""
    if isinstance(args, (str, bytes, os.PathLike)) or len(args) < 3 or args[0] != sys.executable:
        return False
    args = list(map(os.fsdecode, args[1:]))
    if args[0] == "-P":
        del args[0]
    return args[:2] == ["-m", "fpstore"] or (
        len(args) > 1 and args[0] == "-c" and not ABOUT_STARTS.search(args[1])
    )


def can_be_forked(start):
    """Return whether a call of ``Popen`` has nothing that a fork of the warm process lacks."""
    if not (start.close_fds and start.restore_signals and plain_python(start.args)):
        return False
    if start.executable or start.preexec_fn or start.pass_fds or start.shell:
        return False
    if start.start_new_session or not start.gid is start.gids is start.uid is None:
        return False
    # without -P, it would import a package of that name from its folder
    folder = Path(os.fsdecode(start.cwd or Path.cwd()))
    isolated = "-P" in start.args[:2] or not (folder / "fpstore").exists()
    return start.umask == start.process_group == -1 and isolated


def install():
    """Let ``subprocess`` have a warm process fork its children."""
    if os.environ.get("FPSTORE_TRUE_STARTS"):
        return
    warm = []

    def execute_child(self, *arguments):
        start = SimpleNamespace(**PARAMETERS.bind(self, *arguments).arguments)
        environment = {
            os.fsdecode(name): os.fsdecode(value)
            for name, value in (os.environ if start.env is None else start.env).items()
        }
        usual = can_be_forked(start)
        if usual and not warm:
            warm.append(Warm())
        request = b""
        if usual and warm[0].serves(environment):
            child = {
                "arguments": list(map(os.fsdecode, start.args)),
                "folder": os.fsdecode(start.cwd or Path.cwd()),
                "environment": environment,
            }
            request = json.dumps(child).encode()
        if not 0 < len(request) < MAX_REQUEST_BYTES:
            return TRUE_START(self, *arguments)
        ends = (start.p2cread, start.c2pwrite, start.errwrite)
        try:
            files = [own if end == -1 else end for own, end in enumerate(ends)]
            self.pid = warm[0].fork(request, files)
            self._child_created = True
        finally:
            self._close_pipe_fds(
                start.p2cread,
                start.p2cwrite,
                start.c2pread,
                start.c2pwrite,
                start.errread,
                start.errwrite,
            )

    subprocess.Popen._execute_child = execute_child


# --- In the warm process --------------------------------------------------------------------------

script = None  # the code that a child runs


def serve(number):
    """Fork a child for each request; return in the child, which then has ``script``."""
    import fpstore.cli
    import fpstore.jobs.dedup

    fpstore.cli.main.verbs()  # imports the modules of all

    requests = socket.socket(fileno=number)
    gc.collect()
    gc.freeze()  # or a collection would copy the pages of what is imported in each child
    while True:
        request, files, *_ = socket.recv_fds(requests, 2 * MAX_REQUEST_BYTES, 3)
        if not request:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            if child := os.fork():
                os.write(writing, str(child).encode())
                os._exit(0)
            requests.close()
            os.close(reading)
            os.close(writing)
            return become(json.loads(request), files)
        os.waitpid(between, 0)
        requests.send(os.read(reading, 64))
        for file in (reading, writing, *files):
            os.close(file)


def become(request, files):
    """Turn this fork into the requested child."""
    global script
    spare = [os.dup(file) for file in files]  # a number below 3 may be one of the others
    for file in files:
        os.close(file)
    for number, file in enumerate(spare):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            open(file, mode, 0 if unbuffered and file else -1, closefd=False),  # noqa: SIM115
            "utf-8",
            errors,
            line_buffering=file == 2 or os.isatty(file),
            write_through=unbuffered,
        )
        for file, mode, errors in (
            (0, "rb", "strict"),
            (1, "wb", "strict"),
            (2, "wb", "backslashreplace"),
        )
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    arguments = request["arguments"][1:]
    safe = arguments[0] == "-P"
    how, what, *rest = arguments[safe:]
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]
    if not safe:
        sys.path.insert(0, "" if how == "-c" else str(Path.cwd()))
    main = sys.modules["__main__"]
    sys.modules.pop("warm", None)
    # or nothing that the variables of the script refer to would be given back
    atexit.register(gc.unfreeze)
    sys.excepthook = lambda kind, error, trace: sys.__excepthook__(
        kind, error.with_traceback(trace and trace.tb_next), None
    )
    if how == "-m":
        what = f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)"
    sys.argv = ["-c", *rest]
    own = "__name__ __doc__ __package__ __loader__ __spec__ __builtins__ warm sys"
    for name in set(vars(main)).difference(own.split()):
        delattr(main, name)
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    script = compile(what, "<string>", "exec")
