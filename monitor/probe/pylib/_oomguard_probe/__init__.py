"""oomguard's probe: tells in which stage of training the memory is used, without a change to the training script.

It runs inside the training process, so it must never break, slow or alter the training: no synchronisation with the GPU, one error
of its own switches it off and leaves a note, children that the process forks are silent.

    journal   the file to which events are appended
    memory    the numbers: CUDA allocator or resident memory
    watch     sees the calls of a function that stays what it is
    recorder  measures windows, folds and thins them
    timeline  which stage a window was
    hooks     where torch tells what the training does
    crash     what is told of an exception
"""
import atexit
import os
import sys
import time
import weakref

from . import crash, hooks
from .journal import DEFAULT_MAX_BYTES, Journal
from .memory import Memory
from .recorder import Recorder
from .timeline import Timeline


class Probe:
    """Joins the parts; every call from a hook comes through guard."""

    def __init__(self, torch, journal):
        self.torch, self.journal = torch, journal
        self.on = True
        self.memory = Memory(torch)
        self.recorder = Recorder(self.memory, journal)
        self.timeline = Timeline(self.recorder)
        # torch < 2.1 has no torch.compiler.is_compiling; dynamo can not inline our hooks there and skips them.
        self.compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or (lambda: False)
        self._trained = set()        # ids of the parameters that optimizers hold
        self._optimizers = []        # weak references to those that have stepped
        self._passed = (0, "")       # id of an exception that went through a hook, and the stage it came from
        self._told = False           # an uncaught exception is in the journal

    def guard(self, function, *args):
        """Calls a part of the probe for a hook. Only Exception is caught: a KeyboardInterrupt that arrives here is the user's."""
        if not self.on:
            return None
        try:
            return function(*args)
        except Exception as error:
            self.on = False
            try:
                self.journal.event("note", msg="the probe switched itself off after an error of its own: %r" % (error,))
            except Exception:
                pass
            return None

    def attempt(self, what, function, *args):
        """Calls what a version of torch may not have; without it one signal is missing."""
        try:
            function(*args)
        except Exception as error:
            self.guard(lambda: self.journal.event("note", msg="%s: this version of torch lacks something: %r" % (what, error)))

    def hello(self):
        env = os.environ
        reading = self.memory.read()
        rank = _number(env.get("RANK", env.get("LOCAL_RANK")))
        resident = reading[0] if self.memory.kind == "rss" else 0
        self.journal.event(
            "hello", wall=time.time(), rank=rank, local_rank=_number(env.get("LOCAL_RANK")), world_size=_number(env.get("WORLD_SIZE"), 1),
            pid=os.getpid(), attempt=_number(env.get("TORCHELASTIC_RESTART_COUNT")),
            torch=str(self.torch.__version__), python=sys.version.split()[0], a=resident, **self.memory.describe(reading[7]))
        if not self.memory.exact:
            self.journal.event("note", msg="without a GPU, the memory of a stage is a sample at its borders, or the peak of the process "
                                           "where that rose in it: the kernel's own peak is not reset")
        self.recorder.close("start", 0, 0)

    # Calls from hooks

    def optimizer_built(self, optimizer):
        self._trained.update(id(p) for group in optimizer.param_groups for p in group["params"])
        self.timeline.optimizer_built()

    def step_begin(self, optimizer, closure):
        self.timeline.step_begin(id(optimizer), closure is not None)

    def step_end(self, optimizer):
        self._remember(optimizer)
        self._after_step(self.timeline.step_end(id(optimizer)))

    def scaler_end(self, scaler):
        self._after_step(self.timeline.step_end(id(scaler)))

    def _remember(self, optimizer):
        if self.timeline.is_new(id(optimizer)):
            self._optimizers.append(weakref.ref(optimizer))

    def _after_step(self, first):
        if first:
            self.journal.event("state", **exact_sizes(self._optimizers, self.memory.kind == "cuda"))

    def eval_begin(self, module):
        """Returns whether an evaluation began: a module without trained parameters is a frozen teacher."""
        if not self.timeline.listens_to_eval or not self._is_trained(module):
            return False
        return self.timeline.eval_begin()

    def _is_trained(self, module):
        for count, parameter in enumerate(module.parameters()):
            if id(parameter) in self._trained:
                return True
            if count >= 256:  # an adapter has its parameters in the first layers
                return False
        return False

    def passed(self, error, stage):
        """An exception went through a hook. When it reaches the top, the state has moved on."""
        self._passed = (id(error), stage)
        if crash.is_oom(type(error), error) and self.memory.kind != "cuda":
            self.journal.event("oom", s=stage, st=self.timeline.step, msg=str(error)[:crash.MAX_MESSAGE])

    def passed_step(self, error):
        self.passed(error, self.timeline.now())

    def allocation_failed(self, device, want, total, free):
        reading = self.recorder.read()
        self.journal.event(
            "oom", s=self.timeline.now(), st=self.timeline.step, d=device, want=want, total=total, free=free,
            a=reading[0], pa=reading[1], r=reading[2], pr=reading[3], rt=reading[5], ooms=reading[6], **{"is": reading[4]})

    def uncaught(self, kind, error, traceback):
        crash.hide_our_frames(error, traceback)
        text = crash.text(kind, error, traceback)
        known = self._passed[0] == id(error)
        stage = self._passed[1] if known else self._stage_of(text)
        self.timeline.end("other" if known else stage)
        self.recorder.flush()
        self.journal.event("exc", s=stage, st=self.timeline.step, oom=crash.is_oom(kind, error), type=crash.name(kind),
                           msg=crash.message(error), tb=text, where=crash.where(traceback))
        self._told = True

    def _stage_of(self, text):
        """Between backward and step lie the next micro-batch and clipping; only the traceback tells them apart."""
        if self.timeline.between_backward_and_step() and "clip_grad" in text:
            return self.timeline.step_stage()
        return self.timeline.now()

    def fatal(self):
        """The main thread has ended: by an exception?"""
        if not self._told and getattr(sys, "last_value", None) is not None:
            self.uncaught(sys.last_type, sys.last_value, sys.last_traceback)

    def bye(self):
        self.fatal()
        if not self._told:
            self.timeline.end("other")
        self.recorder.flush()
        self.journal.event("bye", st=self.timeline.step, cost_ns=self.recorder.cost)

    def mute(self):
        self.on = self.journal.alive = False


def exact_sizes(optimizers, only_cuda):
    """Bytes of parameters, gradients and optimizer state; each storage counts once, with all its views. With CUDA only what lies on
    the GPU: offloaded state is not GPU memory."""
    seen = set()

    def size(tensor):
        tensor = getattr(tensor, "_local_tensor", tensor)  # DTensor: this rank's shard
        if not hasattr(tensor, "storage") or only_cuda and not tensor.is_cuda:
            return 0
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        key = (str(tensor.device), storage.data_ptr())
        if key in seen:
            return 0
        seen.add(key)
        return storage.nbytes()

    sizes = {"params": 0, "grads": 0, "optim": 0}
    for optimizer in filter(None, (reference() for reference in optimizers)):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        sizes["params"] += sum(size(p) for p in parameters)
        sizes["grads"] += sum(size(p.grad) for p in parameters if p.grad is not None)
        sizes["optim"] += sum(size(value) for state in optimizer.state.values() if isinstance(state, dict) for value in state.values())
    return sizes


def hide_from_dynamo(torch):
    """Marks our code as never to be compiled: torch 2.6 fails on it when a whole training step is compiled. Both functions are C;
    torch._dynamo, which is slow to import, is not."""
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "skip_code"):  # 2.0 and later
        skip = frames.skip_code
    elif hasattr(frames, "set_code_exec_strategy"):  # 2.14 and later
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)

        def skip(code):
            frames.set_code_exec_strategy(code, strategy)
    else:
        return
    for code in _our_code():
        skip(code)


def _our_code():
    """All code objects of this package, inner functions too."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == __name__]
    functions = []
    for module in modules:
        for value in vars(module).values():
            members = vars(value).values() if isinstance(value, type) else (value,)
            functions += [member for member in members if getattr(member, "__module__", None) == module.__name__]
    todo = [function.__code__ for function in functions if hasattr(function, "__code__")]
    seen = set()
    while todo:
        code = todo.pop()
        if code not in seen:
            seen.add(code)
            yield code
            todo += [constant for constant in code.co_consts if isinstance(constant, type(code))]


def _number(text, default=0):
    try:
        return int(text)
    except (TypeError, ValueError):
        return default


def install(torch, finder):
    """Starts reporting. Without a file to write to nothing is installed at all."""
    env = os.environ
    name = "rank-%d.%d.%d.jsonl" % (_number(env.get("RANK", env.get("LOCAL_RANK"))), _number(env.get("TORCHELASTIC_RESTART_COUNT")), os.getpid())
    journal = Journal(env["OOMGUARD_PROBE_DIR"], name, _number(env.get("OOMGUARD_MAXBYTES"), DEFAULT_MAX_BYTES))
    try:
        probe = Probe(torch, journal)
    except Exception as error:
        journal.event("note", msg="the probe did not start: %r" % (error,))
        return
    os.register_at_fork(after_in_child=probe.mute)
    probe.guard(probe.hello)
    probe.guard(hide_from_dynamo, torch)
    for hook in hooks.TORCH:
        _install_one(hook, torch, probe)
    for name, hook in hooks.LATER.items():
        if name in sys.modules:
            _install_one(hook, sys.modules[name], probe)
        else:
            _install_later(name, hook, finder, probe)
    atexit.register(lambda: probe.guard(probe.bye))


def _install_one(hook, module, probe):
    probe.attempt("hook " + hook.__qualname__.partition(".")[0], hook, module, probe)


def _install_later(name, hook, finder, probe):
    finder.add(name, lambda module: _install_one(hook, module, probe))
