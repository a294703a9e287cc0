# For a machine with a GPU: tests/gpu/check runs there; gpu-bring packs the programs and libraries that it lacks.
.PHONY: gpu-check gpu-bring gpu-programs run-gpu-bring

gpu-check:
	@tests/gpu/check $(STEP)

# The programs without symbols, so that the archive is small.
GPU_PROGRAMS := $(BUILD)/gpu-programs
gpu-programs: $(GPU_PROGRAMS)/vitrain $(GPU_PROGRAMS)/vitrain-tests $(GPU_PROGRAMS)/gpu_step

$(GPU_PROGRAMS)/vitrain: $(BUILD)/vitrain
$(GPU_PROGRAMS)/vitrain-tests: $(BUILD)/tests/vitrain-tests
$(GPU_PROGRAMS)/gpu_step: $(BUILD)/bench/gpu_step
$(GPU_PROGRAMS)/vitrain $(GPU_PROGRAMS)/vitrain-tests $(GPU_PROGRAMS)/gpu_step:
	@mkdir -p $(@D)
	strip -o $@ $<

gpu-bring: deps
	@$(MAKE) --no-print-directory run-gpu-bring $(if $(filter GPU_ARCH,$(GIVEN) $(KEPT))$(filter environment,$(origin GPU_ARCH)),,GPU_ARCH=all)

run-gpu-bring:
	@[ -n "$(NVCC)" ] || { echo "make gpu-bring needs nvcc (NVCC=...)" >&2; exit 1; }
	@$(MAKE) --no-print-directory gpu-programs
	@tests/gpu/bring $(GPU_PROGRAMS) $(CURDIR)/.carry/gpu.tar.gz $(BUILD)/generated
