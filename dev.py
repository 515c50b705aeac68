#!/usr/bin/env python3
"""The development commands: `python3 dev.py test` runs every check, `python3 dev.py run` the program.

Owns: the command line. The work is done in devtools/, with the standard library only, so that a machine with Python
and nothing else can start here; everything a command needs is installed below .dev/ from the locks in requirements/.

This file must be readable by older Pythons down to 3.8, as far as the message that says which one is needed.
"""

from __future__ import annotations

import argparse
import sys
from typing import Sequence

NEEDED = (3, 11)

if sys.version_info < NEEDED:
    sys.exit(
        "dev.py needs Python {}.{} or newer, and this is Python {}.{}.{} ({}).\n"
        "Install a newer one and start dev.py with it, for instance: python3.12 dev.py test".format(
            *NEEDED, *sys.version_info[:3], sys.executable
        )
    )

from devtools import checks, commands, every_python  # noqa: E402 - needs the Python that is checked above
from devtools.errors import DevelopmentError  # noqa: E402 - the same

EXAMPLES = """\
examples:
  python3 dev.py test                        every check, as CI runs them
  python3 dev.py test -k conversation        only the tests whose name contains "conversation"
  python3 dev.py test --only ruff --only basedpyright
  python3 dev.py test --only pytest -- -x --lf tests/tools
  python3 dev.py test --python 3.12          the same with another Python of this machine, or a path
  python3 dev.py test --every-python         with all that are found, and a table at the end
  python3 dev.py fix                         what ruff can correct and format by itself
  python3 dev.py run --version               the program, from this checkout
  python3 dev.py lock                        after a change of dependencies
  python3 dev.py docs                        the documentation, to be read in a browser

Environments are made below .dev/ on first use and kept until a lock or the Python changes.
Delete .dev/ at any time to start afresh. docs/CONTRIBUTING.md tells more.
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="dev.py",
        description="Development commands of dragoman.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    test = names.add_parser(
        "test",
        help="run every check, or the chosen ones",
        description="Run every check in this order, go on after a failure, and sum up at the end:\n\n"
        + "\n".join(f"  {check.name:<14}{check.what}" for check in checks.CHECKS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    test.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[check.name for check in checks.CHECKS],
        metavar="CHECK",
        help="run this check only (may be given more than once)",
    )
    which = test.add_mutually_exclusive_group()
    which.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PYTHON",
        help="with this Python, a version or a path (may be given more than once)",
    )
    which.add_argument("--every-python", action="store_true", help="with every Python of this machine, one by one")
    test.add_argument("-k", dest="expression", metavar="EXPRESSION", help="short for: --only pytest -- -k EXPRESSION")
    test.add_argument(
        "pytest_arguments",
        nargs="*",
        metavar="-- ARGUMENT",
        help="what follows -- goes to pytest, and only pytest is run",
    )

    names.add_parser(
        "run",
        help="run the program from this checkout; all arguments go to it",
        description="Run the program from this checkout; all arguments go to it.",
        add_help=False,
    )

    lock = names.add_parser("lock", help="bring the locks in requirements/ in step", allow_abbrev=False)
    lock.add_argument("--upgrade", action="store_true", help="take the newest releases instead of keeping the pins")

    names.add_parser("fix", help="let ruff correct and format what it can", allow_abbrev=False)
    names.add_parser("docs", help="build the documentation as a site in .dev/site", allow_abbrev=False)
    return top


def parse(argv: Sequence[str]) -> argparse.Namespace:
    if argv[:1] == ["run"]:  # everything else belongs to the program, --help included
        return argparse.Namespace(command="run", arguments=list(argv[1:]))
    return parser().parse_args(argv)


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    try:
        if options.command == "run":
            return commands.run(options.arguments)
        if options.command == "lock":
            return commands.lock(upgrade=options.upgrade)
        if options.command == "fix":
            return commands.fix()
        if options.command == "docs":
            return commands.build_docs()
        selection = checks.selected(options.only, options.expression, options.pytest_arguments)
        if options.python or options.every_python:
            return every_python.test(options.python, selection)
        return commands.test(selection)
    except DevelopmentError as error:
        print(f"dev.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ndev.py: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
