"""The one exception that koopax raises for bad input, and its warning."""


class KoopaxError(Exception):
    """Bad input: one sentence that names the value and the remedy.

    The command line prints it without a traceback and exits with code 2.
    """


class DivergedError(KoopaxError):
    """Training met a loss that is not finite."""


class KoopaxWarning(UserWarning):
    """Something that works but that the user should know of."""


def unknown_name(kind: str, name: object, known: "list[str] | tuple[str, ...]") -> KoopaxError:
    """The error for a name that is not in a registry."""
    import difflib

    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {close[0]!r}? The choices are" if close else "choose one of"
    return KoopaxError(f"unknown {kind} {name!r}: {hint} {', '.join(sorted(known))}.")
