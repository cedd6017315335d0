#!/bin/sh
# old-torch.sh FOLDER: the oldest PyTorch that this machine can install, for the half of the conformance suite that runs on it: Debian's
# python3-torch (1.13.1 on Debian 12). Its packages are unpacked below FOLDER; nothing is installed and no rights are needed. FOLDER/where
# then names the folder of its python and torchrun; it is empty, with FOLDER/why beside it, where there is no such package.
set -eu
folder=$1
rm -rf "$folder"
mkdir -p "$folder/archives" "$folder/bin"
folder=$(cd "$folder" && pwd)

# without REASON: say that and why it cannot be had here. In CI, which runs on Debian, that is a failure.
without() {
    rm -rf "$folder"
    mkdir -p "$folder"
    echo "$1" > "$folder/why"
    : > "$folder/where"
    echo "the old-torch half of the conformance suite will NOT be run: $1" >&2
    [ -z "${CI:-}" ] || exit 1
    exit 0
}

command -v apt-get >/dev/null && command -v dpkg >/dev/null || without "this is not Debian or Ubuntu: there is no apt-get"

# missing: the packages that python3-torch needs and that are not installed here.
missing() { apt-get install --simulate --no-install-recommends python3-torch 2>/dev/null | sed -n 's/^Inst \([^ ]*\) .*/\1/p'; }
packages=$(missing)
if [ -z "$packages" ] && [ "$(id -u)" = 0 ] && ! dpkg -s python3-torch >/dev/null 2>&1; then
    apt-get update -qq || true
    packages=$(missing)
fi
if [ -z "$packages" ] && ! dpkg -s python3-torch >/dev/null 2>&1; then
    without "apt knows no python3-torch; run apt-get update, as root, if that was never done"
fi

if [ -n "$packages" ]; then
    echo "unpacking Debian's python3-torch into $folder: about 150 MB to download, 0.65 GB on disk"
    # shellcheck disable=SC2086 # one word a package
    (cd "$folder/archives" && apt-get -qq -o APT::Sandbox::User=root download $packages) || without "apt-get download failed; see above"
    for package in "$folder"/archives/*.deb; do dpkg --extract "$package" "$folder"; done
fi
rm -rf "$folder/archives"

# Debian's own python3, or, where it was not installed, the one that came along.
python=/usr/bin/python3
[ -x "$folder/usr/bin/python3" ] && python=$folder/usr/bin/python3
libraries=
for place in "$folder"/usr/lib "$folder"/lib/*-linux-gnu "$folder"/usr/lib/*-linux-gnu "$folder"/usr/lib/*-linux-gnu/blas "$folder"/usr/lib/*-linux-gnu/lapack; do
    [ ! -d "$place" ] || libraries=$libraries$place:
done
cat > "$folder/bin/python" <<END
#!/bin/sh
# The process stays the one that was started: torchrun is this file, then Python.
# torch 1.13 is older than Python 3.11, in which its reading of "redirect nothing" fails; a mapping that names only rank 9 says the same.
export PET_REDIRECTS="\${PET_REDIRECTS-9:1}" PET_TEE="\${PET_TEE-9:1}"
export LD_LIBRARY_PATH='$libraries'"\${LD_LIBRARY_PATH:-}"
export PYTHONPATH="\${PYTHONPATH:+\$PYTHONPATH:}$folder/usr/lib/python3/dist-packages"
exec $python "\$@"
END
cat > "$folder/bin/torchrun" <<END
#!/bin/sh
exec '$folder/bin/python' -c 'import sys; sys.argv[0] = "torchrun"; from torch.distributed.run import main; sys.exit(main())' "\$@"
END
chmod +x "$folder/bin/python" "$folder/bin/torchrun"
"$folder/bin/python" -c 'import torch, torch.distributed.run; print("old torch:", torch.__version__)' || without "its torch cannot be imported; see above"
echo "$folder/bin" > "$folder/where"
