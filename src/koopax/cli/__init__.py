"""The command line: parse, call, print. Heavy imports happen inside the commands, so that help is instant."""

import errno
import os
import sys
import warnings

import tyro

import koopax
from koopax._compilations import keep_compilations
from koopax._errors import KoopaxError, KoopaxWarning
from koopax.cli import agents, bench, data, models, report
from koopax.cli.demo import demo
from koopax.cli.export import export
from koopax.cli.output import errors, plain
from koopax.cli.parsing import registry
from koopax.cli.plan import plan
from koopax.cli.reproduce import reproduce
from koopax.cli.sweep import sweep

DESCRIPTION = (
    "Learned dynamics models that predict hundreds of steps ahead. "
    "`koopax COMMAND --help` explains a command; `koopax --version` tells the version."
)
NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES)
"""What the system says of a path before anybody looks what is there."""


def build() -> tyro.extras.SubcommandApp:
    """All the commands."""
    app = tyro.extras.SubcommandApp()
    app.command(demo)
    app.command(data.app, name="data", help="List, make, collect, inspect and convert datasets.")
    app.command(models.train)
    app.command(sweep)
    app.command(models.evaluate)
    app.command(models.spectrum)
    app.command(plan)
    app.command(export)
    app.command(report.report)
    app.command(report.video)
    app.command(report.aggregate)
    app.command(reproduce)
    app.command(bench.app, name="bench", help="Measure speed on this machine.")
    app.command(agents.app, name="agent", help="Train agents.")
    return app


def main() -> None:
    """Entry point of `koopax`. Bad input ends with one sentence and exit code 2, Ctrl-C with 130."""
    if sys.argv[1:] == ["--version"]:
        print(f"koopax {koopax.__version__}")
        return
    warnings.showwarning = _show_warning
    keep_compilations()
    try:
        build().cli(
            prog="koopax",
            description=DESCRIPTION,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            registry=registry,
        )
    except KoopaxError as error:
        errors().print(f"[bold red]error:[/] {plain(str(error))}", highlight=False, soft_wrap=True)
        if (hosts := sys.modules.get("koopax.training.hosts")) is not None:  # which a training has loaded
            hosts.leave_others(error, 2)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "koopax":
            raise
        wanted = f"this command needs {error.name}, which is not installed: pip install 'koopax[all]'."
        errors().print(f"[bold red]error:[/] {plain(wanted)}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except MemoryError as error:
        from koopax._untrusted import one_line

        wanted = f"there is not enough memory ({one_line(error)}): take smaller data, batches, models or replays."
        errors().print(f"[bold red]error:[/] {plain(wanted)}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:
        # The reader has gone, as with `koopax … | head`: not an error, and nothing more can be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno not in NO_PATH:
            raise
        from koopax._untrusted import in_line, one_line

        wanted = f"{in_line(error.filename)!r} can't be opened ({one_line(error)}): give another path."
        errors().print(f"[bold red]error:[/] {plain(wanted)}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors().print("interrupted", style="yellow")
        sys.exit(130)


def _show_warning(message, category, *_args, **_kwargs) -> None:
    if issubclass(category, KoopaxWarning):
        errors().print(f"[yellow]note:[/] {plain(str(message))}", highlight=False, soft_wrap=True)
