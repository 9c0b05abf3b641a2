"""Random histories through encoders and gates of the three protocols: no vendor may refuse a request that goes out.

Each history is encoded three times.  The judge shares no code with the gates (`tests/fakes/grammar`).  A request that a gate
stops although the encoder made it counts as a fault too: such a session could not go on.
"""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Any

from tests.fakes.adapter import script_names
from tests.fakes.grammar import faults
from tests.fakes.histories import MODELS, history_of, provider_of, request_of

BATCH = 2_000
EXPECTED = frozenset({"unsupported_images", "unsupported_files", "nothing to send"})


def judge(seed: int) -> Counter[str]:
    """Try one history in all protocols; count the outcomes, each fault under its own words."""
    random = Random(seed)
    names, found = script_names(), Counter[str]()
    history = history_of(random)
    checked = names["gate_check"](history)
    if checked["error"] is not None:
        return Counter({"nothing to send": 3})
    for provider_name, model, protocol in _models(random):
        provider = provider_of(random, provider_name, model)
        request = request_of(random, names["llm_request"], checked["messages"], checked["system"], model)
        encoded = names["LLM_ADAPTERS"][protocol]["encode"](request, provider)
        if encoded["ok"]:
            found["sent"] += 1
            found.update(f"{protocol}, seed {seed}: {fault}" for fault in faults(protocol, encoded["body"]))
        else:
            code = encoded["error"]["code"]
            nothing = "there are n" in encoded["error"]["message"]
            known = "nothing to send" if nothing else code
            found[known if known in EXPECTED else f"{protocol}, seed {seed}: stopped: {encoded['error']['message']}"] += 1
    return found


def batch(first: int, count: int) -> Counter[str]:
    """Try `count` histories from seed `first` on."""
    found = Counter[str]()
    for seed in range(first, first + count):
        found.update(judge(seed))
    return found


def wrong(found: Counter[str]) -> dict[str, int]:
    """Return what should not be."""
    return {name: count for name, count in found.items() if name != "sent" and name not in EXPECTED}


def _models(random: Random) -> list[tuple[str, str, str]]:
    return [MODELS[0], MODELS[1], random.choice(MODELS[2:])]


def main() -> None:
    """Run and say what was found; leave with 1 if a vendor would refuse a request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=20_000)
    for size, count in (("--tiny", 1_000), ("--quick", 20_000), ("--full", 1_000_000)):
        parser.add_argument(size, dest="histories", action="store_const", const=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked: Any = parser.parse_args()
    began, found = time.perf_counter(), Counter[str]()
    starts = range(asked.seed, asked.seed + asked.histories, BATCH)
    counts = [min(BATCH, asked.seed + asked.histories - start) for start in starts]
    with ProcessPoolExecutor(asked.processes) as pool:
        for part in pool.map(batch, starts, counts):
            found += part
    seconds = time.perf_counter() - began
    print(f"{asked.histories} histories, {found['sent']} requests sent, in {seconds:.0f} s")
    for name in sorted(EXPECTED):
        print(f"  {name}: {found[name]}")
    faulty = wrong(found)
    print(f"  invalid requests: {sum(faulty.values())}")
    for name in list(faulty)[:20]:
        print(f"    {name}")
    sys.exit(1 if faulty else 0)


if __name__ == "__main__":
    main()
