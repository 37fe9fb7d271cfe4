"""Run seeds of the simulation (tests/support/simulation/__init__.py)."""

import argparse
import gc
import os
import sys
import time
from collections import defaultdict


def main() -> int:
    """The command. Returns its exit code: 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--trace", action="store_true", help="print each event")
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run (default: 2000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--kind", help="worlds of this kind only: local, cluster, prefork, power")
    parser.add_argument("--without", help="take a fix back (removed_fixes.py), in worlds that can show its fault")
    parser.add_argument("--digests", action="store_true", help="print the digest of each seed")
    parser.add_argument("--known", action="store_true", help="a seed with a known fault does not fail")
    parser.add_argument("--list-modules", action="store_true", help="print the simulated modules, and run nothing")
    parser.add_argument("--list-memory", action="store_true", help="print the memory of processes, and run nothing")
    parser.add_argument("--keep-going", action="store_true", help="go on after a seed that failed")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets are walked in the order of hashes
        again = [sys.executable, "-m", "tests.support.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})

    from tests.support.simulation import modules  # the engine is imported after `install`

    simulated = modules.install()
    if given.list_modules:
        print("\n".join(sorted(simulated.by_name)))
        return 0
    from tests.support.simulation import engine, story

    if given.list_memory:
        print("\n".join(engine.listed_memory()))
        return 0
    engine.prepare()
    story.prepare()
    if given.without:
        from tests.support.simulation import removed_fixes

        removed_fixes.FIXES[given.without]()
        given.kind = given.kind or removed_fixes.WORLDS[given.without]
    gc.collect()
    gc.freeze()
    gc.disable()  # it would end objects of the simulation at any moment
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    began, cpu = time.monotonic(), time.process_time()
    failed, count, by_kind = 0, 0, defaultdict[str, list[float]](list)
    for count, seed in enumerate(seeds, 1):
        start = time.process_time()
        outcome = story.run_seed(seed, print if given.trace else None, given.kind)
        by_kind[outcome.kind].append(time.process_time() - start)
        if count % 50 == 0:
            gc.collect()
        if given.digests:
            print(seed, outcome.digest)
        problems = outcome.new_problems if given.known else outcome.problems
        if problems or given.seed is not None:
            print(outcome)
        if problems:
            failed += 1
            kind = f" --kind {given.kind}" if given.kind else ""
            kind += f" --without {given.without}" if given.without else ""
            print(f"  again: python -m tests.support.simulation --seed {seed} --trace{kind}", flush=True)
            if not given.keep_going:
                break
    spent = time.process_time() - cpu
    print(
        f"{count} seeds, {failed} failed, {spent:.1f} s of CPU ({1000 * spent / count:.0f} ms a seed, "
        f"{60 * count / spent:.0f} seeds a minute), {time.monotonic() - began:.0f} s by the clock"
    )
    print(
        ", ".join(f"{kind}: {len(t)} seeds of {1000 * sum(t) / len(t):.0f} ms" for kind, t in sorted(by_kind.items()))
    )
    return 1 if failed else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # the collector is off, and a library would report live objects at the end
