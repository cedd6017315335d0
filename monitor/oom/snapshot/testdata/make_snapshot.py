"""Writes a snapshot of the schema of torch.cuda.memory._snapshot, and what it must show.

    python make_snapshot.py PROTOCOL SCHEMA [EVENTS] > snapshot.pickle 2> expected.json

SCHEMA is today (2.1 on), history (1.13 to 2.0) or list (memory_snapshot). A small allocator serves random requests from segments by first
fit, splits and merges blocks, and records what it does, so that the file contradicts itself nowhere.
"""

import json
import pickle
import random
import sys

FRAMES = {
    "weights": [("/x/torch/nn/modules/module.py", 1, "convert"), ("/home/u/train.py", 10, "main")],
    "forward": [("??", 0, "CapturedTraceback::gather"), ("/x/torch/nn/modules/linear.py", 125, "forward"), ("/x/torch/nn/modules/module.py", 1751, "_call_impl"),
                ("/home/u/model.py", 42, "forward"), ("/home/u/train.py", 20, "main")],
    "loss": [("/x/torch/nn/functional.py", 3086, "cross_entropy"), ("/home/u/train.py", 21, "main")],
    "backward": [("??", 0, "torch::autograd::Engine::evaluate_function"), ("/x/torch/_tensor.py", 581, "backward"), ("/home/u/train.py", 22, "main")],
    "step": [("/x/torch/optim/adamw.py", 150, "_init_group"), ("/x/torch/optim/optimizer.py", 484, "wrapper"), ("/home/u/train.py", 23, "main")],
}
COMPONENTS = {"weights": "parameters", "forward": "activations", "loss": "logits", "backward": "gradients", "step": "optimizer"}
SEGMENT = 20 << 20


class Allocator:
    def __init__(self, limit):
        self.segments, self.trace, self.limit, self.next = [], [], limit, 0x7F0000000000
        self.frames = {k: [dict(filename=f, line=n, name=m) for f, n, m in v] for k, v in FRAMES.items()}
        self.allocated = self.peak = 0
        self.ooms = []

    def record(self, action, addr, size, kind=None, **more):
        self.trace.append(dict(action=action, addr=addr, size=size, stream=0, time_us=len(self.trace), frames=list(self.frames[kind]) if kind else [], **more))

    def alloc(self, request, kind):
        size = (request + 511) // 512 * 512
        for segment in self.segments:
            for i, block in enumerate(segment["blocks"]):
                if block["state"] == "inactive" and block["size"] >= size:
                    return self.use(segment, i, size, request, kind)
        total = max(SEGMENT, (size + (2 << 20) - 1) // (2 << 20) * (2 << 20))
        reserved = sum(s["total_size"] for s in self.segments)
        if reserved + total > self.limit:
            live = {}
            for s in self.segments:
                for b in s["blocks"]:
                    if b["state"] == "active_allocated":
                        component = COMPONENTS[b["kind"]]
                        live[component] = live.get(component, 0) + b["size"]
            self.ooms.append(dict(tried=size, allocated=self.allocated, components=live))
            self.record("oom", 0, size, kind, device_free=self.limit - reserved)
            return None
        segment = dict(device=0, address=self.next, total_size=total, stream=0, segment_type="large", segment_pool_id=(0, 0), is_expandable=False,
                       allocated_size=0, active_size=0, blocks=[dict(address=self.next, size=total, requested_size=0, state="inactive", frames=[])])
        self.next += total
        self.segments.append(segment)
        self.record("segment_alloc", segment["address"], total, kind)
        return self.use(segment, 0, size, request, kind)

    def use(self, segment, i, size, request, kind):
        block = segment["blocks"][i]
        if block["size"] > size:
            rest = dict(address=block["address"] + size, size=block["size"] - size, requested_size=0, state="inactive", frames=[])
            segment["blocks"].insert(i + 1, rest)
        block.update(size=size, requested_size=request, state="active_allocated", frames=list(self.frames[kind]), kind=kind)
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        self.record("alloc", block["address"], size, kind)
        return segment, block

    def free(self, segment, block, wait=False):
        self.allocated -= block["size"]
        self.record("free_requested", block["address"], block["size"])
        if wait:
            block["state"] = "active_awaiting_free"
            return
        self.record("free_completed", block["address"], block["size"])
        block.update(state="inactive", requested_size=0, frames=[])
        blocks = segment["blocks"]
        i = next(n for n, b in enumerate(blocks) if b is block)
        if i + 1 < len(blocks) and blocks[i + 1]["state"] == "inactive":
            block["size"] += blocks.pop(i + 1)["size"]
        if i > 0 and blocks[i - 1]["state"] == "inactive":
            blocks[i - 1]["size"] += blocks.pop(i)["size"]


def main(protocol, schema, events=400):
    rng = random.Random(7)
    a = Allocator(240 << 20)
    live = []
    for _ in range(events):
        if live and rng.random() < 0.4:
            a.free(*live.pop(rng.randrange(len(live))), wait=rng.random() < 0.02)
            continue
        got = a.alloc(rng.randrange(1, 8 << 20), rng.choice(list(FRAMES)))
        if got:
            live.append(got)
    expected = dict(reserved=0, active=0, allocated=0, requested=0, free=0, returnable=0, stuck=0, largest=0, components={}, blocks=0)
    for s in a.segments:
        used = [b for b in s["blocks"] if b["state"] != "inactive"]
        idle = [b["size"] for b in s["blocks"] if b["state"] == "inactive"]
        expected["reserved"] += s["total_size"]
        expected["free"] += sum(idle)
        expected["active"] += sum(b["size"] for b in used)
        if used:
            expected["stuck"] += sum(idle)
            expected["largest"] = max([expected["largest"], *idle])
        else:
            expected["returnable"] += sum(idle)
        for b in used:
            if b["state"] == "active_allocated":
                expected["allocated"] += b["size"]
                expected["requested"] += b["requested_size"]
                expected["blocks"] += 1
                c = COMPONENTS[b["kind"]]
                expected["components"][c] = expected["components"].get(c, 0) + b["size"]
        s["active_size"] = sum(b["size"] for b in used)
        s["allocated_size"] = sum(b["size"] for b in used if b["state"] == "active_allocated")
    assert expected["allocated"] == a.allocated
    expected["peak"], expected["ooms"] = a.peak, a.ooms
    for s in a.segments:
        for b in s["blocks"]:
            b.pop("kind", None)
            if schema == "history":
                frames, real = b.pop("frames"), b.pop("requested_size")
                b.pop("address")
                if b["state"] == "active_allocated":
                    b["history"] = [dict(addr=0, real_size=real, frames=frames)]
            elif schema == "list":
                for key in ("frames", "requested_size", "address"):
                    b.pop(key, None)
    value = a.segments if schema == "list" else dict(segments=a.segments, device_traces=[a.trace], allocator_settings=dict(PYTORCH_CUDA_ALLOC_CONF="", max_split_size=-1))
    sys.stdout.buffer.write(pickle.dumps(value, protocol=protocol))
    json.dump(expected, sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
