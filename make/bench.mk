# Benchmarks, beside PyTorch if there is one.
.PHONY: bench run-bench

# `make test` compiles all of them, because some only run on a GPU.
BENCH_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard bench/*.c)))

bench: deps
	@$(MAKE) --no-print-directory run-bench

# PyTorch's side needs a Python with torch: make bench PYTHON=/path/to/venv/bin/python
PYTHON ?= $(shell python3 -c 'import torch' 2>/dev/null && echo python3)
run-bench: $(BUILD)/vitrain $(BUILD)/bench/step $(BUILD)/bench/optimizers $(BUILD)/bench/checkpoint $(BUILD)/bench/attention $(BUILD)/bench/plan_layout $(BUILD)/bench/zarr_chunks
	@[ -n "$(PYTHON)" ] || echo "no Python with torch found (PYTHON=...): timing vitrain alone"
	@$(BUILD)/bench/step --python=$(PYTHON)
	@$(BUILD)/bench/optimizers
	@scratch=$$(mktemp -d); $(BUILD)/bench/checkpoint "$$scratch" || echo "checkpoint: training stopped for too long"; rm -rf "$$scratch"
	@$(BUILD)/bench/attention
	@if reason=$$(tests/mpirun -np 1 true 2>&1); then bench/scaling $(BUILD); else echo "scaling over ranks: not timed: $$reason"; fi
	@bench/plan $(BUILD) || echo "plan: see the lines that say OUTSIDE"
	@bench/io $(BUILD) $(PYTHON)

$(BUILD)/bench/zarr_chunks.o: $(STAMPS)/zarr
$(BUILD)/bench/zarr_chunks.o: LOCAL_CFLAGS += $(ZARR_FLAGS)
$(BUILD)/bench/gpu_step.o: $(STAMPS)/cuda
$(BUILD)/bench/gpu_step.o: LOCAL_CFLAGS += $(if $(NVCC),-DVT_HAS_CUDA -Icuda $(CUDA_CFLAGS))
$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libvitrain.a $(STAMPS)/link
	$(QUIET)$(LINK) -o $@ $(filter %.o %.a,$^) $(LIBS)
