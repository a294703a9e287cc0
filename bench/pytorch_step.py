#!/usr/bin/env python3
"""Times one training step of one of vitrain's models in PyTorch, on request.

    python bench/pytorch_step.py --height 32 --width 64 --channels 20 --patch 4 --embed 128 --depth 4 \\
        --heads 4 --batch 8
    python bench/pytorch_step.py --unet 64 --side 64 --batch 1      # the 3-D U-Net of width 64 on cubes of 64³
    python bench/pytorch_step.py --language encoder --causal --words 30000 --tokens 256 --embed 256 --depth 6 \\
        --heads 8 --hidden 2048 --batch 16                          # a language model

vitrain's benchmarks start it and take turns with it, so that both sides meet the same state of the machine:

    stdin       stdout
                ready {…}               after the model is built and the warm-up steps are done; JSON: the seconds of the
                                        first step, including compilation, and the GPU memory taken
    step        0.123456 1.23456789     seconds of one step (forward, loss, backward, Adam), and the loss before it
    classes     {"products": 0.01, …}   seconds of a step's GPU kernels, by class (GPU only)
    quit, EOF   {"torch": "2.15.0", …}  one line of JSON, then the end

Between steps it waits in a read and uses no processor, except that libgomp's threads spin for some milliseconds after
a step.

PyTorch is set up to be fast: all cores, fused Adam (the fastest on a CPU), gradients set to None instead of zero, fused
attention, one resident batch. With --best every setting (eager and compiled; for the U-Net also both layouts, and in
float32 with oneDNN and without) is first timed in a process of its own; the fastest one is used, and named in the last line.

The caller also sets variables of the C library, which must be set before Python starts. By default PyTorch's large buffers go back to the system after each use, and the next use faults them in page by page.
These variables keep large buffers in the heap, never trim it, grow it in large pieces, and use huge pages (glibc 2.35
and later):

    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1

They save up to a fifth of a step's time and cost up to 50 MB, so don't set them to compare peak memory.

With --device=cuda (for bench/gpu) model, batch and optimizer are on the GPU; model and loss are compiled together,
--attention chooses among PyTorch's fused kernels, and a step ends when the GPU is done. The batch is that of vitrain's
side (random words for a language model), and so are the parameters with --parameters, so that losses can be compared.
"""

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import time


def parse_arguments(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("height", 32), ("width", 64), ("channels", 20), ("patch", 4), ("embed", 128), ("depth", 4), ("heads", 4),
        ("batch", 8),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", choices=("float64", "float32", "bf16", "fp16"), default="float32", help="16 bits: torch.autocast")
    parser.add_argument("--unet", type=int, help="the 3-D U-Net of this width, on cubes of --side points")
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--language", choices=("transformer", "encoder"), help="a transformer on text")
    for name, default in (("words", 30000), ("tokens", 32), ("hidden", 2048)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--scaled", action="store_true", help="--language encoder: scores over the root of a head's width")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--layout", choices=("channels_last", "contiguous"), default="channels_last", help="of the U-Net")
    parser.add_argument("--no-onednn", action="store_true", help="PyTorch's own convolutions and products")
    parser.add_argument("--best", action=argparse.BooleanOptionalAction, help="time all settings, then use the fastest")
    parser.add_argument("--compile", action="store_true", help="torch.compile; without a compiler: eager, with a note")
    parser.add_argument("--compile-mode", default="default", help="torch.compile's mode")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--attention", choices=("default", "cudnn", "flash"), default="default", help="on a GPU")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--parameters", help="a .safetensors file with the initial parameters (from --write-parameters)")
    parser.add_argument("--perturb", type=float, default=0.0, help="relative size of a random change of the parameters")
    parser.add_argument("--data", help="data directory of vitrain's, whose samples the steps take in order of time, instead of one batch")
    parser.add_argument("--write-parameters", help="write the initial parameters to this file and end")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before `ready`; 0 for losses from the first")
    return parser.parse_args(words)


def peak_memory():
    """The largest resident memory of this process in bytes; getrusage would include its parent's at the fork."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def first_line(error):
    return (str(error).splitlines() or [repr(error)])[0][:300]


def wave(torch, count, step, function):
    """The numbers that vitrain's side makes: function(step * i) for i < count, float32 of float64."""
    return function(step * torch.arange(count, dtype=torch.float64)).to(torch.float32)


def read_safetensors(torch, path):
    """Only float32 tensors. The format: 8 bytes with the header's length, a JSON header, the numbers."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = torch.frombuffer(data[begin:end], dtype=torch.float32).reshape(entry["shape"])
    return tensors


def write_safetensors(tensors, path):
    header, offset = {}, 0
    for name, tensor in tensors.items():
        bytes_of = 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + bytes_of]}
        offset += bytes_of
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.detach().cpu().contiguous().numpy().tobytes())


def batches_of(torch, arguments):
    """Yields inputs and targets [batch, channels, height, width]: the normalised fields of the first training file, and
    those of the next time, as vitrain reads them with shuffle: false."""
    import glob

    import h5py
    import numpy

    path = sorted(glob.glob(os.path.join(arguments.data, "train", "*.h5")))[0]
    mean, std = (numpy.load(os.path.join(arguments.data, "stats", f"global_{name}.npy")) for name in ("means", "stds"))
    with h5py.File(path) as file:
        fields = file["fields"]
        for begin in range(0, fields.shape[0] - arguments.batch, arguments.batch):
            times = torch.from_numpy((fields[begin : begin + arguments.batch + 1, : arguments.channels] - mean) / std).to(torch.float32)
            yield times[:-1], times[1:]


def settings_of(arguments):
    """The settings that --best chooses among."""
    if not arguments.unet:
        return [[], ["--compile"], ["--compile", "--compile-mode=max-autotune"]]
    layouts = ([], ["--layout=contiguous"])
    own = [["--no-onednn"]] if arguments.dtype == "float32" else []  # in bf16 a step takes PyTorch's own loops 75 s
    return [layout + more for layout in layouts for more in ([], *own, ["--compile"])]


def seconds_with(setting):
    """The median of three steps with a setting, in a process of its own; infinity if it can't be run."""
    command = [sys.executable, __file__, *sys.argv[1:], *setting, "--no-best"]
    result = subprocess.run(command, input="step\n" * 3 + "quit\n", capture_output=True, text=True)
    lines = result.stdout.splitlines()
    try:
        summary = json.loads(lines[-1])
        return summary["median_seconds"] if summary["compiled"] == ("--compile" in setting) else float("inf")
    except (IndexError, ValueError):
        return float("inf")


def fastest_setting(arguments):
    timings = [(seconds_with(setting), setting) for setting in settings_of(arguments)]
    print(f"seconds a step: {timings}", file=sys.stderr)
    return min(timings)[1]


class TrainingStep:
    """A model, its optimizer and one batch, and the step over them."""

    def __init__(self, torch, arguments):
        import pytorch_vit

        torch.manual_seed(333)
        self.torch = torch
        self.device = arguments.device
        self.notes = []
        self.batches = None
        self.half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(arguments.dtype)
        self.precision = torch.float64 if arguments.dtype == "float64" else torch.float32
        self.attention = self.usable_attention(arguments)
        self.relative_loss = pytorch_vit.relative_loss
        # losses that are compared are summed as vitrain's are
        self.loss_type = torch.float64 if arguments.parameters else torch.float32
        self.compute_loss = self.l1_loss if arguments.unet else self.cross_entropy if arguments.language else self.relative_loss
        self.format = torch.channels_last_3d if arguments.unet and arguments.layout == "channels_last" else torch.contiguous_format
        self.model = self.unet(arguments) if arguments.unet else self.language(arguments) if arguments.language else pytorch_vit.VisionTransformer(
            (arguments.height, arguments.width), arguments.patch, arguments.channels, arguments.channels,
            arguments.embed, arguments.depth, arguments.heads,
        )  # fmt: skip
        if arguments.parameters:
            self.model.load_state_dict(read_safetensors(torch, arguments.parameters))
        if arguments.perturb:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.mul_(1 + arguments.perturb * torch.randn_like(parameter))
        self.model.to(self.device, self.precision)
        self.loss_of = self.eager_loss
        self.scaler = torch.amp.GradScaler(self.device, init_scale=65536.0) if arguments.dtype == "fp16" else None
        # On a CPU fused is one threaded pass: 24 ms for 24 million parameters on two cores, where the others take 104.
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=arguments.lr, betas=(0.9, 0.95), eps=1e-8, fused=True)
        if arguments.language:
            self.inputs, self.targets = torch.randint(arguments.words, (2, arguments.batch, arguments.tokens), device=self.device)
            return
        self.batches = batches_of(torch, arguments) if arguments.data else None
        if self.batches:
            return
        if arguments.unet:  # vitrain's channels lie side by side
            points = (arguments.batch, *3 * (arguments.side,))
            self.inputs, self.targets = self.fields((*points, 4), 0.01, torch.sin, -1), self.fields((*points, 5), 0.013, torch.cos, -1)
            return
        shape = (arguments.batch, arguments.channels, arguments.height, arguments.width)
        self.inputs, self.targets = self.fields(shape, 0.01, torch.sin), self.fields(shape, 0.013, torch.cos)

    def unet(self, arguments):
        import pytorch_unet

        return pytorch_unet.UNet(arguments.unet).to(memory_format=self.format)

    def language(self, arguments):
        import pytorch_language

        sizes = (arguments.words, arguments.embed, arguments.heads, arguments.depth, arguments.hidden, arguments.dropout, arguments.causal)
        if arguments.language == "transformer":
            return pytorch_language.EncoderDecoder(*sizes)
        return pytorch_language.Encoder(*sizes, scaled=arguments.scaled)

    def cross_entropy(self, scores, targets):
        return self.torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())

    def l1_loss(self, prediction, target):
        return (prediction - target).abs().mean()

    def fields(self, shape, step, function, channels=1):
        """Numbers of that shape, whose dimension `channels` becomes the one behind the samples."""
        fields = wave(self.torch, math.prod(shape), step, function).reshape(shape).movedim(channels, 1)
        return fields.to(self.device, self.precision, memory_format=self.format)

    def usable_attention(self, arguments):
        """The attention that --attention names, if this GPU and PyTorch have it for this shape; else PyTorch's own choice."""
        if arguments.device == "cpu" or arguments.attention == "default" or arguments.unet:
            return "default"
        self.attention = arguments.attention
        tokens = arguments.tokens if arguments.language else (arguments.height // arguments.patch) * (arguments.width // arguments.patch)
        shape = (1, tokens, arguments.heads, arguments.embed // arguments.heads)
        numbers = self.torch.randn(shape, device="cuda", dtype=self.half or self.torch.float32, requires_grad=True).transpose(1, 2)
        try:
            with self.kernels():
                result = self.torch.nn.functional.scaled_dot_product_attention(numbers, numbers, numbers, is_causal=arguments.causal)
                result.backward(self.torch.ones_like(result))
            self.torch.cuda.synchronize()
        except RuntimeError as error:
            self.note(f"no {arguments.attention} attention, PyTorch's own choice instead: {first_line(error)}")
            return "default"
        finally:
            self.torch.cuda.empty_cache()
        return arguments.attention

    def note(self, text):
        """Notes a departure from what was asked for; the caller prints it beside the figures."""
        self.notes.append(text)
        print(text, file=sys.stderr)

    def eager_loss(self, inputs, targets):
        with self.torch.autocast(self.device, dtype=self.half, enabled=self.half is not None):
            prediction = self.model(inputs)
        targets = targets if targets.dtype == self.torch.int64 else targets.to(self.loss_type)
        return self.compute_loss(prediction.to(self.loss_type), targets)

    def kernels(self):
        """The attention that may be used, as a context."""
        if self.device == "cpu" or self.attention == "default":
            return contextlib.nullcontext()
        from torch.nn.attention import SDPBackend, sdpa_kernel

        chosen = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[self.attention]
        return sdpa_kernel([chosen])

    def run(self):
        """Makes a step and returns its seconds. It reads the loss, as a training loop's log does, and on a GPU it ends when
        the GPU is done."""
        if self.batches:
            self.inputs, self.targets = (fields.to(self.device, self.precision) for fields in next(self.batches))
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with self.kernels():
            loss = self.loss_of(self.inputs, self.targets)
            if self.scaler is not None:
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                loss.backward()
                self.optimizer.step()
        self.loss = loss.item()
        if self.device == "cuda":
            self.torch.cuda.synchronize()
        return time.perf_counter() - start

    def compile(self, mode):
        """Compiles model and loss; returns whether that worked. If it fails with the attention that was asked for, PyTorch's
        own choice is tried; if that fails too, the model stays eager. No parameter changes."""
        asked = self.attention
        for attention in dict.fromkeys((asked, "default")):
            self.attention = attention
            self.torch.compiler.reset()
            if attention != asked:  # this cache's key does not contain the attention: it would return the first result
                import torch._functorch.config

                torch._functorch.config.enable_autograd_cache = False
            compiled = self.torch.compile(self.eager_loss, mode=mode)
            try:
                with self.kernels():
                    compiled(self.inputs, self.targets).backward()
                self.loss_of = compiled
                return True
            except Exception as error:  # whatever the compiler stack raises: the measurement goes on without it
                self.note(f"torch.compile failed with {attention} attention: {first_line(error)}")
                self.attention = asked
            finally:
                self.optimizer.zero_grad(set_to_none=True)
        return False

    def classes(self):
        """Seconds of one step's GPU kernels by class (by their names), and the names of attention's kernels."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
            self.run()
        kinds, attention = {}, set()
        for event in profiler.events():
            # named ranges of the host are listed beside the kernels
            if str(event.device_type) != "DeviceType.CUDA" or getattr(event, "is_user_annotation", False) or event.name.startswith("##"):
                continue
            name = event.name.lower()
            kind = class_of(name)
            kinds[kind] = kinds.get(kind, 0.0) + 1e-6 * event.time_range.elapsed_us()
            if kind == "attention":
                attention.add(event.name[:80])
        return {**kinds, "attention kernels": sorted(attention)}


# Parts of kernels' names; the first match counts. Inductor names a kernel after all operations around it, also after
# attention and convolutions that it does not contain, so its kernels come first, after the products of its templates.
# cuDNN calls a forward "fprop", in convolutions as in attention.
CLASSES = (
    ("products", ("triton_tem", "triton_mm")),
    ("triton: norms, activations, residual, loss", ("triton",)),
    ("convolutions", ("convol", "implicit_gemm", "dgrad", "wgrad", "nhwc", "ndhwc")),
    ("attention", ("flash", "fmha", "sdpa", "attention", "cudnn_generated")),
    ("convolutions", ("fprop", "conv", "cudnn")),
    ("products", ("gemm", "nvjet", "cutlass", "cublas", "splitk", "xmma")),
    ("words and cross entropy", ("embedding", "indexing_backward", "radixsort", "softmax", "nll_loss")),
    ("optimizer", ("adam", "multi_tensor")),
    ("copies", ("memcpy", "memset")),
)


def class_of(name):
    return next((kind for kind, parts in CLASSES if any(part in name for part in parts)), "others")


def answer_requests(training_step):
    """Runs a step for each line 'step' on stdin. Returns the seconds of each."""
    timings = []
    for line in sys.stdin:
        request = line.strip()
        if request == "quit":
            break
        if request == "classes":
            try:
                classes = training_step.classes()
            except Exception as error:  # whatever a profiler raises: the measurement goes on without it
                classes = {"failed": [first_line(error)]}
            print(json.dumps(classes), flush=True)
            continue
        if request != "step":
            raise SystemExit(f"pytorch_step.py: unknown request '{request}', expected 'step', 'classes' or 'quit'")
        timings.append(training_step.run())
        print(f"{timings[-1]:.6f} {training_step.loss:.9g}", flush=True)
    return timings


def main():
    arguments = parse_arguments(sys.argv[1:])
    setting = fastest_setting(arguments) if arguments.best else []
    arguments = parse_arguments(sys.argv[1:] + setting)
    threads = len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # read by libgomp when torch is loaded

    import torch

    torch.set_num_threads(threads)
    torch.backends.mkldnn.enabled = not arguments.no_onednn
    taken = 0
    if arguments.device == "cuda":
        torch.backends.cudnn.benchmark = not arguments.parameters  # the patches' convolution by the fastest algorithm
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # neither side counts the memory of its context
        taken = torch.cuda.mem_get_info()[0]
        if arguments.dtype == "float32":
            torch.set_float32_matmul_precision("highest" if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0" else "high")
    training_step = TrainingStep(torch, arguments)
    if arguments.write_parameters:
        write_safetensors(training_step.model.state_dict(), arguments.write_parameters)
        return
    start = time.perf_counter()
    compiled = training_step.compile(arguments.compile_mode) if arguments.compile else False
    first = {"compile_seconds": time.perf_counter() - start}
    for i in range(arguments.warm_up):
        seconds = training_step.run()
        if i == 0:
            # what a user waits for; the compilation makes a forward and a backward of its own
            first["first_step_seconds"] = first["compile_seconds"] + seconds
    if arguments.device == "cuda":
        first["memory_bytes"] = taken - torch.cuda.mem_get_info()[0]
        first["allocated_bytes"] = torch.cuda.max_memory_allocated()
        first["device"] = torch.cuda.get_device_name()
    first["compiled"] = compiled
    first["notes"] = training_step.notes
    print("ready " + json.dumps(first), flush=True)

    timings = answer_requests(training_step)
    summary = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "peak_rss_bytes": peak_memory(),
        "dtype": arguments.dtype,
        "compiled": compiled,
        "setting": " ".join(setting) or "eager",
        "parameters": sum(parameter.numel() for parameter in training_step.model.parameters()),
        "steps": len(timings),
        "median_seconds": statistics.median(timings) if timings else None,
        "attention": training_step.attention,
        "loss": getattr(training_step, "loss", None),
    }
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
