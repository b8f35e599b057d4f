"""Output of the recorded commands, before and after a change that is meant to change none of them.

    python tools/record_commands.py record /somewhere/before
    python tools/record_commands.py record /somewhere/after
    python tools/record_commands.py compare /somewhere/before /somewhere/after

Every line of ``recorded_commands.txt`` runs in processes of its own, in an empty folder beside links to the examples
and the logs of the tests. Kept are the exit code, stdout, stderr less what depends on speed, and every file written.
``--checkout`` records another working tree, such as one of an older commit.
"""

from __future__ import annotations

import argparse
import difflib
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
COMMANDS = HERE / "recorded_commands.txt"
PROGRAM = "import sys; sys.argv[0] = 'collsim'; from collsim.cli import main; main()"
STATEMENT = """
import sys, collsim
try:
    exec(sys.argv[1])
except collsim.CollsimError as error:
    print(type(error).__name__, error)
"""
OF_SPEED = ("still working", "compiling")
"""Lines of stderr with one of these are about how fast the machine is."""
LINKED = ("examples", "tests")
SHOWN = 40
"""Lines of a difference that are printed."""


def commands() -> list[str]:
    """Recorded lines without comments: arguments of collsim or ``python:`` and a statement, steps behind ``;;``."""
    lines = COMMANDS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def outcome(line: str, checkout: pathlib.Path) -> str:
    """Exit codes, both streams and the files of one recorded line, as text."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
    text = f"$ {line}\n"
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        for name in LINKED:
            (place / name).symlink_to(checkout / name)
        for step in line.split(" ;; "):
            before, is_python, statement = step.partition("python:")
            program = [STATEMENT, statement.strip()] if is_python and not before else [PROGRAM, *shlex.split(step)]
            command = [sys.executable, "-c", *program]
            done = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False)
            text += f"--- exit code {done.returncode}\n--- stdout\n{_decoded(done.stdout)}--- stderr\n"
            heard = _decoded(done.stderr).splitlines(keepends=True)
            text += "".join(part for part in heard if not any(word in part for word in OF_SPEED))
        for path in sorted(place.rglob("*")):
            if path.is_file():
                text += f"--- {path.relative_to(place)}\n{_decoded(path.read_bytes())}\n"
    return text.replace(str(checkout), "CHECKOUT").replace(folder, "FOLDER")


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def record(folder: pathlib.Path, checkout: pathlib.Path, workers: int) -> None:
    """Run every recorded line on a checkout, and write what it answers to a file each."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = commands()
    with ThreadPoolExecutor(workers) as pool:
        for number, text in enumerate(pool.map(lambda line: outcome(line, checkout), lines)):
            (folder / f"{number:03d}.txt").write_text(text, encoding="utf-8")
    print(f"{len(lines)} commands recorded")


def compare(before: pathlib.Path, after: pathlib.Path) -> int:
    """Print how two recordings differ, and return the number of commands that do."""
    ours, theirs = (
        {text.partition("\n")[0]: text for text in (path.read_text(encoding="utf-8") for path in folder.glob("*.txt"))}
        for folder in (before, after)
    )
    different = 0
    for line in sorted(ours.keys() | theirs.keys()):
        if ours.get(line) == theirs.get(line):
            continue
        different += 1
        print(line)
        changes = difflib.unified_diff(ours.get(line, "").splitlines(), theirs.get(line, "").splitlines(), lineterm="")
        print("\n".join(f"    {change}" for change in list(changes)[2 : SHOWN + 2]))
    print(f"{different} of {len(ours)} commands differ")
    return different


def main() -> int:
    """Read the command line; 1 if recordings differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    steps = parser.add_subparsers(dest="step", required=True)
    recording = steps.add_parser("record")
    recording.add_argument("folder", type=pathlib.Path)
    recording.add_argument("--checkout", type=pathlib.Path, default=HERE.parent)
    recording.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    comparing = steps.add_parser("compare")
    comparing.add_argument("before", type=pathlib.Path)
    comparing.add_argument("after", type=pathlib.Path)
    asked = parser.parse_args()
    if asked.step == "record":
        record(asked.folder, asked.checkout.resolve(), asked.workers)
        return 0
    return 1 if compare(asked.before, asked.after) else 0


if __name__ == "__main__":
    sys.exit(main())
