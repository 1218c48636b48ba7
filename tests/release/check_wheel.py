"""Checks that a wheel keeps what its platform tag promises: `check_wheel.py WHEEL PLATFORM`.

auditwheel knows for each platform which libraries and which versions of their symbols a file may
need.
"""

import subprocess
import sys
from pathlib import Path


def main() -> None:
    wheel, platform = Path(sys.argv[1]), sys.argv[2]
    if not wheel.stem.endswith(f"-cp311-abi3-{platform}"):
        sys.exit(f"{wheel.name}: expected a wheel for CPython 3.11 and newer on {platform}")
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    report = " ".join(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    # The oldest platform that fits.
    start = 'consistent with the following platform tag: "'
    if start not in report:
        sys.exit(f"auditwheel names no platform: {report}")
    oldest = report.split(start)[1].split('"')[0]
    glibc = [int(part) for part in oldest.split("_")[1:3]]
    allowed = [int(part) for part in platform.split("_")[1:3]]
    print(f"  auditwheel: {wheel.name} runs on {oldest}")
    if not oldest.startswith("manylinux_") or glibc > allowed:
        sys.exit(f"{wheel.name} needs {oldest}, which is newer than {platform}: {report}")


main()
