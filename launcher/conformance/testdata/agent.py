"""Stands for torchrun where its start would take too long: starts one rank.py for each word in a session of its own, looks after them
every 100 ms, hands SIGTERM and SIGINT on to their groups, and ends with 1 when one of them failed.
"""
import os
import signal
import subprocess
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
ranks = []


class Asked(Exception):
    pass


def on_signal(number, frame):
    raise Asked(number)


signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGINT, on_signal)
words = sys.argv[1:]
try:
    for rank in range(len(words)):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(len(words)), TORCHELASTIC_RESTART_COUNT="0")
        ranks.append(subprocess.Popen([sys.executable, "-S", "-E", os.path.join(here, "rank.py")] + words, env=environment, start_new_session=True))
    while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
        time.sleep(0.1)
except Asked as asked:
    for rank in ranks:
        os.killpg(rank.pid, asked.args[0])
else:
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, signal.SIGTERM)
sys.exit(max([rank.wait() != 0 for rank in ranks]))
