#!/bin/sh
# python.sh PYTHON VENV TORCH_VERSION: find a Python that imports torch and has torchrun beside it, and write the folder of the two
# to VENV/where. A torch that PYTHON already has is used as it is; otherwise a virtual environment is made and torch goes into it.
set -eu
python=$1 venv=$2 version=$3

# folder PYTHON: the folder of a Python with torch and torchrun; fails when it has none.
folder() {
    bin=$(dirname "$("$1" -c 'import sys, torch; print(sys.executable)' 2>/dev/null)") && [ -x "$bin/torchrun" ] && echo "$bin"
}

mkdir -p "$venv"
if bin=$(folder "$python"); then
    echo "using the torch of $bin"
elif bin=$(folder "$venv/bin/python"); then
    :
else
    echo "installing torch $version into $venv: about 3 GB to download, 5.4 GB on disk (the standard build brings the CUDA libraries)"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "torch==$version" numpy
    bin=$(folder "$venv/bin/python")
fi
echo "$bin" > "$venv/where"
