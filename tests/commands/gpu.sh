# The tools for machines with a GPU, on a machine without one: tests/gpu/check, and what a profiler sees.

programs() {
    mkdir programs
    ln -s "$VITRAIN" programs/vitrain
    ln -s "$TESTS" programs/vitrain-tests
    export GPU_PROGRAMS=$PWD/programs OUT=$PWD/out
}

test_gpu_check_without_a_gpu() {
    programs
    ! "$TESTS" --has-gpu >/dev/null || skip "this machine has a GPU"
    refuses "gpu-check: this machine has no GPU that vitrain can use: " "--device=cpu runs without" -- "$TOP/tests/gpu/check" ops
    [ ! -e out/ops.txt ]
    fails any make -s -C "$TOP" gpu-check STEP=parity
    contains "$output" "this machine has no GPU that vitrain can use"
    VITRAIN_TEST_PATHS=gpu fails 1 "$TESTS" operations/blocks
}

test_gpu_check_on_the_host() {
    programs
    export GPU_CHECK_TRIAL=1 GPU_CHECK_GRACE=$HANG
    refuses "'nonsense' is no step; steps are quick smoke ops golden speed program losses tenants resume " -- "$TOP/tests/gpu/check" nonsense
    VITRAIN_TEST_GPU=host "$TESTS" --has-gpu >/dev/null || skip "no C++ compiler was found"
    "$TOP/tests/gpu/check" ops >printed
    contains "$(cat printed)" "gpu-check: all of ops passed"
    contains "$(cat out/ops.txt)" "    operations: mask_multiply residual_add
ok   operations/blocks/dropout_of_a_block_is_the_wholes" "
residual_add: ok" "
adafactor_norm: not run"
    refuted grep a_perfect_forecast_has_no_gradient out/ops.txt # that does not use a GPU
    contains "$(cat printed)" "gpu-check: ops: 5 ok, 0 failed, 0 skipped"
    # a step that is the same each time; then one that isn't
    cat >programs/gpu_step <<'PROGRAM'
#!/bin/sh
echo "attention_of 16 1 2 3 4 5 6 7 8 9 10 11 12 13 1 1 0 1 1 12345678" >"$XDG_CACHE_HOME/gpu.txt"
echo 'ready {"device": "none"}'
n=0; while read -r request; do n=$((n + 1)); echo "0.050000 1.$n"; done
echo '{"steps": 14}'
PROGRAM
    chmod +x programs/gpu_step
    "$TOP/tests/gpu/check" smoke >printed
    contains "$(cat printed)" "ok   smoke replayed: 40.00 samples/s, last loss 1.10, attention backward: cuDNN" "ok   bits once, dropout 0.1" \
        "gpu-check: smoke: 8 ok, 0 failed, 0 skipped"
    sed -i 's/^n=0/n=$$/' programs/gpu_step
    refuses "FAIL bits again, dropout 0: other losses than those of the first run: 1." "gpu-check: smoke: 4 ok, 4 failed" -- "$TOP/tests/gpu/check" smoke
    # no time for more
    GPU_CHECK_SECONDS=0 fails 1 "$TOP/tests/gpu/check" ops layouts
    contains "$output" "not run: operations/blocks/sum_of_squares_adds" "ops: 0 ok, 0 failed, 0 skipped, 5 not run" "not run: layout one"
    GPU_CHECK_ALL=0 refuses "gpu-check: failed: ops" "ops: 0 ok, 0 failed, 0 skipped, 5 not run" -- "$TOP/tests/gpu/check" ops
    # a test that fails, one that dies and one that passes, in one process: each time the others get a new one
    rm programs/vitrain-tests
    cat >programs/vitrain-tests <<'PROGRAM'
#!/bin/sh
[ "$1" != --list ] || { printf 'operations/fails\noperations/dies\noperations/passes\n'; exit; }
for name in "$@"; do
    case $name in
    =operations/fails) printf '    file.c:7: 1 is not 2\nFAIL operations/fails\n0 passed, 1 failed, 0 skipped\n'; exit 1 ;;
    =operations/dies) kill -SEGV $$ ;;
    =operations/passes) printf '    cuDNN serves 2\nok   operations/passes\n1 passed, 0 failed, 0 skipped\n' ;;
    esac
done
PROGRAM
    chmod +x programs/vitrain-tests
    GPU_CHECK_JOBS=1 fails 1 "$TOP/tests/gpu/check" ops
    contains "$output" "    file.c:7: 1 is not 2
FAIL operations/fails"
    contains "$output" "FAIL operations/dies: ended early, exit status 139" "    cuDNN serves 2
ok   operations/passes"
    contains "$output" "gpu-check: ops: 1 ok, 2 failed, 0 skipped"
    GPU_CHECK_BRIEF=1 refuses "gpu-check: ops: 1 ok, 2 failed, 0 skipped" "    cuDNN serves 2" -- "$TOP/tests/gpu/check" ops
    case $output in *"ok   operations/passes"*) return 1 ;; esac
    contains "$output" "gpu-check: failed: ops"
    # a test that survives being killed (here because of a child): it is named, and the next step continues
    sed -i "s|kill -SEGV .*|setsid sleep 60 \& echo \$! >>'$PWD/lasting'; sleep 60 ;;|" programs/vitrain-tests
    SECONDS=0
    GPU_CHECK_SECONDS=4 GPU_CHECK_GRACE=1 fails 1 "$TOP/tests/gpu/check" ops ops
    xargs kill <lasting || true
    [ "$SECONDS" -lt 60 ]
    contains "$output" "FAIL 1 parts of this step don't end, though they were killed"
    [ "$(printf '%s\n' "$output" | grep -c "^gpu-check: ops: 1 ok, 2 failed, 0 skipped, ")" -eq 2 ]
    sed -i 's/setsid .*/kill -SEGV $$ ;;/' programs/vitrain-tests
    # the last word is the test; findings of a tool count even if the test passes
    cat >programs/compute-sanitizer <<'PROGRAM'
#!/bin/sh
[ "$1" != --help ] || { echo "  --kernel-name-exclude ..."; exit; }
tool=$2
[ "$tool" = memcheck ] || echo "$*" >>"${0%/*}/racecheck"
while [ $# -gt 1 ]; do shift; done
"${0%/*}/vitrain-tests" "$1" || [ "$tool" = racecheck ] || exit
[ "$tool$1" != racecheck=operations/passes ] || { echo "a race"; exit 9; }
PROGRAM
    chmod +x programs/compute-sanitizer
    PATH=$PWD/programs:$PATH refuses "ok   memcheck: operations/passes (" -- "$TOP/tests/gpu/check" sanitize
    contains "$(cat programs/racecheck)" " --kernel-name-exclude kns=cutlass --kernel-name-exclude kns=xmma "
    contains "$output" "a race
FAIL racecheck: operations/passes: exit status 9"
    contains "$output" "    file.c:7: 1 is not 2
FAIL racecheck: operations/fails
" # though the tool ended well
    contains "$output" "FAIL racecheck: operations/dies: ended early" "gpu-check: sanitize: 3 ok, 9 failed, 0 skipped"
    # if the machine refuses the tool, nothing more is tried
    cat >programs/compute-sanitizer <<'PROGRAM'
#!/bin/sh
echo "begun" >>"${0%/*}/begun"
printf '========= COMPUTE-SANITIZER\n========= Error: Device not supported\nno GPU can be used: unknown error\n'
exit 1
PROGRAM
    PATH=$PWD/programs:$PATH fails 1 "$TOP/tests/gpu/check" sanitize
    contains "$output" "skip sanitize: compute-sanitizer can't be used on this machine (kernel $(uname -r)): ========= Error: Device not supported no GPU can be used: unknown error"
    contains "$output" "gpu-check: sanitize: 0 ok, 0 failed, 1 skipped"
    [ "$(wc -l <programs/begun)" -eq 1 ]
}

test_gpu_check_with_a_torch_that_does_not_start() {
    needs python3 python3
    mkdir programs modules
    printf '#!/bin/sh\n[ "$1" != --has-gpu ] || echo a GPU\n' >programs/vitrain-tests
    printf '#!/bin/sh\nPYTHONPATH=%s PYTHONDONTWRITEBYTECODE=1 exec python3 "$@"\n' "$PWD/modules" >programs/python
    chmod +x programs/*
    export GPU_CHECK_TRIAL=1 GPU_CHECK_BRIEF=1 GPU_PROGRAMS=$PWD/programs OUT=$PWD/out PYTHON=$PWD/programs/python
    echo 'raise ModuleNotFoundError("No module named torch", name="torch")' >modules/torch.py
    fails 1 "$TOP/tests/gpu/check" parity
    contains "$output" "
skip parity with PyTorch: $PYTHON has no torch"
    contains "$output" "0 failed"
    echo 'import a_part_of_torch' >modules/torch.py
    refuses "FAIL parity with PyTorch: $PYTHON can't import torch: ModuleNotFoundError: No module named 'a_part_of_torch'" -- "$TOP/tests/gpu/check" parity
    echo 'raise ImportError("libcudnn.so.9: no such file")' >modules/torch.py
    refuses "FAIL parity with PyTorch: $PYTHON can't import torch: ImportError: libcudnn.so.9: no such file" -- "$TOP/tests/gpu/check" parity
    PYTHON=$PWD/none refuses "FAIL losses beside PyTorch: there is no $PWD/none" "gpu-check: losses: 0 ok, 1 failed" -- "$TOP/tests/gpu/check" losses
}

# a bare tree for the programs: what it refuses, with stand-ins for the tools that only root can use
test_a_bare_trees_refusals() {
    local tool
    mkdir -p bin other/data noble/etc
    for tool in bash dirname realpath sed ls grep rm mkdir tail; do ln -s "$(command -v $tool)" bin/; done
    printf '#!/bin/sh\necho 0\n' >bin/id
    printf '#!/bin/sh\nwhile case $1 in -*) ;; *) false ;; esac; do shift; done\nexec "$@"\n' >bin/unshare
    ln -s "$(type -P true)" bin/true
    chmod +x bin/*
    echo "distribution noble" >noble/etc/vitrain-chroot
    bare() { PATH=$PWD/bin bash "$TOP/tests/chroot" "$@"; }
    refuses "a distribution, a folder and a command are needed; use: tests/chroot [--with=" -- bare trixie tree
    refuses "unknown option '--without=x'" -- bare --without=x trixie tree true
    refuses "unknown distribution 'sarge'; there are bookworm (Debian 12), trixie (Debian 13) and noble" -- bare sarge tree true
    refuses "'other' is something else than a tree of tests/chroot" -- bare trixie other true
    refuses "'noble' is a tree of noble, not of trixie" -- bare trixie noble true
    refuses "debootstrap is missing: apt-get install debootstrap" -- bare trixie tree true
    printf '#!/bin/sh\nprintf "I: begun\\nE: no such mirror\\n"\nexit 1\n' >bin/debootstrap
    chmod +x bin/debootstrap
    refuses "debootstrap failed, as $PWD/tree.new.log says: E: no such mirror" -- bare trixie tree true
    [ ! -e tree ]
    printf '#!/bin/sh\necho 7\n' >bin/id
    refuses "only root can make and enter such a tree" -- bare trixie tree true
}

test_gpu_check_uses_packed_programs() {
    export OUT=$PWD/out GPU_USE=carried GPU_UNPACKED=$PWD/unpacked
    GPU_ARCHIVE=$PWD/none.tar.gz refuses "no programs: neither are the libraries of vitrain here" -- "$TOP/tests/gpu/check" ops
    mkdir place
    printf 'version=1\nglibc=9.99\nmachine=%s\n' "$(uname -m)" >place/info
    tar -C place -czf archive.tar.gz .
    GPU_ARCHIVE=$PWD/archive.tar.gz refuses "older than the 9.99 of $PWD/archive.tar.gz" -- "$TOP/tests/gpu/check" ops
    contains "$output" "no programs: none were built here, and $PWD/archive.tar.gz can't be used, as the last line says"
    printf 'version=1\nglibc=2.2\nmachine=abacus\n' >place/info
    tar -C place -czf archive.tar.gz .
    GPU_ARCHIVE=$PWD/archive.tar.gz refuses "is for another processor than $(uname -m)" -- "$TOP/tests/gpu/check" ops
    # programs packed from other sources are reported, and used
    mkdir place/bin
    printf '#!/bin/sh\n[ "$1" = --version ]\n' >place/bin/vitrain
    printf '#!/bin/sh\necho "a GPU elsewhere"; exit 1\n' >place/bin/vitrain-tests
    chmod +x place/bin/*
    for sources in 7 "$("$TOP/tests/gpu/sources")"; do
        printf 'version=1\nglibc=2.2\nmachine=%s\nsources=%s\n' "$(uname -m)" "$sources" >place/info
        tar -C place -czf archive.tar.gz .
        GPU_ARCHIVE=$PWD/archive.tar.gz refuses "archive.tar.gz, version 1" "a GPU elsewhere" -- "$TOP/tests/gpu/check" ops
        if [ "$sources" = 7 ]; then contains "$output" "STALE: these programs were made of other sources"; else refuted contains "$output" STALE; fi
    done
}

# bench/gpu --parity judges losses in 16 bits by how far PyTorch's own are off from its float32, and late ones in float32 by how
# far those of a PyTorch with slightly other parameters are
test_parity_allows_what_rounding_explains() {
    needs python3 python3
    PYTHONDONTWRITEBYTECODE=1 python3 - "$TOP/bench/gpu" <<'PYTHON'
import importlib.machinery, importlib.util, math, sys
loader = importlib.machinery.SourceFileLoader("bench_gpu", sys.argv[1])
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_gpu", loader))
loader.exec_module(bench)
exact = [math.exp(-0.02 * step) for step in range(20)]
doubled = [math.exp(-0.04 * step) for step in range(20)]
off = lambda by: [loss * (1 + by(step)) for step, loss in enumerate(exact)]
late = lambda begin: lambda step: min(0.05, 1e-5 * 10 ** max(0, step - begin))  # rounding, which grows at last
rounded = off(late(15))
outside = lambda dtype, losses: bench.judge(dtype, losses, rounded, exact)["left_at"]
assert outside("bf16", off(late(15))) is None
assert outside("bf16", off(late(13))) is None  # it may begin to grow a little earlier
assert outside("bf16", off(late(9.5))) == 12
assert outside("bf16", doubled) == 1 and outside("fp16", doubled) == 1
assert outside("fp16", off(lambda step: 2e-3)) == 0 and outside("bf16", off(lambda step: 9e-4)) is None
# float32: 1e-5 for 20 steps, then ten times what a change of the parameters' last bits does
assert outside("float32", off(lambda step: 9e-6)) is None and outside("float32", off(lambda step: 2e-5)) == 0
exact, rounded = 2 * exact, off(lambda step: 0) + off(lambda step: 1e-4)
assert outside("float32", exact[:20] + [loss * (1 + 9e-4) for loss in exact[20:]]) is None
assert outside("float32", exact[:20] + [loss * (1 + 2e-3) for loss in exact[20:]]) == 20
assert outside("bf16", exact[:3] + [math.nan]) == 3
PYTHON
}

test_classes_of_pytorchs_kernels() {
    needs python3 python3
    PYTHONPATH=$TOP/bench PYTHONDONTWRITEBYTECODE=1 python3 -c '
from pytorch_step import class_of
assert class_of("triton_per_fused__scaled_dot_product_cudnn_attention_native_layer_norm_convolution_7").startswith("triton")
assert class_of("sm80_xmma_fprop_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32") == "convolutions"
assert class_of("void cudnn::ops::nchwToNhwcKernel<float>") == "convolutions"
assert class_of("pytorch_flash::flash_bwd_convert_dq_kernel") == "attention"
assert class_of("triton_tem_fused_addmm_2") == "products" and class_of("nvjet_hsh_128x256_64x4_1x2_h_bz_coopa_nnt") == "products"
assert class_of("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16") == "attention"
assert class_of("void at::native::multi_tensor_apply_kernel<fusedadam>") == "optimizer" and class_of("void other") == "others"'
}

# bench/gpu with stand-ins for both sides
test_bench_beside_pytorch() {
    needs python3 python3
    cat >gpu_step <<'PROGRAM'
#!/bin/sh
echo 'ready {"device": "a GPU", "open_seconds": 0.25, "first_step_seconds": 1.5, "memory_bytes": 1073741824, "step_flops": 1e12}'
while read -r request; do
    case $request in
    step) echo "0.010 1.0" ;;
    classes) echo '{"products": 0.005, "step_seconds": 0.012, "calls": 9, "steps": 12, "replayed": 9}' ;;
    quit) echo '{"parameters": 1, "steps": 35, "replayed": 32}'; exit ;;
    esac
done
PROGRAM
    cat >python <<'PROGRAM'
#!/bin/sh
case $TORCHINDUCTOR_CACHE_DIR in */inductor-$EXPECTED_ATTENTION) ;; *) echo "cache $TORCHINDUCTOR_CACHE_DIR" >&2; exit 1 ;; esac
[ -z "$TORCH_HANGS" ] || sleep 30
echo 'ready {"first_step_seconds": 9.5, "compiled": true, "notes": []}'
while read -r request; do
    case $request in
    step) echo "0.020 1.0" ;;
    classes) echo "{\"products\": 0.006, \"attention kernels\": [\"$KERNEL\"]}" ;;
    quit) echo '{"torch": "2.0", "attention": "cudnn", "compiled": true}'; exit ;;
    esac
done
PROGRAM
    chmod +x gpu_step python
    export VITRAIN_GPU_STEP=$PWD/gpu_step PYTHON=$PWD/python PYTHONDONTWRITEBYTECODE=1 EXPECTED_ATTENTION=cudnn TORCH_HANGS='' KERNEL=cudnn_generated_fprop
    says "ratio 2.000" "PyTorch, attention kernels: cudnn_generated_fprop" -- python3 "$TOP/bench/gpu" --embed 384 --once --rounds 2 --json figures.json
    # a compiler that takes too long does not spoil vitrain's figures
    TORCH_HANGS=1 fails 1 python3 "$TOP/bench/gpu" --embed 384 --once --rounds 2 --timeout 3 --json figures.json
    contains "$output" "vitrain alone: 10.00 ms/step, 1600.00 samples/s, memory 1.00 GiB, first step 1.50 s after 0.25 s of opening"
    contains "$output" "vitrain replayed 9 of 12 steps as a CUDA graph
  vitrain, milliseconds: products 5.00"
    contains "$output" "PyTorch did not answer within 3 s"
    grep -q '"replayed": 9' figures.json
    KERNEL=pytorch_flash::flash_fwd fails 1 python3 "$TOP/bench/gpu" --embed 384 --once --rounds 2 --json figures.json
    contains "$output" "FAIL embed 384: no kernel of PyTorch's attention bears cuDNN's name, though cuDNN's was asked for"
    grep -q '"failed": "no kernel' figures.json
    # the other models; each side is given its flags
    printf '#!/bin/sh\necho "$*" >own-flags\nexec %s/gpu_step\n' "$PWD" >own; printf '#!/bin/sh\necho "$*" >torch-flags\nexec %s/python\n' "$PWD" >torch
    chmod +x own torch
    VITRAIN_GPU_STEP=$PWD/own PYTHON=$PWD/torch says "causal language model, embed 512, depth 8, batch 64, 256 tokens, 30000 words, bf16" "ratio 2.000" -- \
        python3 "$TOP/bench/gpu" --model lm --once --rounds 2 --json figures.json
    grep -q '"model": "lm"' figures.json
    contains "$(cat own-flags)" "--model=encoder --causal=true --attention_scale=sqrt --seq_len=256 --vocab_size=30000 --embed_dim=512"
    contains "$(cat torch-flags)" "--language encoder --causal --scaled --tokens 256 --words 30000 --embed 512"
    VITRAIN_GPU_STEP=$PWD/own PYTHON=$PWD/torch EXPECTED_ATTENTION=default KERNEL='' says "batch 16, cubes of 64 x 64 x 64, PyTorch's layout contiguous" "ratio 2.000" -- \
        python3 "$TOP/bench/gpu" --model unet --batch 16 --layout contiguous --once --rounds 2
    contains "$(cat own-flags)" "--model=unet3d --unet_width=64 --data_size=64 --global_batch_size=16"
    contains "$(cat torch-flags)" "--unet 64 --side 64 --layout contiguous --batch 16"
    fails 2 python3 "$TOP/bench/gpu" --model unet --embed 384
    contains "$output" "--embed is no size of the model unet, which has features, side, batch"
    sed -i 's/"torch": "2.0"/&, "parameters": 2/' python # vitrain's stand-in has 1
    refuses "FAIL lm, embed 512: the models differ: 1 parameters, PyTorch's has 2" -- python3 "$TOP/bench/gpu" --model lm --once --rounds 2
    sed -i 's/"parameters": 2/"parameters": 1/' python
    KERNEL=pytorch_flash::flash_fwd EXPECTED_ATTENTION=flash python3 "$TOP/bench/gpu" --embed 384 --once --rounds 2 --attention flash >/dev/null
}

# lines FILE TEXT: how often the range occurs, at any depth
ranges() { grep -c "^ *$2\$" "$1"; }

test_ranges_of_a_profile() {
    local listener=${TESTS%/*}/nvtx_listener.so
    [ -e "$listener" ] || skip "built without CUDA"
    export NVTX_INJECTION64_PATH=$listener
    synth --img_size=[12,20] --steps_per_year=33 --valid_steps=9
    NVTX_LISTENER_OUT=seen train --img_size=[12,20] --num_heads=4 --num_epochs=2 --device=cpu >/dev/null
    # 32 pairs: two epochs of 4 steps
    for step in 0 1 2 3; do [ "$(ranges seen "step $step")" -eq 2 ]; done
    [ "$(ranges seen "step 4")" -eq 0 ]
    # inside of a step; the steps that only count memory, and validation, are extra
    for line in 'step [0-3]' '  data copy in [0-3]' '  forward' '  backward' '  optimizer' '    block [01]' '    block [01] backward'; do
        case $line in *block*) expected=16 ;; *) expected=8 ;; esac
        [ "$(grep -cx "$line" seen)" -eq $expected ]
    done
    [ "$(grep -cx 'block 0' seen)" -gt 0 ]
    refuted grep "never began" seen
    # each copy is in the step with its number
    for step in 0 1 2 3; do [ "$(grep -A 1 -x "step $step" seen | grep -cx "  data copy in $step")" -eq 2 ]; done
}
