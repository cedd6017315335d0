#!/bin/sh
# slurm.sh COMMAND...: runs COMMAND while a real Slurm of two nodes runs on this one machine, and stops all of it at the end. Installs
# slurmctld, slurmd and munge from Debian or Ubuntu if they are missing (as root, or with sudo that asks for no password: 3.5 MB to
# download, 13 MB on disk). Its configuration and logs lie in a folder of their own, which COMMAND finds in OOMGUARD_TEST_SLURM; a Slurm
# that runs on this machine is not touched.
#
# Where that cannot be had COMMAND runs without, and OOMGUARD_TEST_NO_SLURM says why; in CI (CI is set) that is an error. Where Slurm cannot
# limit a job's memory, OOMGUARD_TEST_NO_SLURM_MEMORY says why.
set -eu

without() {
    why=$1
    shift
    echo "slurm.sh: NOT RUN: the tests with a real Slurm of two nodes: $why" >&2
    [ -z "${CI:-}" ] || exit 1
    exec env OOMGUARD_TEST_NO_SLURM="$why" "$@"
}

have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
installed() { have slurmctld && have slurmd && have srun && have munged; }

# as_root COMMAND...: fails where we may not.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# install: without starting the services that the packages bring.
install() {
    as_root true 2>/dev/null || return 1
    guard=/usr/sbin/policy-rc.d
    if [ ! -e $guard ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee $guard >/dev/null
        as_root chmod 755 $guard
        made=1
    fi
    {
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends slurmctld slurmd slurm-client munge ||
            { as_root apt-get update -qq &&
              as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends slurmctld slurmd slurm-client munge; }
    } >/dev/null 2>&1 || failed=1
    [ -z "${made:-}" ] || as_root rm -f $guard
    [ -z "${failed:-}" ]
}

PATH=$PATH:/usr/sbin:/sbin
if ! installed; then
    command -v apt-get >/dev/null 2>&1 || without "this is neither Debian nor Ubuntu, and slurmctld, slurmd, srun and munged are not all installed" "$@"
    echo "slurm.sh: installing slurmctld, slurmd, slurm-client and munge" >&2
    install && installed || without "slurmctld, slurmd, slurm-client and munge are missing and could not be installed (no root, or no network)" "$@"
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/oomguard-slurm.XXXXXX")
user=$(id -un) host=$(hostname -s)
port=$((20000 + $$ % 4000 * 3)) # below the ports that the kernel gives away
mkdir "$dir/state" "$dir/n1" "$dir/n2"

# unlimited: why Slurm cannot limit a job's memory here; nothing where it can.
unlimited() {
    if [ ! -d /sys/fs/cgroup/memory ]; then
        echo "Slurm's control groups are tried where the memory controller is mounted at /sys/fs/cgroup/memory (version 1), which it is not here"
    elif ! mkdir "/sys/fs/cgroup/memory/oomguard.$$" 2>/dev/null; then
        echo "/sys/fs/cgroup/memory may not be written here"
    else
        rmdir "/sys/fs/cgroup/memory/oomguard.$$"
    fi
}

stop() {
    trap - EXIT INT TERM HUP
    scancel --user="$user" >/dev/null 2>&1 || true
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ -n "$(squeue --noheader 2>/dev/null)" ] || break
        sleep 1
    done
    for pid in $(pgrep -x slurmstepd); do # of a step that a test has broken
        if tr '\0' '\n' 2>/dev/null < "/proc/$pid/environ" | grep -q "^SLURM_CONF=$dir/"; then kill -9 "$pid" || true; fi
    done
    for daemon in n1 n2 slurmctld munged; do
        pid=$(cat "$dir/$daemon.pid" 2>/dev/null) || continue
        kill "$pid" 2>/dev/null || continue
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.3
        done
        kill -9 "$pid" 2>/dev/null || true
    done
    find /sys/fs/cgroup/*/slurm_n[12] -depth -type d -exec rmdir {} + 2>/dev/null || true
    rm -rf "$dir"
}

# ProctrackType differs: on n1 Slurm signals every process of a step, on n2 only the process group that it has started, as
# proctrack/cgroup does on most clusters. n2 also limits the memory of a job, where it can. Nodes are said to have more memory than any
# machine, so that jobs do not wait for it.
configuration() {
    cat <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock
CredType=cred/munge
ProctrackType=proctrack/$1
TaskPlugin=task/$2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerNode=4000
SlurmdParameters=config_overrides
DebugFlags=NO_CONF_HASH
ReturnToService=2
KillWait=30
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/%n.log
NodeName=n1,n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)),$((port + 2)) CPUs=$(nproc) RealMemory=1000000
PartitionName=test Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4
CONF
}

trap stop EXIT
trap 'exit 130' INT TERM HUP
configuration linuxproc none > "$dir/slurm.conf"
OOMGUARD_TEST_NO_SLURM_MEMORY=$(unlimited)
export OOMGUARD_TEST_NO_SLURM_MEMORY
[ -z "$OOMGUARD_TEST_NO_SLURM_MEMORY" ] || echo "slurm.sh: NOT RUN: the test of an OOM kill by a job's memory limit: $OOMGUARD_TEST_NO_SLURM_MEMORY" >&2
configuration pgid "$([ -n "$OOMGUARD_TEST_NO_SLURM_MEMORY" ] && echo none || echo cgroup)" > "$dir/n2.conf"
echo ConstrainRAMSpace=yes > "$dir/cgroup.conf"
head -c 1024 /dev/urandom > "$dir/munge.key"
chmod 400 "$dir/munge.key"
chmod 711 "$dir"
export SLURM_CONF="$dir/slurm.conf"
{
    munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" \
        --seed-file="$dir/munged.seed" &&
    slurmctld -f "$dir/slurm.conf" && slurmd -N n1 -f "$dir/slurm.conf" && slurmd -N n2 -f "$dir/n2.conf"
} >"$dir/start.log" 2>&1 || { cat "$dir"/*.log >&2; echo "slurm.sh: Slurm does not start" >&2; exit 1; }
tries=0
until [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" = 2 ]; do
    tries=$((tries + 1))
    [ $tries -lt 60 ] || { cat "$dir"/*.log >&2; echo "slurm.sh: the two nodes do not become idle" >&2; exit 1; }
    sleep 0.5
done

status=0
OOMGUARD_TEST_SLURM="$dir" "$@" || status=$?
stop
exit $status
