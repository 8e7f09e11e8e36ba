"""The table of all commands. A command's module is imported when it is called.

So `--help`, `envs` or `report` need not wait for torch.
"""

import ast
import os
import sys
from collections.abc import Callable
from importlib import import_module, resources

from surprise_memory import __version__
from surprise_memory.errors import UserError, choose, how_to_install
from surprise_memory.training.launched import launched

PROGRAM = "surprise-memory"
COMMANDS = {  # by name: their modules in this package
    "train": "train",
    "eval": "runs",
    "envs": "lists",
    "methods": "lists",
    "doctor": "train",
    "bench": "bench",
    "show": "runs",
    "play": "runs",
    "mnir": "pictures",
    "inspect": "pictures",
    "figures": "pictures",
    "reproduce": "paper",
    "report": "paper",
}
NEEDED = ("tyro", "rich")  # by every command; the extra `cli` brings them
PARSE_THEMSELVES = ("train", "doctor")  # all options of a run


def function_of(name: str) -> Callable[..., None]:
    """A command's function."""
    module = import_module(f"surprise_memory.cli.{choose(COMMANDS, name, 'command')}")
    function: Callable[..., None] = getattr(module, f"{name}_command")
    return function


def about(name: str) -> str:
    """The first line of a command's docstring, read from its file: importing takes seconds."""
    source = resources.files("surprise_memory.cli").joinpath(f"{COMMANDS[name]}.py").read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == f"{name}_command":
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def print_commands() -> None:
    """All commands, a line each."""
    print("surprise-memory: explore by the novelty of surprises instead of their size\n")
    for name in COMMANDS:
        print(f"  {name:9} {about(name)}")
    print("\nFor more: surprise-memory COMMAND --help")


def run_command(name: str, argv: list[str]) -> None:
    """One command with its arguments."""
    if launched() > 1 and name != "train":
        raise UserError(f"torchrun is for train: start {name} without it.")
    command = function_of(name)
    if name in PARSE_THEMSELVES:
        command(argv)
    else:
        import tyro

        tyro.cli(command, args=argv, prog=f"surprise-memory {name}")


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code; a user's mistake is one sentence and 2."""
    if argv is None:
        argv = sys.argv[1:]
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print_commands()
        elif argv[0] == "--version":
            print(f"surprise-memory {__version__}")
        else:
            run_command(argv[0], argv[1:])
    except KeyboardInterrupt as stopped:
        if who() == PROGRAM:  # one of many processes says it for all
            print(f"\n{str(stopped) or 'Stopped.'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # such as `surprise-memory envs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at its end
        return 0
    except Exception as error:
        sentence = explain(error)
        if not sentence:
            raise
        print(f"{who()}: {sentence}", file=sys.stderr)
        return 2
    return 0


def who() -> str:
    """Who speaks: the program, with its number if it is one process of many but the first."""
    number = os.environ["RANK"] if launched() > 1 else "0"
    if number == "0":
        return PROGRAM
    return f"{PROGRAM} (process {number})"


def explain(error: Exception) -> str:
    """What to say of an error that the user can do something about; empty for a bug."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{where}."
    if isinstance(error, ModuleNotFoundError) and error.name in NEEDED:
        return f"{error.name} is not installed: {how_to_install('cli')}."
    # torch has no error of its own for this
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"Not enough memory: choose fewer environments or smaller sizes. {error}"
    return ""
