"""A rank: logs what happens to it to $CONFORMANCE/log.RANK, and does what its argument (one a rank, in their order) says.

exit:N, kill:N     ends so, once all ranks are ready
late:N             ends with N three seconds after that, when oomguard has certainly seen it
log, log:N         logs signals; ends with N (0) after one that asks for its end
only:NAME          logs the signal of that name, whatever that is
stubborn           logs signals and goes on
patient            waits until it is interrupted, and says so when a file "touched" is there
idle               waits and catches nothing
parent             as log, with a child in its own process group and one in a session of its own
say:TEXT           writes TEXT to stdout and a note to stderr
brief              writes a line, and another one after half a second
read               logs what it reads from stdin
facts              logs what it inherited
restart:N          fails before attempt N
flood              writes until nobody reads
uninterruptible    waits in the kernel, where only SIGKILL reaches it
"""
import ctypes
import os
import resource
import signal
import sys
import time

rank = int(os.environ.get("RANK", "0"))
world = int(os.environ.get("WORLD_SIZE", "1"))
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
folder = os.environ["CONFORMANCE"]
end = os.path.join(folder, "end")


def log(text, fd=os.open(os.path.join(folder, "log.%d" % rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)):
    os.write(fd, (text + "\n").encode())


def on_signal(number, frame):
    log(signal.Signals(number).name)
    if status is not None and number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os._exit(status)


def catch():
    for name in "HUP INT QUIT USR1 USR2 TERM WINCH CONT TSTP".split():
        number = getattr(signal, "SIG" + name)
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, on_signal)


def forever():
    while not os.path.exists(end):
        time.sleep(0.01)


def ready():
    """Says so, and waits until all ranks have."""
    with open(os.path.join(folder, "ready.%d.%d.tmp" % (attempt, rank)), "w") as f:
        f.write("%d %d" % (os.getpid(), os.getppid()))
    os.rename(f.name, f.name[:-4])
    while not all(os.path.exists(os.path.join(folder, "ready.%d.%d" % (attempt, r))) for r in range(world)):
        time.sleep(0.005)


def facts():
    with open("/proc/self/status") as f:
        status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
    if "RANK" in os.environ:  # a command of its own is a child of oomguard's and has a group of its own
        with open("/proc/%d/cmdline" % os.getppid(), "rb") as f:
            log("torchrun is the parent: %s" % (b"torch" in f.read()))
        log("session leader %s, group leader %s" % (os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()))
    for name in ("SigBlk", "SigIgn", "Umask", "NoNewPrivs", "Seccomp", "Cpus_allowed", "CapEff"):
        log("%s %s" % (name, status.get(name)))
    log("nice %d" % os.nice(0))
    log("folder %s" % os.getcwd())
    log("descriptors %s" % sorted(f for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f)))
    log("terminals %s" % [os.isatty(fd) for fd in range(3)])
    for name in ("NOFILE", "STACK", "CORE", "NPROC", "MEMLOCK", "CPU"):
        log("%s %s" % (name, resource.getrlimit(getattr(resource, "RLIMIT_" + name))))
    with open("/proc/self/oom_score_adj") as f:
        log("oom_score_adj %s" % f.read().strip())
    for name, value in sorted(os.environb.items()):
        log("%s=%s" % (name.decode(errors="backslashreplace"), value.decode(errors="backslashreplace")))


what, _, value = sys.argv[1:][min(rank, len(sys.argv) - 2)].partition(":")
status = None if what == "stubborn" else int(value) if what == "log" and value else 0
if what == "parent":
    for own_session in (False, True):
        if os.fork() == 0:
            if own_session:
                os.setsid()
            forever()
            os._exit(0)
if what in ("log", "stubborn", "parent"):
    catch()
if what == "only":
    signal.signal(getattr(signal, "SIG" + value), lambda number, frame: log("SIG" + value))
if what == "uninterruptible":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if what == "facts":
    facts()
if what == "restart":
    log("attempt %d" % attempt)  # the agent ends it as soon as another one has failed
ready()
if what == "exit":
    sys.exit(int(value))
elif what == "late":
    time.sleep(3)
    sys.exit(int(value))
elif what == "kill":
    os.kill(os.getpid(), int(value))
elif what == "say":
    os.write(1, (value + " from %d\n" % rank).encode())
    os.write(2, ("note of %d\n" % rank).encode())
elif what == "patient":
    def interrupted(number, frame):
        try:
            os.write(1, b"interrupted\n")
        finally:
            os._exit(9)

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.write(1, b"begun\n")
    while True:
        time.sleep(0.01)
        if os.path.exists(os.path.join(folder, "touched")):
            os.remove(os.path.join(folder, "touched"))
            os.write(1, b"goes on\n")
elif what == "brief":
    os.write(1, b"begin %d\n" % rank)
    time.sleep(0.5)
    os.write(1, b"end %d\n" % rank)
elif what == "read":
    for line in sys.stdin.buffer:
        log("read %r" % line)
    log("end of input")
elif what == "restart":
    sys.exit(0 if attempt >= int(value) else 3)
elif what == "flood":
    while True:
        os.write(1, b"line\n")
elif what == "uninterruptible":
    if ctypes.CDLL(None).vfork() == 0:  # the parent waits for the child, which never executes anything
        while True:
            time.sleep(1)
elif what in ("log", "stubborn", "parent", "idle", "only"):
    forever()
