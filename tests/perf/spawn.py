"""Run commands, and tell what they took.

    python spawn.py

Reads lines of JSON, each with the words of a command, and answers each with a line: exit `status`, `seconds` from start to exit, peak
`megabytes`, and the end of what it printed. A process of its own, because the kernel counts the memory of the process that starts a
command as memory of the command.
"""

import json
import os
import subprocess
import sys
import time

for line in sys.stdin:
    start = time.time()
    process = subprocess.Popen(json.loads(line), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.time() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    answer = {"status": process.returncode, "seconds": seconds, "megabytes": usage.ru_maxrss / 1024, "text": text[-2000:]}
    print(json.dumps(answer), flush=True)
