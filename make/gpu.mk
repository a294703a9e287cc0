# A machine with a GPU: tests/gpu/check runs there; what it lacks is packed here.
.PHONY: gpu-check gpu-bring gpu-programs run-gpu-bring

gpu-check:
	@tests/gpu/check $(STEP)

GPU_PROGRAMS := $(BUILD)/gpu-programs
GPU_LINK = $(LINK) -s -o $@ $(filter %.o %.a,$^) $(LIBS)
gpu-programs: $(GPU_PROGRAMS)/vitrain $(GPU_PROGRAMS)/vitrain-tests $(GPU_PROGRAMS)/gpu_step $(GPU_PROGRAMS)/gpu_questions

$(GPU_PROGRAMS)/vitrain: $(BUILD)/src/main.o $(BUILD)/libvitrain.a $(STAMPS)/link
	@mkdir -p $(@D)
	$(GPU_LINK)

$(GPU_PROGRAMS)/vitrain-tests: $(patsubst %.c,$(BUILD)/%.o,$(TEST_SOURCES)) $(HOST_CUDA_OBJECTS) $(TILES_MODEL_OBJECTS) $(BUILD)/libvitrain.a $(STAMPS)/link
	@mkdir -p $(@D)
	$(GPU_LINK)

$(GPU_PROGRAMS)/%: $(BUILD)/bench/%.o $(BUILD)/libvitrain.a $(STAMPS)/link
	@mkdir -p $(@D)
	$(GPU_LINK)

gpu-bring: deps
	@$(MAKE) --no-print-directory run-gpu-bring $(if $(filter GPU_ARCH,$(GIVEN) $(KEPT))$(filter environment,$(origin GPU_ARCH)),,GPU_ARCH=all)

run-gpu-bring:
	@[ -n "$(NVCC)" ] || { echo "make gpu-bring needs nvcc (NVCC=...)" >&2; exit 1; }
	@$(MAKE) --no-print-directory gpu-programs
	@tests/gpu/bring $(GPU_PROGRAMS) $(CURDIR)/.carry/gpu.tar.gz $(BUILD)/generated
