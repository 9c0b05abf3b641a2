"""Every benchmark, one after the other, each a process of its own; arguments go to all of them."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAM = 'if __name__ == "__main__":'
CHILDREN = frozenset({"listeners"})
"""Programs that a benchmark starts itself."""


def main() -> None:
    """Run them all, also after one that fails; leave with 1 if one did."""
    failed = []
    programs = sorted({path.stem for path in HERE.glob("[a-z]*.py") if PROGRAM in path.read_text("utf-8")} - CHILDREN)
    for name in programs:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]]
        if subprocess.run(command, cwd=HERE.parent, check=False).returncode != 0:
            failed.append(name)
    if failed:
        sys.exit(f"did not run: {', '.join(failed)}")


if __name__ == "__main__":
    main()
