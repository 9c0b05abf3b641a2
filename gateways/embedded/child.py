"""The child process: serves the embedded model on a free port of the loopback, until its standard input ends.

Started as `python -m gateways.embedded.child`.  Reads one line of JSON, `{"model", "context", "answer"}`: the weights' file,
the tokens of its context, and those of an answer whose request names no limit; writes one, `{"url"}`, as soon as requests
are served.
"""

import ctypes
import json
import os
import signal
import sys
from typing import Any, Final

ALIAS: Final = "smollm2-135m-instruct"
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def main() -> None:
    """Serve; the process is ended by a signal, by its parent's death, or by the end of its standard input."""
    die_with_parent()
    settings = json.loads(sys.stdin.readline())
    server = serve(settings)
    sys.stdout.write(json.dumps({"url": server.listening_address}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # the server's own threads would keep the process


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux; elsewhere the input's end must do)."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent or parent == 1:
        os._exit(1)


def serve(settings: dict[str, Any]) -> Any:
    """Load the model and start llama.cpp's own server, with one thread for the computing; return when it listens."""
    import xllamacpp  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415 - 100 MB, for this process

    wanted = xllamacpp.CommonParams()
    wanted.model.path = settings["model"]
    wanted.model_alias = {ALIAS}
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = 0
    wanted.n_ctx = settings["context"]
    # So small a model soon repeats itself without end, and meanwhile nobody else is answered.
    wanted.n_predict = settings["answer"]
    wanted.sampling.dry_multiplier, wanted.sampling.dry_penalty_last_n = 0.8, settings["answer"]
    wanted.sampling.temp, wanted.sampling.top_p = 0.2, 0.9  # the model card's own
    wanted.n_parallel = 1
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = 1
    wanted.n_threads_http = 4
    wanted.cache_ram_mib = 0
    wanted.ui = False
    wanted.verbosity = 1
    return xllamacpp.Server(wanted)


if __name__ == "__main__":
    main()
