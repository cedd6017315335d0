"""Starts oomguard's probe when a training process imports torch, and does nothing else. It is imported by sitecustomize, in every
Python of version 3.8 or later: it must be cheap, and uses only modules that are loaded by then.
"""
import os
import sys

# Programs that import torch only to start the processes that train.
LAUNCHERS = {
    "torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch", "torch.distributed.launcher",
    "accelerate.commands.launch", "accelerate.commands.accelerate_cli", "deepspeed.launcher.runner", "deepspeed.launcher.launch",
}


def identity(env):
    """Which training process of the job this is, "pid/rank/local rank/attempt": its children inherit it and stay silent."""
    names = ("RANK", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT")
    return "/".join([str(os.getpid())] + [env.get(name, "") for name in names])


def wanted(env):
    """Whether this process may be the one that reports for its rank."""
    if not env.get("OOMGUARD_PROBE_DIR") or env.get("OOMGUARD_PROBE") == "0":
        return False
    if "LOCAL_RANK" not in env and "RANK" not in env and env.get("OOMGUARD_SINGLE") != "1":
        return False
    if any(getattr(finder, "oomguard", False) for finder in sys.meta_path):
        return False  # oomguard inside oomguard: the inner one reports
    owner = env.get("OOMGUARD_OWNER", "")
    mine = identity(env)
    return owner == mine or owner.partition("/")[2] != mine.partition("/")[2]


def is_launcher():
    """Whether this process only starts others. A cluster may set RANK for the node, so the variables alone do not tell."""
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().decode("utf-8", "replace").split("\0")[1:]
    while words and words[0].startswith("-"):
        if words[0] == "-m":
            return len(words) > 1 and words[1] in LAUNCHERS
        words = words[2:] if words[0] in ("-W", "-X") else words[1:]
    return bool(words) and os.path.basename(words[0]) in LAUNCHERS


def passes_for_importlib(function):
    """Python leaves importlib's frames out of tracebacks of failed imports, and does not count them for warnings."""
    function.__code__ = function.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")
    return function


class AfterImport:
    """A meta path finder that calls back when one of a few modules has been executed; it finds nothing itself."""

    oomguard = True

    def __init__(self):
        self.callbacks = {}

    def add(self, name, callback):
        self.callbacks[name] = callback

    @passes_for_importlib
    def find_spec(self, name, path=None, target=None):
        if name not in self.callbacks:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if finder is not self and find else None
            if spec is not None:
                self._wrap(name, spec.loader)
                return spec
        return None

    def _wrap(self, name, loader):
        """Wraps exec_module, not the search: libraries ask find_spec whether torch is there long before they import it."""
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        @passes_for_importlib
        def exec_module(module):
            loader.__dict__.pop("exec_module", None)
            run(module)  # errors of the module itself pass untouched
            callback = self.callbacks.pop(name, None)
            if callback is not None:
                try:
                    callback(module)  # may add others
                except Exception:
                    pass  # the training goes on without us
            if not self.callbacks and self in sys.meta_path:
                sys.meta_path.remove(self)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass


def start(folder, torch, finder):
    """Loads the probe from its folder and installs it: torch has just been imported."""
    env = os.environ
    if "LOCAL_RANK" not in env and is_launcher():
        return
    env["OOMGUARD_OWNER"] = identity(env)
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.join(folder, "_oomguard_probe")
    spec = spec_from_file_location("_oomguard_probe", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    probe = module_from_spec(spec)
    sys.modules[spec.name] = probe
    spec.loader.exec_module(probe)
    probe.install(torch, finder)


def prepare(folder):
    if wanted(os.environ):
        finder = AfterImport()
        finder.add("torch", lambda torch: start(folder, torch, finder))
        sys.meta_path.insert(0, finder)
