"""Lets oomguard's probe wait for torch, and leaves the interpreter as it would be without us.

Python imports a module of this name at start-up from the first folder that has one, and oomguard puts this folder in front of
PYTHONPATH. So this file runs in every Python below the wrapped command, Python 2 too: it must be cheap, must never raise, and must
be written in what all of them read. It uses only modules that are loaded by then.
"""
import os
import sys

HERE = os.path.dirname(__file__)  # as it stands in sys.path


def prepare():
    import _oomguard_start

    del sys.modules["_oomguard_start"]
    _oomguard_start.prepare(HERE)


def hand_over():
    """Imports the sitecustomize that there would be without us. What it raises, also that there is none, reaches Python as ever."""
    sys.path[:] = [entry for entry in sys.path if entry != HERE]
    sys.path_importer_cache.pop(HERE, None)
    ours = sys.modules.pop("sitecustomize")  # noqa: F841 Python 2 empties a module that nobody holds
    import sitecustomize  # noqa: F401


if sys.version_info >= (3, 8) and sys.implementation.name == "cpython" and os.environ.get("OOMGUARD_PROBE_DIR"):
    try:
        prepare()
    except Exception:
        pass  # the training goes on without us
hand_over()
