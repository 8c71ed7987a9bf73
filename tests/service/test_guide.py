"""The commands of docs/guides/service.md."""

import json
import re
import shlex
from pathlib import Path

import redis
from commandline import fine
from serving import post, server

PAGE = (Path(__file__).parents[2] / "docs/guides/service.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def shown(reply, indent=""):
    """Return the lines in which redis-cli shows a reply."""
    if isinstance(reply, list):
        lines = []
        for place, item in enumerate(reply, 1):
            first, *rest = shown(item, indent + " " * len(f"{place}) "))
            lines += [f"{place}) {first}", *(" " * len(f"{place}) ") + line for line in rest)]
        return lines
    return [f"(integer) {reply}" if isinstance(reply, int) else json.dumps(reply)]


def test_the_commands_print_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (build, serve), (curl, by_resp), *_ = (block.splitlines() for block in blocks("sh"))
    fine(*shlex.split(build)[1:])
    assert shlex.split(serve) == ["fpstore", "serve", "pages.fps"]
    _, answers = blocks("text")
    with server("pages.fps") as process:
        _, _, body, url = shlex.split(curl)
        status, answer = post(process, url.removeprefix("localhost:8765"), json.loads(body))
        assert status == 200
        with redis.Redis(port=process.resp, decode_responses=True) as client:
            reply = client.execute_command(*shlex.split(by_resp)[3:])
        printed = [json.dumps(answer, separators=(",", ":")), *shown(reply)]
        assert "\n".join(printed) + "\n" == answers
        (code,) = blocks("python")
        names = {}
        exec(code.replace("6380", str(process.resp)), names)
        assert (names["inserted"], names["reason"], names["matches"]) == (1, None, [])
        names["store"].close()
