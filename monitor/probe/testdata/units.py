"""Unit tests of the probe's parts, without torch. Argument 1: the folder pylib."""
import ast
import contextlib
import functools
import importlib.util
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback
import types
import unittest
import unittest.mock
import warnings

PYLIB = sys.argv.pop(1)
MIB = 1 << 20
SECOND = 1_000_000_000


def load():
    folder = os.path.join(PYLIB, "_oomguard_probe")
    spec = importlib.util.spec_from_file_location("_oomguard_probe", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


probe = load()
from _oomguard_probe import crash, hooks, journal, memory, recorder, timeline, watch  # noqa: E402


class Windows:
    """A recorder that only notes what is closed."""

    def __init__(self):
        self.closed = []
        self.quiet = True

    def is_quiet(self):
        return self.quiet

    def close(self, stage, step, micro):
        self.closed.append((stage, step, micro))

    def pace(self, step, micro):
        pass

    resume = pace


class TimelineTest(unittest.TestCase):
    def story(self, text, quiet=True):
        """Plays events: o optimizer built, b/B backward begin/end, s/S step of optimizer 1 begin/end, t/T of optimizer 2, g/G scaler,
        c step with closure, e/E eval begin/end, w/W save, d data loader, z zero_grad."""
        windows = Windows()
        windows.quiet = quiet
        t = timeline.Timeline(windows)
        events = {
            "o": t.optimizer_built, "d": t.setup_done, "b": t.backward_begin, "B": t.backward_end,
            "s": lambda: t.step_begin(1), "S": lambda: t.step_end(1), "t": lambda: t.step_begin(2), "T": lambda: t.step_end(2),
            "g": lambda: t.step_begin(9, True, False), "G": lambda: t.step_end(9), "c": lambda: t.step_begin(1, True),
            "z": t.gradients_freed, "e": t.eval_begin, "E": t.eval_end, "w": t.save_begin, "W": t.save_end,
        }
        for event in text.replace(" ", ""):
            events[event]()
        return windows.closed, t

    def check(self, text, *expected):
        closed, _ = self.story(text)
        self.assertEqual([stage for stage, _, _ in closed], list(expected), text)

    def test_plain(self):
        closed, t = self.story("do bBsS bBsS")
        self.assertEqual(closed, [
            ("model-load", 0, 0), ("forward", 0, 0), ("backward", 0, 1), ("optimizer-init", 0, 1),
            ("forward", 1, 0), ("backward", 1, 1), ("optimizer-step", 1, 1)])
        self.assertEqual(t.step, 2)

    def test_stages(self):
        f, b, init, step, load = "forward", "backward", "optimizer-init", "optimizer-step", "model-load"
        table = (
            ("bB", load, b),                                             # no torch optimizer: setup and forward can not be told apart
            ("o bB bB sS bB", f, b, f, b, init, f, b),                   # accumulation
            ("o b bB B sS", f, b, init),                                 # re-entrant checkpointing
            ("o bB sS tT bB tT", f, b, init, init, f, b, step),          # two optimizers in a row: each has its first step
            ("o bB sS sS", f, b, init, step),                            # ZeRO: a step per group of parameters
            ("o bB gsSG bB gsSG", f, b, init, f, b, step),               # AMP
            ("o bB gG bB gsSG", f, b, step, f, b, init),                 # AMP skips the first step: no state is made yet
            ("o c bB bB S", load, f, b, f, b, init),                     # LBFGS runs the model inside the step
            ("o bB c bB S c", f, b, f, b, init),                         # Lightning's closure
            ("o bB s bB sS", f, b, f, b, init),                          # step raised and was caught
            ("o bB s sS bB", f, b, init, f, b),                          # step raised, tried again
            ("o b sS sS B bB", f, b, f, b),                              # steps inside backward
            ("o sS bB sS", load, init, f, b, step),                      # a warm-up step before training
            ("o bBsS e E bB", f, b, init, "other", "eval", f, b),
            ("o e E bB", load, "eval", f, b),                            # a sanity check before training
            ("o bBsS e bB", f, b, init, "other", f, b),                  # part of the model frozen in eval mode
            ("o bBsS w W bB", f, b, init, "other", "checkpoint-save", f, b),
            ("o bBsS e w W E", f, b, init, "other", "eval", "checkpoint-save", "eval"),
            ("o bB w W sS", f, b, "other", "checkpoint-save", init),
            ("o bB w w", f, b, "other"),                                 # save inside save
            ("d o d bB d", load, load, f, b),                            # the loader starts setup's end, later ones do not
        )
        for row in table:
            self.check(*row)

    def test_what_zero_grad_ends(self):
        stages = lambda text, quiet=True: [stage for stage, _, _ in self.story(text, quiet)[0]]
        begin = ["model-load", "forward", "backward", "optimizer-init"]
        # right after the step: the gradients were the step's, not the next forward pass's; once, whoever frees them how often
        self.assertEqual(stages("do bBsS zz bB"), begin + ["optimizer-init", "forward", "backward"])
        self.assertEqual(stages("do bBsS z bBsSz bB"), begin + ["optimizer-init", "forward", "backward", "optimizer-step", "optimizer-step", "forward", "backward"])
        # after the forward pass, which has taken memory: that pass held the gradients
        self.assertEqual(stages("do bBsS z bB", quiet=False), begin + ["forward", "backward"])
        # before the first step, between micro-batches and inside an evaluation it is no border
        self.assertEqual(stages("do z bB z bB"), ["model-load", "forward", "backward", "forward", "backward"])
        self.assertEqual(stages("do bBsS e z E bB"), begin + ["other", "eval", "forward", "backward"])

    def test_steps_inside_backward_count(self):
        _, t = self.story("o bsSsSB bsSsSB")
        self.assertEqual((t.step, t.micro), (2, 0))

    def test_stops_listening_to_eval_of_frozen_parts(self):
        _, t = self.story("o bBsS e bBsS e bBsS")
        self.assertTrue(t.listens_to_eval)
        _, t = self.story("o bBsS e bBsS e bBsS e bBsS")
        self.assertFalse(t.listens_to_eval)

    def test_stage_of_an_exception(self):
        table = (("", "model-load"), ("o", "forward"), ("ob", "backward"), ("obB", "forward"), ("obBs", "optimizer-init"),
                 ("obBsSbBs", "optimizer-step"), ("obBsS", "forward"), ("obBsSe", "eval"), ("obBsSw", "checkpoint-save"))
        for text, stage in table:
            self.assertEqual(self.story(text)[1].now(), stage, text)


class Memory:
    """Memory of which each test says the next reading."""

    kind = "cuda"

    def __init__(self):
        self.now = self.peak = 0
        self.device = 0
        self.resets = 0

    def read(self):
        return (self.now, max(self.peak, self.now), 0, 0, 0, 0, 0, self.device)

    def reset(self, reading):
        self.resets += 1
        self.peak = self.now

    def describe(self, device):
        return {"mem": self.kind, "d": device}


class Clock:
    def __init__(self, module):
        self.time = 0
        self.module, self.original = module, module.now

    def __call__(self):
        return self.time


class RecorderTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock(recorder)
        recorder.now = journal.now = self.clock
        self.memory = Memory()

    def tearDown(self):
        recorder.now = journal.now = self.clock.original
        self.folder.cleanup()

    def start(self, max_bytes=64 * MIB):
        self.journal = journal.Journal(self.folder.name, "rank-0.0.1.jsonl", max_bytes)
        return recorder.Recorder(self.memory, self.journal)

    def events(self):
        with open(os.path.join(self.folder.name, "rank-0.0.1.jsonl"), encoding="ascii") as file:
            return [json.loads(line) for line in file]

    def test_folds_after_the_first_windows_and_loses_no_peak(self):
        r = self.start()
        for step in range(1000):
            self.clock.time += SECOND // 100
            self.memory.now, self.memory.peak = 100, 200 + step
            r.close("forward", step, 0)
        self.memory.peak = 50 * MIB
        r.close("forward", 1000, 0)
        r.flush()
        events = self.events()
        self.assertEqual(sum(e["n"] for e in events), 1001)
        self.assertLess(len(events), 65)  # 50, about one a second of the remaining 9.5, and the peak
        self.assertEqual(events[-1]["pa"], 50 * MIB)
        self.assertEqual(events[-1]["st"], 1000)
        self.assertEqual(self.memory.resets, 1001)

    def test_file_grows_with_the_logarithm_of_the_time(self):
        r = self.start()
        for step in range(200_000):
            self.clock.time += 10 * SECOND  # 23 days
            r.close("forward", step, 0)
        self.assertLess(len(self.events()), 9000)  # 1000 for each factor e after the first 1000 s: 50 + 100 + 1000 ln 2000

    def test_quiet_until_memory_is_taken(self):
        r = self.start()
        self.memory.now = self.memory.peak = 100 * MIB
        r.close("optimizer-step", 1, 0)
        self.assertTrue(r.is_quiet())
        self.memory.now = 10 * MIB  # freed only
        self.assertTrue(r.is_quiet())
        self.memory.peak = 200 * MIB
        self.assertFalse(r.is_quiet())

    def test_pauses_when_it_costs_too_much(self):
        r = self.start()
        read = self.memory.read

        def costly():
            self.clock.time += 20_000
            return read()

        self.memory.read = costly
        for step in range(3000):
            self.clock.time += 1_000_000  # steps of 1 ms: 3 windows of 20 µs are 6 %
            r.pace(step, 0)
            for stage in ("backward", "optimizer-step", "forward"):
                r.close(stage, step, 0)
        self.assertLess(r.cost, (recorder.BUDGET * 1.2) * self.clock.time)

    def test_peak_of_a_pause_is_kept_and_ends_it(self):
        r = self.start()
        r._sampling, r._highest = False, 10 * MIB
        self.memory.now, self.memory.peak = MIB, 90 * MIB
        r.close("forward", 7, 0)
        r.close("backward", 7, 0)
        r.resume(8, 0)
        event = self.events()[-1]
        self.assertEqual((event["s"], event["n"], event["pa"]), ("other", 2, 90 * MIB))
        self.memory.peak = 91 * MIB
        r.close("forward", 8, 0)
        self.assertEqual(self.events()[-1]["s"], "forward")

    def test_full_file_keeps_room_for_the_last_words(self):
        r = self.start(max_bytes=4000)
        for step in range(200):
            self.memory.peak = (step + 1) * 2 * MIB
            r.close("forward", step, 0)
        r.flush()
        self.journal.event("exc", msg="x" * 1000)
        self.journal.event("bye")
        events = self.events()
        self.assertEqual([e["e"] for e in events][-4:], ["note", "w", "exc", "bye"])
        self.assertEqual(events[-3]["pa"], 400 * MIB)
        self.assertEqual([e["q"] for e in events], list(range(1, len(events) + 1)))

    def test_changes_memory(self):
        r = self.start()
        self.memory.kind = "rss"
        r.close("model-load", 0, 0)
        self.memory.kind = "cuda"
        r.close("forward", 0, 0)
        self.memory.device = 1
        r.close("forward", 0, 0)
        self.assertEqual([(e["e"], e.get("mem"), e["d"]) for e in self.events()],
                         [("w", None, 0), ("mem", "cuda", 0), ("w", None, 0), ("mem", "cuda", 1), ("w", None, 1)])


class JournalTest(unittest.TestCase):
    def test_any_text_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            journal.Journal(folder, "rank-0.0.1.jsonl", MIB).event("exc", msg="\ud800 \n ü \0")
            with open(os.path.join(folder, "rank-0.0.1.jsonl"), "rb") as file:
                lines = file.read().splitlines()
            self.assertEqual(len(lines), 1)
            self.assertEqual(json.loads(lines[0])["msg"], "\ud800 \n ü \0")
            self.assertEqual(os.stat(os.path.join(folder, "rank-0.0.1.jsonl")).st_mode & 0o777, 0o600)

    def test_failed_write_silences(self):
        j = journal.Journal("/dev", "full", MIB)
        j.event("hello")
        self.assertFalse(j.alive)
        j.event("bye")


class Allocator:
    """The caching allocator's counters, as torch._C shows them."""

    def __init__(self):
        self.current = self.peak = 0

    def allocate(self, size):
        self.current += size
        self.peak = max(self.peak, self.current)

    def _cuda_getDevice(self):
        return 0

    def _cuda_memoryStats(self, device):
        def counter():
            return {pool: {"current": self.current, "peak": self.peak, "allocated": 0, "freed": 0} for pool in ("all", "small_pool", "large_pool")}

        stats = {name: counter() for name in memory.CudaMemory.PEAKS}
        stats.update(num_alloc_retries=3, num_ooms=1)
        return stats

    def _cuda_resetPeakMemoryStats(self, device):
        self.peak = self.current


class MemoryTest(unittest.TestCase):
    def test_cuda_windows_and_the_users_own_peaks(self):
        fake = Allocator()
        c = types.SimpleNamespace(**{name: getattr(fake, name) for name in dir(fake) if name.startswith("_cuda")})
        initialised = [False]
        cuda = types.SimpleNamespace(is_initialized=lambda: initialised[0], get_device_properties=lambda d: types.SimpleNamespace(uuid="abc"))
        m = memory.Memory(types.SimpleNamespace(_C=c, cuda=cuda))
        self.assertEqual(m.kind, "rss")
        initialised[0] = True

        def window(*sizes):
            for size in sizes:
                fake.allocate(size)
            reading = m.read()
            m.reset(reading)
            return reading[:2]

        def users_peak():
            return c._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"]

        self.assertEqual(window(100), (100, 100))
        self.assertEqual(m.kind, "cuda")
        self.assertEqual(m.describe(0), {"mem": "cuda", "d": 0, "uuid": "abc"})
        self.assertEqual(window(900, -900), (100, 1000))
        self.assertEqual(window(50, -50), (100, 150))
        self.assertEqual(users_peak(), 1000)
        c._cuda_resetPeakMemoryStats(0)  # by the user
        self.assertEqual(users_peak(), 100)
        self.assertEqual(window(20, -20), (100, 120))
        self.assertEqual(users_peak(), 120)
        self.assertEqual(m.read()[5:8], (3, 1, 0))

    def test_the_kernels_peak_is_left_alone(self):
        import resource
        kernel = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        host = memory.HostMemory()
        self.assertFalse(host.exact)
        host.reset(host.read())
        low = host.read()[0]
        block = bytearray(b"x") * (96 * MIB)
        del block
        reading = host.read()
        self.assertLess(abs(reading[1] - low - 96 * MIB), 8 * MIB)  # the process has never had so much
        highest = kernel()
        host.reset(reading)
        block = bytearray(b"x") * (32 * MIB)
        held = host.read()
        del block
        reading = host.read()
        self.assertGreaterEqual(kernel(), highest)
        self.assertLess(abs(held[1] - held[0]), 2 * MIB)  # now it had more before: a sample
        self.assertLess(abs(reading[1] - low), 8 * MIB)

    @unittest.mock.patch.dict(os.environ, OOMGUARD_RESET_PEAKS="1")
    def test_resident_memory_has_true_peaks_and_a_discount(self):
        host = memory.HostMemory()
        self.assertTrue(host.exact, "this kernel can not reset VmHWM: the probe would only sample")

        def grow(size):
            before = host.read()
            host.reset(before)
            block = bytearray(b"x") * size
            held = host.read()
            del block
            after = host.read()
            return held[0] - before[0], after[1] - before[0], after[0] - before[0]

        held, peak, after = grow(64 * MIB)
        for got, want in ((held, 64 * MIB), (peak, 64 * MIB), (after, 0)):
            self.assertLess(abs(got - want), 2 * MIB)
        before = host.read()
        kept = bytearray(b"x") * (32 * MIB)
        host.discount(before)
        reading = host.read()
        self.assertLess(abs(reading[0] - before[0]), 2 * MIB)
        self.assertLess(abs(reading[1] - before[0]), 2 * MIB)
        self.assertEqual(len(kept), 32 * MIB)

    @unittest.mock.patch.dict(os.environ, OOMGUARD_RESET_PEAKS="1")
    def test_getrusage_keeps_its_meaning(self):
        import resource
        host = memory.HostMemory()
        original = resource.getrusage
        try:
            host.keep_user_peaks()
            block = bytearray(b"x") * (64 * MIB)
            host.read()
            del block
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            reading = host.read()
            host.reset(reading)
            # That the peak fell is seen in the status of the process: ru_maxrss begins at the peak of whoever
            # started the process, and under a large one it is far above everything that happens here.
            self.assertLess(host.read()[1], reading[1] - 32 * MIB)
            self.assertEqual(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, before)
            self.assertEqual(resource.getrusage(resource.RUSAGE_CHILDREN), original(resource.RUSAGE_CHILDREN))
        finally:
            resource.getrusage = original


class WatchTest(unittest.TestCase):
    def setUp(self):
        self.calls = []
        self.watch = watch.Watch(lambda f, *args: f(*args), lambda *args: self.calls.append(args) or "begun", lambda *args: self.calls.append(args))

    def test_keeps_what_the_function_is(self):
        def function(a, b: int = 2, *rest: str, c, d=4, **others) -> int:
            """Its text."""
            return sum((a, b, c, d) + rest)

        signature, source, names = inspect.signature(function), inspect.getsource(function), function.__code__.co_varnames
        watch.attach(function, self.watch)
        self.assertEqual((inspect.signature(function), inspect.getsource(function), function.__code__.co_varnames), (signature, source, names))
        self.assertEqual(function(1, 2, 3, c=4), 14)
        self.assertEqual(function.__doc__, "Its text.")
        self.assertEqual(self.calls, [(None, None), (None, "begun", None)])
        {function.__code__: hash(function.__code__)}

    def test_methods(self):
        class Base:
            def name(self):
                return "base"

        class Method(Base):
            __hidden = "hidden"

            def name(self, closure=None):
                return super().name() + self.__hidden

        watch.attach(Method.name, self.watch)
        method = Method()
        self.assertEqual(method.name(closure=7), "basehidden")
        self.assertEqual(self.calls, [(method, 7), (method, "begun", None)])

    def test_says_nothing_of_the_source(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write('def function():\n    "\\d"\n    return 1 is 1\n')
            file.flush()
            scope = {}
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                exec(compile(open(file.name).read(), file.name, "exec"), scope)
                self.assertTrue(told)
                del told[:]
                watch.attach(scope["function"], self.watch)
                self.assertFalse(told)
        self.assertTrue(scope["function"]())

    def test_closures(self):
        first, second = 1, 2

        def function(x):
            return (x, first, second)

        watch.attach(function, self.watch)
        second = 3
        self.assertEqual((function(0), len(self.calls)), ((0, 1, 3), 2))

    def test_errors_pass(self):
        def function():
            raise KeyError("x")

        lines = {}
        for _ in range(2):
            try:
                function()
            except KeyError as error:
                lines[traceback.format_exc()] = error
            watch.attach(function, self.watch) if len(lines) == 1 and not self.calls else None
        self.assertEqual(len(lines), 1, "another traceback")
        self.assertEqual([type(args[-1]) for args in self.calls], [type(None), KeyError])

    def test_inside_decorators(self):
        @functools.wraps(len)
        def other():
            pass

        def decorator(function):
            @functools.wraps(function)
            def outside(*args):
                return function(*args) + 1
            return outside

        @decorator
        def function(a):
            return a

        watch.attach(function, self.watch)
        self.assertEqual((function(1), len(self.calls)), (2, 2))
        with self.assertRaises(AttributeError):
            watch.attach(other, self.watch)  # C has no code

    def test_touches_nothing_whose_source_is_another(self):
        def function():
            return 1

        function.__code__ = function.__code__.replace(co_consts=(None, 2))
        for one in (function, lambda: 1, eval("lambda: 1")):
            code = one.__code__
            with self.assertRaises((ValueError, OSError, SyntaxError, StopIteration)):
                watch.attach(one, self.watch)
            self.assertIs(one.__code__, code)

    def test_under_the_compiler_only_the_body_is_there(self):
        compiling = [False]
        scope = {"torch": types.SimpleNamespace(compiler=types.SimpleNamespace(is_compiling=lambda: compiling[0]))}

        def function(a):
            if a:
                return a
            a = 5

        inside = types.FunctionType(function.__code__, scope, "function")
        inside.__qualname__ = function.__qualname__
        watch.attach(inside, self.watch)
        for now in (True, False):
            compiling[0] = now
            self.assertEqual((inside(1), inside(0)), (1, None))
            self.assertEqual(len(self.calls), 0 if now else 4)

    def test_a_global_statement_stands_once(self):
        scope = {"torch": types.SimpleNamespace(compiler=types.SimpleNamespace(is_compiling=lambda: False)), "COUNT": 0}

        def function():
            if "a":
                global COUNT
                COUNT += 1

            def inner():
                global COUNT
                return COUNT
            return inner()

        inside = types.FunctionType(function.__code__, scope, "function")
        inside.__qualname__ = function.__qualname__
        watch.attach(inside, self.watch)
        self.assertEqual((inside(), inside(), len(self.calls)), (1, 2, 4))


class Torch1Test(unittest.TestCase):
    """The optimizer of torch 1.13 (torch/optim/optimizer.py) has no global hooks."""

    def test_steps_are_seen(self):
        class Adam:
            def step(self, closure=None, fails=False):
                """Adam's step."""
                if fails:
                    raise RuntimeError

        class Child(Adam):
            pass

        class Override(Adam):
            def step(self):
                return super().step()

        calls = []
        fake = types.SimpleNamespace(
            guard=lambda f, *args: f(*args), attempt=lambda what, f, *args: f(*args), step_begin=lambda o, closure: calls.append(("begin", closure)),
            step_end=lambda o: calls.append("end"), passed_step=lambda error: calls.append("error"))
        with unittest.mock.patch.dict(sys.modules, {"torch.optim.optimizer": types.SimpleNamespace()}):
            watch_step = hooks.watcher_of_steps(fake)
            for optimizer in (Adam(), Adam(), Child(), Adam()):
                watch_step(type(optimizer))
                calls.clear()
                optimizer.step()
                self.assertEqual(calls, [("begin", None), "end"], type(optimizer))
            calls.clear()
            with self.assertRaises(RuntimeError):
                Child().step(7, True)
            self.assertEqual(calls, [("begin", 7), "error"])
            calls.clear()
            watch_step(Override)
            Override().step()  # nested: the timeline knows the optimizer by its identity
            self.assertEqual(calls, [("begin", None), ("begin", None), "end", "end"])


class AfterImportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in (("oomguard_first", ""), ("oomguard_second", ""), ("oomguard_fails", "1 / 0"), ("oomguard_lacks", "import there_is_no_such")):
            with open(os.path.join(folder.name, name + ".py"), "w") as file:
                file.write(text)
            self.addCleanup(sys.modules.pop, name, None)
        spec = importlib.util.spec_from_file_location("_oomguard_start", os.path.join(PYLIB, "_oomguard_start.py"))
        start = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(start)
        self.finder = start.AfterImport()
        self.insert_paths(folder.name)

    def insert_paths(self, folder):
        for target, value in ((sys.path, folder), (sys.meta_path, self.finder)):
            target.insert(0, value)
            self.addCleanup(lambda target=target, value=value: value in target and target.remove(value))

    def test_a_callback_may_wait_for_another_module(self):
        calls = []
        self.finder.add("oomguard_first", lambda module: self.finder.add("oomguard_second", calls.append))
        first, second = importlib.import_module("oomguard_first"), importlib.import_module("oomguard_second")
        self.assertEqual(calls, [second])
        self.assertNotIn(self.finder, sys.meta_path)
        for module in (first, second):
            self.assertNotIn("exec_module", vars(module.__loader__))

    def test_frames_of_a_failing_import_are_not_ours(self):
        for name, kind in (("oomguard_fails", ZeroDivisionError), ("oomguard_lacks", ImportError)):
            texts = set()
            for _ in range(2):
                try:
                    __import__(name)
                except kind:
                    texts.add(traceback.format_exc())
                self.finder.add(name, self.fail) if not self.finder.callbacks else self.finder.callbacks.clear()
            self.assertEqual(len(texts), 1, texts)
            self.finder.callbacks.clear()


class OldPythonTest(unittest.TestCase):
    """sitecustomize.py is read by every Python below the command."""

    NODES = """Module Expr Constant Import alias Assign Name Load Store Call Attribute FunctionDef arguments arg Subscript Slice Del Delete
        ListComp comprehension Compare NotEq GtE Eq If BoolOp And Tuple Try ExceptHandler Pass Index""".split()

    def test_sitecustomize_uses_only_what_all_of_them_know(self):
        with open(os.path.join(PYLIB, "sitecustomize.py"), "rb") as file:
            text = file.read()
        tree = ast.parse(text.decode("ascii"))  # Python 2 wants a word about any other encoding
        for node in ast.walk(tree):
            self.assertIn(type(node).__name__, self.NODES)
            if isinstance(node, ast.FunctionDef):
                self.assertFalse(node.returns or node.args.kwonlyargs or [a for a in node.args.args if a.annotation])
            if isinstance(node, ast.Assign):
                self.assertFalse([target for target in node.targets if isinstance(target, ast.Tuple)])


class CrashTest(unittest.TestCase):
    def test_is_oom(self):
        moved = type("_OutOfMemoryError", (RuntimeError,), {})
        for error, want in ((moved("x"), True), (RuntimeError("CUDA error: out of memory"), True), (RuntimeError("shape"), False),
                            (ValueError("out of memory"), False), (MemoryError(), False)):
            self.assertEqual(crash.is_oom(type(error), error), want, repr(error))

    def test_message_that_can_not_be_read(self):
        class Broken(Exception):
            def __str__(self):
                raise ValueError

        self.assertEqual(crash.message(Broken()), "(its text can not be read)")


class GuardTest(unittest.TestCase):
    def test_one_error_switches_the_probe_off(self):
        events = []
        p = probe.Probe.__new__(probe.Probe)
        p.on, p.journal = True, types.SimpleNamespace(event=lambda kind, **fields: events.append((kind, fields["msg"])))
        p.guard(lambda: 1 / 0)
        self.assertFalse(p.on)
        p.guard(self.fail, "called although off")
        self.assertEqual(len(events), 1)
        self.assertIn("ZeroDivisionError", events[0][1])

    def test_interrupts_are_the_users(self):
        p = probe.Probe.__new__(probe.Probe)
        p.on = True

        def interrupt():
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            p.guard(interrupt)
        self.assertTrue(p.on)


class BootstrapTest(unittest.TestCase):
    """Fake torch modules on the path show who would report."""

    def report(self, *command, **env):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "lib"))
            os.mkdir(os.path.join(folder, "out"))
            for name, text in (("torch.py", "print('torch')\n"), ("torchrun", "import torch\n"), ("train.py", "import torch\n"),
                               ("both.py", "import torch, subprocess, sys\nsys.stdout.flush()\nsubprocess.check_call([sys.executable, '-c', 'import torch'])\n")):
                with open(os.path.join(folder, "lib", name), "w", encoding="ascii") as file:
                    file.write(text)
            environ = {"PYTHONPATH": PYLIB + os.pathsep + os.path.join(folder, "lib"), "OOMGUARD_PROBE_DIR": os.path.join(folder, "out"), **env}
            done = subprocess.run([sys.executable, *(word.replace("LIB", os.path.join(folder, "lib")) for word in command)],
                                  env=environ, capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "")
            self.assertIn("torch", done.stdout)
            return sorted(name.split(".")[0] for name in os.listdir(environ["OOMGUARD_PROBE_DIR"]))

    def test_who_reports(self):
        table = (
            (["LIB/train.py"], {"RANK": "3", "LOCAL_RANK": "1"}, ["rank-3"]),
            (["LIB/train.py"], {"LOCAL_RANK": "1"}, ["rank-1"]),
            (["LIB/train.py"], {"RANK": "2"}, ["rank-2"]),
            (["LIB/train.py"], {"OOMGUARD_SINGLE": "1"}, ["rank-0"]),
            (["LIB/train.py"], {}, []),
            (["LIB/train.py"], {"RANK": "0", "OOMGUARD_PROBE": "0"}, []),
            (["LIB/torchrun", "LIB/train.py"], {"RANK": "2"}, []),      # a cluster's RANK counts nodes: this is the launcher
            (["-u", "-W", "ignore", "LIB/torchrun"], {"RANK": "2"}, []),
            (["-S", "LIB/train.py"], {"RANK": "0"}, []),
            (["-I", "-c", "import sys; sys.path.insert(0, r'LIB'); import torch"], {"RANK": "0"}, []),
            (["-c", "import importlib.util as u; u.find_spec('torch'); import torch"], {"RANK": "0"}, ["rank-0"]),  # as transformers does
            (["-c", "print('not torch')"], {"RANK": "0"}, []),
            (["LIB/both.py"], {"RANK": "0"}, ["rank-0"]),               # its child stays silent
            (["LIB/train.py"], {"RANK": "1", "LOCAL_RANK": "1", "OOMGUARD_OWNER": "1/1//"}, ["rank-1"]),  # that was the launcher
            (["LIB/train.py"], {"RANK": "1", "LOCAL_RANK": "1", "OOMGUARD_OWNER": "1/1/1/"}, []),
        )
        for command, env, want in table:
            self.assertEqual(self.report(*command, **env), want, (command, env))


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        unittest.main(verbosity=1)
