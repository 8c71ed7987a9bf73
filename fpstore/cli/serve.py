"""The verb ``serve``."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from fpstore.cli import options
from fpstore.cli.options import argument, option
from fpstore.cli.verb import Arguments, translate_usage_errors, verb
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import InputError, StorageError
from fpstore.io.packages import import_package

USER = "fpstore serve"  # of packages
TOKEN, READ_TOKEN = "FPSTORE_TOKEN", "FPSTORE_READ_TOKEN"


@verb(
    argument("stores", "[NAME=]STORE...", nargs=-1, required=True),
    option("--http HOST:PORT", "The address of HTTP; - for none.", default="127.0.0.1:8765"),
    option("--resp HOST:PORT", "The address of RESP; - for none.", default="127.0.0.1:6380"),
    option("--read-only", "Refuse changes. Another process may write to the stores."),
    option(
        "--token-file FILE",
        "A file with the token that clients must send, of 16 characters or more; by default the "
        f"variable {TOKEN}. Without a token, only this machine can be served.",
    ),
    option(
        "--read-token-file FILE",
        f"A file with a token that may only read; by default the variable {READ_TOKEN}.",
    ),
    option("--tls-certificate FILE", "Encrypt, with this certificate and its chain in PEM format."),
    option("--tls-key FILE", "The key of the certificate."),
    option(
        "--log FILE",
        "Append a line of JSON for each request, or batch of a pipeline, and for each fault; - for "
        "standard error.",
    ),
    *options.RESULT,
)
def serve(args: Arguments) -> None:
    """Serve stores over HTTP and RESP.

    Clients in any language probe and change the stores: by HTTP with JSON or MessagePack, or with a
    client of Redis or Valkey, whose protocol is RESP, by commands such as FP.PROBEINSERT. A change
    is answered when it is durable; changes of many clients share a sync. A store has the name of
    its file, or NAME. docs/guides/service.md lists the routes and the commands. SIGINT or SIGTERM
    ends the server.

    $ fpstore serve crawl.fps
    $ fpstore serve pages=crawl.fps pictures=photos.fps --http 127.0.0.1:9000 --resp -
    $ fpstore serve crawl.fps --http 0.0.0.0:8765 --token-file token --read-token-file read-token
    $ fpstore serve crawl.fps --read-only --log -
    $ fpstore serve crawl.fps --tls-certificate chain.pem --tls-key key.pem
    """
    import_package("msgspec", USER)
    import_package("prometheus_client", USER)
    import_package("starlette", USER)
    import_package("uvicorn", USER)
    from fpstore.service.access import Access
    from fpstore.service.log import log_to
    from fpstore.service.served import Limits
    from fpstore.service.server import Address, Listening, Tls
    from fpstore.service.server import serve as run
    from fpstore.service.service import Service, name_stores

    with translate_usage_errors():
        http, resp = (
            None if text == "-" else Address.parse(text, name)
            for text, name in ((args.http, "http"), (args.resp, "resp"))
        )
        if http is None and resp is None:
            raise InputError("a server without addresses serves nobody")
        if (args.tls_certificate is None) != (args.tls_key is None):
            raise InputError("a certificate needs its key: --tls-certificate and --tls-key")
        tls = None if args.tls_key is None else Tls(args.tls_certificate, args.tls_key)
        if tls is not None:
            tls.context()  # or say now what is wrong
        if args.log is not None:
            with translate_refusals(args.log):
                log_to(args.log)
        access = Access(_token(args.read_token_file, READ_TOKEN), _token(args.token_file, TOKEN))
        service = Service(name_stores(args.stores), Limits())
        listening = Listening.open(http, resp, access)

    urls = listening.urls(tls)

    def tell() -> None:
        args.note(f"serving {', '.join(sorted(service.stores))} at {' and '.join(urls)}")

    async def main() -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        mode = "r" if args.read_only else "r+"
        await run(service, access, listening, ended, tell, mode, tls)

    asyncio.run(main())


def _token(path: str | None, variable: str) -> str | None:
    """Return a token of a file, else of the environment."""
    if path is None:
        return os.environ.get(variable) or None
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: {error}", path=path) from error
