"""The places where torch tells what the training does. Each hook stands alone: a name that a version lacks costs one signal.

Public functions and methods are watched, not replaced: see watch. No hooks on modules: they cost time in every call and break
torch.compile's graphs. One place sees all optimizer steps (the global step hooks).
"""
import atexit
import inspect
import sys
import threading

from .watch import Watch, attach, watched


def backward(torch, probe):
    """Backward passes: Tensor.backward, autograd.backward, autograd.grad."""
    watch_backward(probe, torch.autograd.backward, torch.autograd.grad)


def pipeline_backward(schedules, probe):
    """Backward passes of pipelines that call the engine themselves."""
    watch_backward(probe, schedules.custom_backward)


def watch_backward(probe, *functions):
    timeline = probe.timeline

    def end(subject, begun, error):
        if error is not None:
            probe.passed(error, "backward")
        timeline.backward_end()

    watch = Watch(probe.guard, lambda subject, closure: timeline.backward_begin(), end)
    for function in functions:
        attach(function, watch)


def engine(torch, probe):
    """Backward passes of code that calls the engine and is not watched. Libraries ask for the engine's type, so ours is a subclass. Inside
    a function that is watched it hands out its own method, so that no frame of ours shows there."""
    base = type(torch.autograd.Variable._execution_engine)
    original = base.run_backward
    timeline = probe.timeline

    class Engine(base):
        __slots__ = ()

        @property
        def run_backward(self):
            return original.__get__(self) if timeline.backward_depth or not probe.on else self._watched

        def _watched(self, *args, **kwargs):
            probe.guard(timeline.backward_begin)
            try:
                return original(self, *args, **kwargs)
            except BaseException as error:
                probe.guard(probe.passed, error, "backward")
                raise
            finally:
                probe.guard(timeline.backward_end)

    Engine.__name__, Engine.__qualname__, Engine.__module__ = base.__name__, base.__qualname__, base.__module__
    torch.autograd.Variable._execution_engine = Engine()


def optimizer_class():
    return sys.modules["torch.optim.optimizer"].Optimizer  # torch 1.13 deletes the attribute torch.optim.optimizer


def optimizer_built(torch, probe):
    """The end of setup, and which parameters are trained. The base class allocates no tensors, but torch imports its compiler when
    the first one is built: 80 MB of resident memory (torch 2.15) that are not the training's."""
    watch_steps = watcher_of_steps(probe)

    def begin(optimizer, closure):
        probe.timeline.setup_done()
        return probe.memory.before_import()

    def end(optimizer, before, error):
        probe.memory.after_import(before)
        if error is None:
            watch_steps(type(optimizer))
            probe.optimizer_built(optimizer)

    attach(optimizer_class().__init__, Watch(probe.guard, begin, end))


def has_step_hooks():
    return hasattr(sys.modules["torch.optim.optimizer"], "register_optimizer_step_pre_hook")


def optimizer_step(torch, probe):
    """Optimizer steps, through the global hooks of torch 2. Dynamo inlines them: is_compiling() folds to a constant there, so that
    a compiled step neither breaks nor recompiles."""
    if not has_step_hooks():
        return
    module = sys.modules["torch.optim.optimizer"]
    compiling = probe.compiling

    def before(optimizer, args, kwargs):
        if compiling():
            return
        probe.guard(probe.step_begin, optimizer, kwargs.get("closure", args[1] if len(args) > 1 else None))  # args[0]: the optimizer

    def after(optimizer, args, kwargs):
        if compiling():
            return
        probe.guard(probe.step_end, optimizer)

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def watcher_of_steps(probe):
    """torch 1.x has no such hooks: the step of each class is watched when its first instance is built."""
    if has_step_hooks():
        return lambda cls: None
    seen = set()

    def end(optimizer, begun, error):
        if error is None:
            probe.step_end(optimizer)
        else:
            probe.passed_step(error)

    def watch_step(cls):
        step = inspect.unwrap(cls.step)
        step = inspect.unwrap(inspect.getclosurevars(step).nonlocals.get("func", step))  # of a decorator that does not say what it wraps
        if step not in seen:
            seen.add(step)
            probe.attempt("step of " + cls.__name__, attach, step, Watch(probe.guard, probe.step_begin, end))

    return watch_step


def gradient_scaler(torch, probe):
    """AMP: unscaling, the search for infinities and the step that may be skipped are one step."""
    module = sys.modules.get("torch.amp.grad_scaler") or sys.modules["torch.cuda.amp.grad_scaler"]

    def begin(scaler, closure):
        probe.timeline.step_begin(id(scaler), True, False)

    def end(scaler, begun, error):
        if error is None:
            probe.scaler_end(scaler)
        else:
            probe.passed_step(error)

    attach(module.GradScaler.step, Watch(probe.guard, begin, end))


def gradients_freed(torch, probe):
    """zero_grad of optimizers and modules: the border between an optimizer step, which needs the gradients, and the next forward pass."""
    watch = Watch(probe.guard, end=unless_failed(probe.timeline.gradients_freed))
    attach(optimizer_class().zero_grad, watch)
    attach(torch.nn.Module.zero_grad, watch)


def unless_failed(tell):
    """Makes the end of a watch for which only the calls that succeed count."""
    def end(subject, begun, error):
        if error is None:
            tell()
    return end


def evaluation(torch, probe):
    """.eval() of a trained module begins an evaluation, the next .train() ends it. train is watched only in between: it runs once for
    every submodule, which would be too often."""
    train = torch.nn.Module.train
    unwatched = train.__code__

    def train_end(module, begun, error):
        if module.training:
            train.__code__ = unwatched
            probe.timeline.eval_end()

    def eval_end(module, begun, error):
        if error is None and probe.eval_begin(module):
            train.__code__ = during_evaluation

    during_evaluation = watched(train, Watch(probe.guard, end=train_end))
    attach(torch.nn.Module.eval, Watch(probe.guard, end=eval_end))


def saving(names):
    """Checkpoints: makes the hook for functions of a module that write one."""
    def hook(module, probe):
        timeline = probe.timeline

        def end(subject, outermost, error):
            if error is not None:
                probe.passed(error, "checkpoint-save")
            if outermost:
                timeline.save_end()

        watch = Watch(probe.guard, lambda subject, closure: timeline.save_begin(), end)
        for name in names:
            if hasattr(module, name):
                attach(getattr(module, name), watch)
    return hook


def setup(torch, probe):
    """What belongs to setup when it happens before the first backward pass: loading a checkpoint, also into the optimizer, and
    everything until the data loader starts (wrapping the model for DDP, FSDP, DeepSpeed)."""
    watch = Watch(probe.guard, end=unless_failed(probe.timeline.setup_done))
    for function in (torch.load, optimizer_class().load_state_dict, torch.utils.data.DataLoader.__iter__):
        attach(function, watch)


def allocator(torch, probe):
    """Failed allocations. The observer needs the allocator's list of devices (torch 2.0 crashes without): attach it when CUDA is up."""
    attach_observer = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach_observer is None:
        return  # a build without CUDA

    def observer(device, want, total, free):
        probe.guard(probe.allocation_failed, device, want, total, free)

    torch.cuda._lazy_call(lambda: probe.guard(attach_observer, observer))


def exceptions(torch, probe):
    """The exception that ends the process. sys.excepthook stays the user's: Python keeps what it has printed, and calls us before it
    waits for threads and before what others have left to atexit."""
    register = getattr(threading, "_register_atexit", atexit.register)  # Python 3.9 and later
    register(lambda: probe.guard(probe.fatal))


# Hooks of torch itself, in the order in which they are installed.
TORCH = (backward, engine, optimizer_built, optimizer_step, gradient_scaler, gradients_freed, evaluation, saving(("save",)), setup, allocator,
         exceptions)

# Hooks of modules that the training may import later.
LATER = {
    "safetensors.torch": saving(("save_file", "save_model")),
    "torch.distributed.checkpoint": saving(("save", "async_save")),
    "megatron.core.pipeline_parallel.schedules": pipeline_backward,
    "apex.transformer.pipeline_parallel.schedules.common": pipeline_backward,
}
