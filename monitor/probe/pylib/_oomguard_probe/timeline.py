"""Which stage the training is in, told from a few events: backward, optimizer step, eval, save. Knows nothing of torch.

A window is the time between two borders. What it was is known only at its end: the window after an optimizer step was a forward
pass if a backward pass follows it, and only the gap before the evaluation if .eval() follows it.
"""

SETUP, FORWARD, BACKWARD, AFTER_BACKWARD, STEP, EVAL, SAVE = "setup", "forward", "backward", "after-backward", "step", "eval", "save"

# State of the window that ends -> its stage when a backward pass begins, and when anything else ends it.
CLOSES_AS = {
    SETUP: ("forward", "model-load"),
    FORWARD: ("forward", "other"),
    AFTER_BACKWARD: ("forward", "other"),  # accumulation: the next micro-batch
    EVAL: ("forward", "eval"),             # .eval() of a part that is frozen, not an evaluation
    STEP: ("forward", "optimizer-step"),   # a closure that runs the model inside the step
    BACKWARD: ("backward", "backward"),
    SAVE: ("checkpoint-save", "checkpoint-save"),
}

# .eval() that a backward pass follows this often is a habit of the training loop, not the start of an evaluation.
MAX_FALSE_EVALS = 3


class Timeline:
    def __init__(self, recorder):
        self.recorder = recorder
        self.state = SETUP
        self.step = 0            # optimizer steps completed
        self.micro = 0           # backward passes since the last step
        self.backward_depth = 0  # re-entrant checkpointing runs backward inside backward
        self.listens_to_eval = True
        self._has_optimizer = False
        self._running = []       # ids of optimizers (and gradient scalers) inside step()
        self._closure = False
        self._stepped = set()    # ids of optimizers that have completed a step
        self._stepping = set()   # ids of those inside the running STEP window
        self._tail = None        # stage of the last step while its gradients may still be there, else None
        self._fused = False      # optimizer steps inside this backward pass
        self._before_save = None
        self._false_evals = 0

    # Setup

    def setup_done(self):
        """An optimizer is built, a checkpoint was loaded, a data loader starts: until here it was setup, unless training has begun."""
        if self.state == SETUP:
            self._close("model-load")

    def optimizer_built(self):
        self._has_optimizer = True

    # Backward

    def backward_begin(self):
        self.backward_depth += 1
        if self.backward_depth > 1:
            return
        if self._running and not self._closure:
            self._running.clear()  # an earlier step() raised: its end was never told
            self.state = FORWARD
        if self.state == EVAL:
            self._false_evals += 1
            self.listens_to_eval = self._false_evals < MAX_FALSE_EVALS
        self._tail = None
        self._close(self._stage(backward=True))
        if self.micro % 64 == 0:
            self.recorder.pace(self.step, self.micro)
        self.state = BACKWARD

    def backward_end(self):
        self.backward_depth -= 1
        if self.backward_depth > 0:
            return
        self.micro += 1
        self._close("backward")
        self.state = STEP if self._running else AFTER_BACKWARD
        if self._fused:
            self._fused = False
            self._count_step()

    # Optimizer

    def step_begin(self, identity, closure=False, optimizer=True):
        """Optimizers nest: a gradient scaler's step holds the optimizer's."""
        if self.backward_depth:
            self._fused = self._fused or optimizer
            return
        if identity in self._running:  # its last step() raised
            del self._running[self._running.index(identity):]
        if not self._running:
            if self.state in (SETUP, EVAL):
                self._close(self._stage())
            # The gap after backward (clipping, unscaling) belongs to the step, and so do several steps in a row.
            self.state, self._closure = STEP, closure
            self._stepping.clear()
        self._running.append(identity)
        if optimizer:
            self._stepping.add(identity)

    def step_end(self, identity):
        """Returns whether an optimizer made its first step."""
        if self.backward_depth or identity not in self._running:
            return False
        del self._running[self._running.index(identity):]
        if self._running:
            return False
        first = self._first_step()
        self._tail = "optimizer-init" if first else "optimizer-step"
        self._close(self._tail)
        self._stepped.update(self._stepping)
        self._count_step()
        return first

    def _first_step(self):
        return not self._stepping <= self._stepped

    def _count_step(self):
        self.state = FORWARD
        if self.micro:
            self.step += 1
            self.micro = 0

    def gradients_freed(self):
        """zero_grad: what was held between the step and here was the step's. If the memory has grown since the step, the forward pass
        has begun already, with the gradients in place, and the window is left as it is."""
        if self.state != FORWARD or self._tail is None:
            return
        tail, self._tail = self._tail, None
        if self.recorder.is_quiet():
            self._close(tail)

    # Evaluation and checkpoints

    def eval_begin(self):
        """Returns whether an evaluation began."""
        if self.backward_depth or self._running or self.state in (EVAL, SAVE):
            return False
        self.recorder.resume(self.step, self.micro)
        self._close(self._stage())
        self.state = EVAL
        return True

    def eval_end(self):
        if self.state == EVAL:
            self._close("eval")
            self.state = FORWARD

    def save_begin(self):
        """Returns whether this is the outermost save; then save_end must follow."""
        if self.backward_depth or self._running or self.state == SAVE:
            return False
        self.recorder.resume(self.step, self.micro)
        self._close(self._stage())
        self._before_save, self.state = self.state, SAVE
        return True

    def save_end(self):
        self._close("checkpoint-save")
        self.state = self._before_save

    # The end

    def end(self, stage):
        """Closes the last window, as the stage in which the run died or as "other"."""
        self.recorder.resume(self.step, self.micro)
        self._close(stage)

    def now(self):
        """The stage that is most likely running: that of an exception, which no later event can explain."""
        if self.state == SETUP:
            return "forward" if self._has_optimizer else "model-load"
        if self.state == STEP and self._first_step():
            return "optimizer-init"
        return {FORWARD: "forward", AFTER_BACKWARD: "forward"}.get(self.state, CLOSES_AS[self.state][1])

    def between_backward_and_step(self):
        return self.state == AFTER_BACKWARD

    def step_stage(self):
        """The stage of the optimizer step that comes next."""
        return "optimizer-step" if self._stepped else "optimizer-init"

    def is_new(self, identity):
        """Whether this optimizer has not yet completed a step."""
        return identity not in self._stepped

    def _stage(self, backward=False):
        if self.state == SETUP and not self._has_optimizer:
            return "model-load"
        return CLOSES_AS[self.state][0 if backward else 1]

    def _close(self, stage):
        self.recorder.close(stage, self.step, self.micro)
