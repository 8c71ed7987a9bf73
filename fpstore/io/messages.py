"""Texts in several parts: lists of strings, and the messages of a chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fpstore.base.arguments import is_iterable
from fpstore.base.keywords import keyword
from fpstore.errors import InputError, show
from fpstore.io.fields import MAX_NAMES, names_here

# the names of the fields of a message: those of most chats, and of ShareGPT
ROLE_NAMES, CONTENT_NAMES = ("role", "from"), ("content", "value")
# why texts that are edited are strings
NOT_EDITED = (
    "lists and messages are not edited: write each part to a row of its own, or join the parts to "
    "one string"
)
_EXPECTED = "a text must be a string, a list of strings, or the messages of a chat"


def check_roles(roles: object) -> tuple[str, ...] | None:
    """Return the roles whose messages are texts; None for all.

    A string has names that are separated by commas.
    """
    if roles is None:
        return None
    names = roles.split(",") if isinstance(roles, str) else roles
    if not is_iterable(names, Mapping) or not (
        checked := [name.strip() if isinstance(name, str) else name for name in names]
    ):
        raise InputError(
            f"roles must be names of roles, such as ['user', 'assistant'], got {show(roles)}",
            got=roles,
            argument="roles",
        )
    for name in checked:
        if not (isinstance(name, str) and name):
            raise InputError(
                f"roles must be names of roles, such as user,assistant, got {show(roles)}",
                got=roles,
                argument="roles",
            )
    return tuple(checked)


class RoleFilter:
    """Chooses messages by their roles in one reading, and knows the roles that messages have had.

    Without ``names``, it takes the messages of all roles.
    """

    def __init__(self, names: Sequence[str] | None) -> None:
        self.names = names
        self._present = dict[str, None]()

    def takes(self, role: str) -> bool:
        if self.names is None:
            return True
        is_named = role in self.names
        if is_named or len(self._present) < MAX_NAMES:
            self._present[role] = None
        return is_named

    def problem(self) -> str:
        """Return which role no message has had; nothing if all have, or if there are no messages.

        The name may be mistyped, or be one of another corpus.
        """
        present = list(self._present)
        name = next((name for name in self.names or () if name not in self._present), None)
        if name is None or not present:
            return ""
        here = names_here("roles", name, present, present)
        return f"no message has the role {show(name)} ({here})"


def join_parts(value: object, roles: RoleFilter, shown: str) -> str:
    """Return the strings of a list, or the contents of its messages, with line breaks between.

    ``shown`` is the value for a message of an error. InputError for something else.
    """
    if not isinstance(value, list):
        raise InputError(f"{_EXPECTED}, got {shown}")
    return "\n".join(part for item in value for part in _parts(item, roles, shown))


def refuse_string(name: str) -> InputError:
    """Return the error for a string where roles are to be chosen."""
    return InputError(
        f"{keyword('roles')} chooses messages of a chat, and {name!r} has strings: leave it out"
    )


def _parts(item: object, roles: RoleFilter, shown: str) -> Iterator[str]:
    """Yield the texts of a string or a message; its content may be a string, null or parts."""
    if item is None:
        return
    if isinstance(item, str):
        if roles.names is not None:
            raise InputError(
                f"{keyword('roles')} chooses messages of a chat, got a list of strings: leave it "
                "out"
            )
        yield item
        return
    if not isinstance(item, dict):
        raise InputError(f"{_EXPECTED}, got {shown}")
    role = next((item[name] for name in ROLE_NAMES if name in item), None)
    content_name = next((name for name in CONTENT_NAMES if name in item), None)
    if not isinstance(role, str) or content_name is None:
        raise InputError(f"a message of a chat has a role and a content, got {shown}")
    if not roles.takes(role):
        return
    content = item[content_name]
    for part in content if isinstance(content, list) else [content]:
        # a picture or a call of a tool has no text
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text
        elif not isinstance(part, dict) and part is not None:
            raise InputError(f"the content of a message must be a string, got {shown}")
