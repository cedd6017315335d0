"""The places where torch tells what the training does. Each hook stands alone: a name that a version lacks costs one signal.

No hooks on modules: they cost time in every call and break torch.compile's graphs. One place sees all backward passes (the engine
object), one all optimizer steps (the global step hooks).
"""
import sys

from .memory import copy_name


def engine(torch, probe):
    """Backward passes: Tensor.backward, autograd.backward, autograd.grad and pipelines that call the engine themselves. Libraries
    ask for the engine's type, so ours is a subclass."""
    base = type(torch.autograd.Variable._execution_engine)
    original = base.run_backward
    timeline = probe.timeline

    class Engine(base):
        def run_backward(self, *args, **kwargs):
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


def optimizer_built(torch, probe):
    """The end of setup, and which parameters are trained. The base class allocates no tensors, but torch imports its compiler when
    the first one is built: 80 MB of resident memory (torch 2.15) that are not the training's."""
    optimizer = sys.modules["torch.optim.optimizer"].Optimizer  # torch 1.13 deletes the attribute torch.optim.optimizer
    original = optimizer.__init__

    def __init__(self, *args, **kwargs):
        probe.guard(probe.timeline.setup_done)
        before = probe.guard(probe.memory.before_import)
        original(self, *args, **kwargs)
        probe.guard(probe.memory.after_import, before)
        probe.guard(probe.optimizer_built, self)

    copy_name(__init__, original)
    optimizer.__init__ = __init__


def optimizer_step(torch, probe):
    """Optimizer steps, through the global hooks of torch 2. Dynamo inlines them: is_compiling() folds to a constant there, so that
    a compiled step neither breaks nor recompiles."""
    module = sys.modules["torch.optim.optimizer"]
    if not hasattr(module, "register_optimizer_step_pre_hook"):
        optimizer_step_torch1(module, probe)
        return
    compiling = probe.compiling

    def before(optimizer, args, kwargs):
        if compiling():
            return
        probe.guard(probe.step_begin, optimizer, args, kwargs)

    def after(optimizer, args, kwargs):
        if compiling():
            return
        probe.guard(probe.step_end, optimizer)

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def optimizer_step_torch1(module, probe):
    """torch 1.x: wraps step of each class where torch wraps it for its profiler, when the first instance is built."""
    optimizer = module.Optimizer
    original = optimizer._hook_for_profile
    wrapped = set()

    def wrap(cls):
        run = cls.step

        def step(self, *args, **kwargs):
            probe.guard(probe.step_begin, self, (self,) + args, kwargs)
            try:
                result = run(self, *args, **kwargs)
            except BaseException as error:
                probe.guard(probe.passed_step, error)
                raise
            probe.guard(probe.step_end, self)
            return result

        step.__dict__.update(run.__dict__)  # torch marks a class that it has wrapped by an attribute of step
        copy_name(step, run)
        cls.step = step

    def _hook_for_profile(self):
        original(self)
        if type(self) not in wrapped and type(self).step not in [cls.step for cls in wrapped]:
            wrapped.add(type(self))
            wrap(type(self))

    copy_name(_hook_for_profile, original)
    optimizer._hook_for_profile = _hook_for_profile


def gradient_scaler(torch, probe):
    """AMP: unscaling, the search for infinities and the step that may be skipped are one step."""
    module = sys.modules.get("torch.amp.grad_scaler") or sys.modules["torch.cuda.amp.grad_scaler"]
    original = module.GradScaler.step
    timeline = probe.timeline

    def step(self, optimizer, *args, **kwargs):
        probe.guard(timeline.step_begin, id(self), True, False)
        try:
            result = original(self, optimizer, *args, **kwargs)
        except BaseException as error:
            probe.guard(probe.passed_step, error)
            raise
        probe.guard(probe.scaler_end, self)
        return result

    copy_name(step, original)
    module.GradScaler.step = step


def gradients_freed(torch, probe):
    """zero_grad of optimizers and modules: the border between an optimizer step, which needs the gradients, and the next forward pass."""
    wrap_zero_grad(sys.modules["torch.optim.optimizer"].Optimizer, probe)
    wrap_zero_grad(torch.nn.Module, probe)


def wrap_zero_grad(owner, probe):
    original = owner.zero_grad
    compiling = probe.compiling

    def zero_grad(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        if not compiling():
            probe.guard(probe.timeline.gradients_freed)
        return result

    copy_name(zero_grad, original)
    owner.zero_grad = zero_grad


def evaluation(torch, probe):
    """.eval() of a trained module begins an evaluation, the next .train() ends it. Module.train is replaced only in between: it
    runs once for every submodule, which would be too often."""
    module = torch.nn.Module
    original_eval, original_train = module.eval, module.train
    compiling = probe.compiling

    def eval(self):
        result = original_eval(self)
        if not compiling() and probe.guard(probe.eval_begin, self):
            module.train = train
        return result

    def train(self, mode=True):
        if mode and not compiling():
            if module.train is train:
                module.train = original_train
            probe.guard(probe.timeline.eval_end)
        return original_train(self, mode)

    copy_name(eval, original_eval)
    copy_name(train, original_train)
    module.eval = eval


def saving(names):
    """Checkpoints: makes the hook for functions of a module that write one."""
    def hook(module, probe):
        for name in names:
            if hasattr(module, name):
                wrap_save(module, name, probe)
    return hook


def wrap_save(module, name, probe):
    original = getattr(module, name)
    timeline = probe.timeline

    def save(*args, **kwargs):
        outermost = probe.guard(timeline.save_begin)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            probe.guard(probe.passed, error, "checkpoint-save")
            raise
        finally:
            if outermost:
                probe.guard(timeline.save_end)

    copy_name(save, original)
    setattr(module, name, save)


def setup(torch, probe):
    """What belongs to setup when it happens before the first backward pass: loading a checkpoint, also into the optimizer, and
    everything until the data loader starts (wrapping the model for DDP, FSDP, DeepSpeed)."""
    optimizer = sys.modules["torch.optim.optimizer"].Optimizer
    places = ((torch, "load"), (optimizer, "load_state_dict"), (torch.utils.data.DataLoader, "__iter__"))
    for owner, name in places:
        wrap_setup(owner, name, probe)


def wrap_setup(owner, name, probe):
    original = getattr(owner, name)
    timeline = probe.timeline

    def call(*args, **kwargs):
        result = original(*args, **kwargs)
        probe.guard(timeline.setup_done)
        return result

    copy_name(call, original)
    setattr(owner, name, call)


def allocator(torch, probe):
    """Failed allocations. The observer needs the allocator's list of devices (torch 2.0 crashes without): attach it when CUDA is up."""
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None:
        return  # a build without CUDA

    def observer(device, want, total, free):
        probe.guard(probe.allocation_failed, device, want, total, free)

    torch.cuda._lazy_call(lambda: probe.guard(attach, observer))


def exceptions(torch, probe):
    """The exception that ends the process. Our own frame is taken out of what Python prints."""
    original = sys.excepthook

    def excepthook(kind, error, traceback):
        probe.guard(probe.uncaught, kind, error, traceback)
        original(kind, error, traceback)

    sys.excepthook = excepthook


# Hooks of torch itself, in the order in which they are installed.
TORCH = (engine, optimizer_built, optimizer_step, gradient_scaler, gradients_freed, evaluation, saving(("save",)), setup, allocator, exceptions)

# Hooks of modules that the training may import later.
LATER = {
    "safetensors.torch": saving(("save_file", "save_model")),
    "torch.distributed.checkpoint": saving(("save", "async_save")),
}
