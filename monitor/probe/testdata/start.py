"""Prints the interpreter as a script finds it, in words that every Python reads."""
import os
import sys

import email  # noqa: F401 an import after start-up


def names(things):
    return sorted(str(thing) for thing in things)


def show(*words):
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")


show("path", sys.path[1:])
show("modules", names(sys.modules))
show("finders", [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path if not hasattr(finder, "oomguard")])
show("hooks", len(sys.path_hooks), sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, getattr(sys, "last_value", None))
show("cache", [path for path in sys.path_importer_cache if "pylib" in path])
show("flags", sys.flags, sys.argv[1:])
show("environment", names(key for key in os.environ if key not in ("PYTHONPATH", "OOMGUARD_PROBE_DIR")))
show("sitecustomize", getattr(sys.modules.get("sitecustomize"), "__file__", None))
show("usercustomize", getattr(sys.modules.get("usercustomize"), "__file__", None))
try:
    import torch_is_not_here  # noqa: F401
except ImportError:
    show("import", sys.exc_info()[1], sys.exc_info()[2].tb_next)
sys.stdout.flush()
raise ValueError("the end")
