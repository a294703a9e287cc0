# Speed, beside PyTorch where it is there.
.PHONY: bench run-bench

# The other side of bench/products, which is left out without it.
HAS_DNNL := $(if $(filter-out undefined,$(origin DNNL_LIBS)),yes)

# `make test` compiles them, too: some are only run where there is a GPU.
BENCH_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(if $(HAS_DNNL),,bench/products.c),$(sort $(wildcard bench/*.c))))

bench: deps
	@$(MAKE) --no-print-directory run-bench

# The other side needs a Python with torch: make bench PYTHON=/path/to/venv/bin/python
PYTHON ?= $(shell python3 -c 'import torch' 2>/dev/null && echo python3)
run-bench: $(BUILD)/vitrain $(BUILD)/bench/step $(if $(HAS_DNNL),$(BUILD)/bench/products) $(BUILD)/bench/accuracy $(BUILD)/bench/scaling \
    $(BUILD)/bench/plan_layout
	@[ -n "$(PYTHON)" ] || echo "no Python with torch found (PYTHON=...): timing vitrain alone"
	@$(BUILD)/bench/step --python=$(PYTHON)
	@$(if $(HAS_DNNL),$(BUILD)/bench/products,echo "products: not timed, as oneDNN is not there (apt-get install libdnnl-dev)")
	@$(BUILD)/bench/accuracy
	@if reason=$$(tests/mpirun -np 1 true 2>&1); then $(BUILD)/bench/scaling; else echo "scaling over ranks: not timed: $$reason"; fi
	@bench/plan $(BUILD) || echo "plan: see the lines that say OUTSIDE"
	@bench/io $(BUILD) $(PYTHON)

$(BUILD)/bench/products.o: LOCAL_CFLAGS += $(DNNL_CFLAGS)
$(BUILD)/bench/products: LIBS += $(DNNL_LIBS)
$(BUILD)/bench/gpu_step.o: $(STAMPS)/cuda
$(BUILD)/bench/gpu_step.o: LOCAL_CFLAGS += $(if $(NVCC),-DVT_HAS_CUDA -Icuda $(CUDA_CFLAGS))
$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libvitrain.a $(STAMPS)/link
	$(LINK) -o $@ $(filter %.o %.a,$^) $(LIBS)
