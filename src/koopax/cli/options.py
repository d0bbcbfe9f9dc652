"""`--option NAME=VALUE …`: settings that have no flag of their own."""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from tyro.conf import UseAppendAction, arg

from koopax._errors import KoopaxError

Options: TypeAlias = Annotated[list[tuple[str, ...]], UseAppendAction, arg(metavar="NAME=VALUE")]


def parse_options(flags: Sequence[Sequence[str]], *, example: str, refused: Mapping[str, str]) -> dict[str, Any]:
    """`name=value` pairs of all flags; values are JSON where they parse as such, else text.

    Args:
        flags: what each `--option` was given.
        example: a pair, for whoever has written none.
        refused: names that can't be set this way, and what to do instead.
    """
    options: dict[str, Any] = {}
    for pair in itertools.chain.from_iterable(flags):
        name, equals, text = pair.partition("=")
        if not equals:
            raise KoopaxError(f"--option takes NAME=VALUE, not {pair!r}: write for example --option {example}.")
        if name in refused:
            raise KoopaxError(f"--option can't set {name!r}: {refused[name]}.")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        options[name] = tuple(value) if isinstance(value, list) else value
    return options
