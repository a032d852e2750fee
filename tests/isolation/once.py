"""One run of the state machine without pytest, reported as one line of JSON: for `mutate`, which runs it in copies.

python -m tests.isolation.once --runs 10 --steps 250 --seed 1
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import tenancy
from tests.isolation.agreement import Tally
from tests.isolation.machine import deployed, drive


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("runs", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    if not Path(str(tenancy.__file__)).is_relative_to(Path.cwd()):
        sys.exit(f"this would test {tenancy.__file__}, which is not the code of {Path.cwd()}")
    tally, begun, failure = Tally(), time.monotonic(), None
    try:
        with deployed() as deployment:
            drive(deployment, tally, runs=given.runs, steps=given.steps, number=given.seed, shrink=False)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result of this run
        failure = tally.first_difference or (tally.steps, f"{type(error).__name__}: {error}")
    seconds = round(time.monotonic() - begun, 1)
    print(json.dumps({"failure": failure, "seconds": seconds, "tally": str(tally)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
