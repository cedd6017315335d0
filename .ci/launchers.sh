#!/bin/sh
# launchers.sh PYTHON FOLDER: real accelerate and deepspeed for the conformance suite. They go into a virtual environment of their own in
# FOLDER, which finds the torch of PYTHON: that Python's own packages are left alone. FOLDER/where then names the folder of its programs.
set -eu
python=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)

rm -rf "$folder"
"$python" -m venv "$folder"
folder=$(cd "$folder" && pwd)
# Its own packages come first, then all that PYTHON has.
"$python" -c 'import sys; print("\n".join(path for path in sys.path if path.endswith("-packages")))' > \
    "$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
echo "installing accelerate and deepspeed into $folder: about 9 MB to download, 70 MB on disk"
DS_BUILD_OPS=0 "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$here/launchers.txt"
"$folder/bin/accelerate" launch --help >/dev/null
"$folder/bin/deepspeed" --help >/dev/null
echo "$folder/bin" > "$folder/where"
