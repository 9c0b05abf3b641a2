"""Every benchmark, one after the other, each a process of its own; arguments go to all of them."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SHARED = frozenset({"__init__", "__main__", "figures", "fill", "stage", "listeners"})


def main() -> None:
    """Run them all, also after one that fails; leave with 1 if one did."""
    failed = []
    for name in sorted(path.stem for path in HERE.glob("*.py") if path.stem not in SHARED):
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]]
        if subprocess.run(command, cwd=HERE.parent, check=False).returncode != 0:
            failed.append(name)
    if failed:
        sys.exit(f"did not run: {', '.join(failed)}")


if __name__ == "__main__":
    main()
