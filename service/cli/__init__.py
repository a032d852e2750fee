"""The command line. Modules of commands import the heavy parts inside their functions, so that `--help` and
`tenant list` start at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from cyclopts import App, CycloptsError, Group, MissingArgumentError
from rich.console import Console

from service.problems import DONE, INTERRUPTED, USAGE, kind_of
from tenancy.errors import StrongroomError

_HELP: Final = """\
Answers questions from your customers' documents without one customer's data ever reaching another.

A *tenant* is a customer: its own folder, database, index, cache and audit log, under its own keys. *Users* ask;
*groups* hold users and groups; each document's *access list* says who may read it (`user:ana`, `group:legal`,
`tenant` for everyone in it; deny wins; no allow means nobody).

First steps:

    strongroom doctor --create-master-key
    strongroom tenant create acme
    strongroom key create --tenant acme --user ana --group staff --role reader
    strongroom ingest --tenant acme ./handbook --allow group:staff
    strongroom ask --tenant acme --user ana "How long is the notice period?"
    strongroom audit query --tenant acme
    strongroom serve
"""
_BULK_NICE: Final = 10
_READER_GONE: Final = 141
"""As a shell says it of a program that SIGPIPE ended."""

_EPILOGUE: Final = """\
Exit codes: 0 done; 1 some items failed, each named with its reason; 2 wrong usage; 130 stopped by Ctrl-C.

Settings: `--config FILE` after the command, or STRONGROOM_CONFIG, and STRONGROOM_SECTION__KEY; `strongroom doctor
--settings` lists them.

`--json` gives machine-readable output on every command. All commands but a second `serve` work while a server runs.
"""

_QUESTIONS: Final = Group("Questions", sort_key=1)
_TENANTS: Final = Group("Tenants and who may read what", sort_key=2)
_DOCUMENTS: Final = Group("Documents", sort_key=3)
_EVIDENCE: Final = Group("Cache and audit", sort_key=4)
_CARE: Final = Group("Care", sort_key=5)

app = App(
    name="strongroom",
    help=_HELP,
    help_epilogue=_EPILOGUE,
    help_format="markdown",
    version=lambda: version("strongroom"),
    error_console=Console(stderr=True),
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
app.command("service.cli.serve:serve", name="serve", group=_QUESTIONS, help="Serve the REST API.")
app.command(
    "service.cli.ask:ask",
    name="ask",
    group=_QUESTIONS,
    help="Ask a question as a user and read the answer with its citations.",
)
app.command(
    "service.cli.tenant:app",
    name="tenant",
    group=_TENANTS,
    help="Create, list, show, suspend, resume and delete tenants.",
)
app.command("service.cli.key:app", name="key", group=_TENANTS, help="Create, list and revoke API keys.")
app.command(
    "service.cli.group:app", name="group", group=_TENANTS, help="Add, remove, list and import members of groups."
)
app.command("service.cli.user:app", name="user", group=_TENANTS, help="Delete and erase users of a tenant.")
app.command(
    "service.cli.adapter:app",
    name="adapter",
    group=_TENANTS,
    help="Add, list, show and revoke a tenant's own LoRA adapters.",
)
app.command(
    "service.cli.acl:app",
    name="acl",
    group=_TENANTS,
    help="Who may read a document, and which nobody or everybody reads.",
)
app.command(
    "service.cli.template:app",
    name="template",
    group=_TENANTS,
    help="Add, list, show, preview and withdraw a tenant's prompt templates.",
)
app.command(
    "service.cli.ingest:ingest",
    name="ingest",
    group=_DOCUMENTS,
    help="Load and refresh a tenant's documents, with their access lists.",
)
app.command(
    "service.cli.document:app", name="document", group=_DOCUMENTS, help="List, show and delete a tenant's documents."
)
app.command(
    "service.cli.cache:app",
    name="cache",
    group=_EVIDENCE,
    help="Show and invalidate remembered answers; open a template for semantic hits.",
)
app.command("service.cli.audit:app", name="audit", group=_EVIDENCE, help="Query and verify the log of who saw what.")
app.command(
    "service.cli.usage:app",
    name="usage",
    group=_EVIDENCE,
    help="Show what tenants used and what it cost; whether all counts agree.",
)
app.command(
    "service.cli.eval:app",
    name="eval",
    group=_EVIDENCE,
    help="Measure a tenant's quality; try a change on every tenant; look for drift.",
)
app.command(
    "service.cli.attest:attest",
    name="attest",
    group=_EVIDENCE,
    help="Prove from outside that tenants are apart, layer by layer, and sign it.",
)
app.command(
    "service.cli.lineage:lineage",
    name="lineage",
    group=_EVIDENCE,
    help="Find out whether a tenant's data, or one document, trained a model.",
)
app.command(
    "service.cli.backup:backup", name="backup", group=_CARE, help="Back up one tenant while it is in use, encrypted."
)
app.command(
    "service.cli.backup:restore",
    name="restore",
    group=_CARE,
    help="Restore a tenant from a backup; what was withdrawn since stays so.",
)
app.command(
    "service.cli.backup:export",
    name="export",
    group=_CARE,
    help="Write a tenant's documents, chunks, vectors and access lists in open formats.",
)
app.command(
    "service.cli.master:app", name="master", group=_CARE, help="Create and change the master key; which one is needed."
)
app.command(
    "service.cli.doctor:doctor",
    name="doctor",
    group=_CARE,
    help="Find out what is wrong with this installation, and the remedy.",
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what went wrong stands on standard error."""
    try:
        found = app(arguments, exit_on_error=False, print_error=False)
    except MissingArgumentError as error:
        command = " ".join(error.command_chain or ())
        print(
            f"error: {_missing(error)} is missing (`strongroom {command} --help` shows what it takes)", file=sys.stderr
        )
        return USAGE
    except CycloptsError as error:
        command = " ".join(("strongroom", *(error.command_chain or ())))
        print(f"error: {error} (`{command} --help` shows what there is)", file=sys.stderr)
        return USAGE
    except StrongroomError as error:
        print(f"error: {error}", file=sys.stderr)
        return kind_of(error).exit
    except UnicodeEncodeError:
        # Bytes of the shell that are no UTF-8 may name a file, and nothing else.
        if not any(map(_undecoded, sys.argv[1:] if arguments is None else arguments)):
            raise
        print("error: an argument is not valid UTF-8", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    return found if isinstance(found, int) else DONE


def _undecoded(argument: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in argument)


def _missing(error: MissingArgumentError) -> str:
    """What was left out: an argument, an option, or the value after an option."""
    argument = error.argument
    if argument is None:
        return "an argument"
    if error.keyword is not None or argument.tokens:
        return f"the value of {error.keyword or argument.name}"
    return argument.name if argument.index is None else argument.name.lstrip("-").upper()


def main() -> None:
    """The entry point of the installed program."""
    if sys.argv[1:2] == ["ingest"] or sys.argv[1:3] == ["eval", "shadow"]:
        # Bulk work: where a server on this machine answers questions, those come first; alone it has everything.
        os.nice(_BULK_NICE)
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has enough, as `head` has: what is left to say goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _READER_GONE
    sys.exit(code)
