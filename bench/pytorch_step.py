#!/usr/bin/env python3
"""Times one training step of the reference model in PyTorch, on request.

    python bench/pytorch_step.py --height 32 --width 64 --channels 20 --patch 4 --embed 128 --depth 4 \\
        --heads 4 --batch 8

It is made to take turns with vitrain in one run, so that both see the same machine:

    stdin       stdout
                ready                   after the model is built and the warm-up steps are done
    step        0.123456                seconds of one step: forward, loss, backward, Adam
    quit, EOF   {"torch": "2.15.0", …}  one line of JSON, then the end

Between steps it waits in a read and uses no processor (libgomp's threads spin for some milliseconds after
a step, then sleep).

PyTorch gets what helps it. Here: all cores, fused Adam (its quickest on a CPU), gradients set to None and
not to zero, fused attention, one resident batch. From the caller, since an allocator is set up before
Python starts: PyTorch returns its large buffers to the system at the end of each use and faults them in
again page by page, unless told otherwise:

    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1

(all large buffers from the heap, the heap never trimmed and grown in large pieces; the heap in huge pages,
glibc 2.35 and later). They gain up to a fifth of a step's time, and cost up to 50 MB: leave them out where peak
memory is what is compared. `environment` below holds these, for callers written in Python, and
`--print-environment` prints them.
"""

import argparse
import json
import os
import statistics
import sys
import time

environment = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}

WARM_UP_STEPS = 2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("height", 32), ("width", 64), ("channels", 20), ("patch", 4), ("embed", 128), ("depth", 4), ("heads", 4),
        ("batch", 8),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--dtype", choices=("float32", "bf16"), default="float32", help="bf16: torch.autocast")
    parser.add_argument("--optimizer", choices=("fused", "foreach", "plain"), default="fused", help="of Adam")
    parser.add_argument("--compile", action="store_true", help="torch.compile; without a compiler: eager, and says so")
    parser.add_argument(
        "--seconds-limit", type=float, default=600.0,
        help="past this many seconds since the start, a step asked for ends the program as quit does",
    )  # fmt: skip
    parser.add_argument("--print-environment", action="store_true", help="print the helpful environment and end")
    return parser.parse_args()


def process_memory(key):
    """A value of /proc/self/status in bytes: VmHWM, the most ever resident, or VmRSS, resident now."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


class TrainingStep:
    """A model, its optimizer and one batch, and the step over them."""

    def __init__(self, torch, arguments):
        import pytorch_vit

        torch.manual_seed(333)
        self.torch = torch
        self.use_bf16 = arguments.dtype == "bf16"
        self.relative_loss = pytorch_vit.relative_loss
        self.model = pytorch_vit.VisionTransformer(
            (arguments.height, arguments.width), arguments.patch, arguments.channels, arguments.channels,
            arguments.embed, arguments.depth, arguments.heads,
        )  # fmt: skip
        self.forward = self.model
        # On a CPU fused is one threaded pass: 24 ms for 24 million parameters on two cores, where the others take 104.
        implementation = {"fused": {"fused": True}, "foreach": {"foreach": True}, "plain": {"foreach": False}}
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=5e-4, betas=(0.9, 0.95), eps=1e-8, **implementation[arguments.optimizer]
        )
        shape = (arguments.batch, arguments.channels, arguments.height, arguments.width)
        self.inputs = torch.randn(shape)
        self.targets = torch.randn(shape)

    def run(self):
        """Returns the seconds it took, and the processor seconds of all threads together. The loss is read
        inside, as a training loop's log does."""
        start, processor_start = time.perf_counter(), time.process_time()
        self.optimizer.zero_grad(set_to_none=True)
        with self.torch.autocast("cpu", dtype=self.torch.bfloat16, enabled=self.use_bf16):
            prediction = self.forward(self.inputs)
        loss = self.relative_loss(prediction.float(), self.targets)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.item()
        return time.perf_counter() - start, time.process_time() - processor_start

    def compile(self):
        """Returns whether it worked; a failure leaves the eager model in place."""
        self.forward = self.torch.compile(self.model)
        try:
            self.run()
        except Exception as error:  # whatever the compiler stack raises: the measurement goes on without it
            print(f"torch.compile failed, timing the eager model: {str(error).splitlines()[0]}", file=sys.stderr)
            self.forward = self.model
            return False
        return True


def answer_requests(training_step, deadline):
    """Runs a step for each line 'step' on stdin. Returns the seconds and the processor seconds of each."""
    timings = []
    for line in sys.stdin:
        request = line.strip()
        if request == "quit":
            break
        if request != "step":
            raise SystemExit(f"pytorch_step.py: unknown request '{request}', expected 'step' or 'quit'")
        if time.monotonic() > deadline:
            print("seconds-limit reached", file=sys.stderr)
            break
        timings.append(training_step.run())
        print(f"{timings[-1][0]:.6f}", flush=True)
    return timings


def main():
    arguments = parse_arguments()
    if arguments.print_environment:
        print(" ".join(f"{name}={value}" for name, value in environment.items()))
        return
    deadline = time.monotonic() + arguments.seconds_limit
    # Read by libgomp when torch is loaded.
    os.environ.setdefault("OMP_NUM_THREADS", str(arguments.threads))

    import torch

    torch.set_num_threads(arguments.threads)
    base_memory = process_memory("VmRSS")
    training_step = TrainingStep(torch, arguments)
    compiled = training_step.compile() if arguments.compile else False
    for _ in range(WARM_UP_STEPS):
        training_step.run()
    print("ready", flush=True)

    timings = answer_requests(training_step, deadline)
    summary = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "peak_rss_bytes": process_memory("VmHWM"),
        "rss_after_import_bytes": base_memory,
        "dtype": arguments.dtype,
        "optimizer": arguments.optimizer,
        "compiled": compiled,
        "parameters": sum(parameter.numel() for parameter in training_step.model.parameters()),
        "steps": len(timings),
        "median_seconds": statistics.median(wall for wall, _ in timings) if timings else None,
        # Tells a slow step from one that waited for the cores; includes the spinning of waiting threads.
        "median_processor_seconds": statistics.median(processor for _, processor in timings) if timings else None,
        "loss": training_step.loss,
    }
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
