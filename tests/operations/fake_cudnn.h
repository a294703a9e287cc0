/* A stand-in for cuDNN's graph API with four proposals, for the host code that describes graphs: descriptors keep their
 * attributes. Those who include it say what a plan computes. */
#ifndef VT_TESTS_OPERATIONS_FAKE_CUDNN_H
#define VT_TESTS_OPERATIONS_FAKE_CUDNN_H

#include "base/memory.h"
#include "cuda/fused_graph.h"
#include "test.h"

enum { FAKE_MOST = 32, /* values of an attribute */ PROPOSALS = 4, OWN_BYTES = 1000 };

typedef struct {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    union {
        int64_t numbers[FAKE_MOST];
        int32_t word;
        float value;
        void *pointers[FAKE_MOST];
    };
} attribute;

typedef struct {
    cudnnBackendDescriptorType_t type;
    int count, number; /* number: of a proposal */
    attribute attributes[16];
} fake_descriptor;

static int fake_descriptors; /* how many there are */

static struct {
    cudnnBackendNumericalNote_t notes[PROPOSALS];
    bool refuses_plans, refuses_runs;
    int runs, timings, questions, last; /* questions: for proposals; last: the proposal that ran last */
    attribute ids, pointers;            /* of the pack that ran last */
} fake;

static size_t bytes_of(cudnnBackendAttributeType_t type)
{
    switch ((int)type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    default:
        return 4;
    }
}

static const attribute *find(const fake_descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->count; i++)
        if (d->attributes[i].name == name) return &d->attributes[i];
    EXPECT(false, "descriptor %d has no attribute %d", (int)d->type, (int)name);
    return NULL;
}

static const fake_descriptor *find_descriptor(const fake_descriptor *d, cudnnBackendAttributeName_t name)
{
    return find(d, name)->pointers[0];
}

static cudnnStatus_t fake_make(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made)
{
    fake_descriptor *d = vt_allocate(1, sizeof *d, "a test");
    d->type = type;
    *made = d;
    fake_descriptors++;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_drop(cudnnBackendDescriptor_t descriptor)
{
    free(descriptor);
    fake_descriptors--;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    fake_descriptor *d = descriptor;
    if (d == NULL || value == NULL || count < 1 || count > FAKE_MOST || d->count == 16) return CUDNN_STATUS_BAD_PARAM;
    attribute *a = &d->attributes[d->count++];
    *a = (attribute){.name = name, .type = type, .count = count};
    memcpy(a->numbers, value, (size_t)count * bytes_of(type));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *value)
{
    fake_descriptor *d = descriptor;
    *count = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        fake.questions++;
        const bool is_first = find(d, CUDNN_ATTR_ENGINEHEUR_MODE)->word == CUDNN_HEUR_MODE_A;
        *count = is_first ? PROPOSALS : 1; /* the fallback is that of number 3 */
        for (int i = 0; i < *count && i < most; i++) {
            fake_descriptor *made = ((void **)value)[i];
            made->number = is_first ? i : PROPOSALS - 1;
            fake_set(made, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                     find(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->pointers);
        }
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        (*(fake_descriptor **)value)->number = d->number;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        *(cudnnBackendNumericalNote_t *)value = fake.notes[d->number];
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        *(int64_t *)value = OWN_BYTES;
    } else {
        return CUDNN_STATUS_BAD_PARAM;
    }
    (void)type;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_finish(cudnnBackendDescriptor_t descriptor)
{
    const fake_descriptor *d = descriptor;
    return d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && fake.refuses_plans ? CUDNN_STATUS_NOT_SUPPORTED
                                                                                    : CUDNN_STATUS_SUCCESS;
}

static void fake_error(char *text, size_t size)
{
    snprintf(text, size, "the library's own words");
}

/* What a graph computes; whoever includes this file defines it. */
static void fake_compute_graph(const fake_descriptor *graph, const fake_descriptor *pack);

static cudnnStatus_t fake_run(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    const fake_descriptor *proposal = find_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    EXPECT(handle != NULL);
    if (fake.refuses_runs) return CUDNN_STATUS_EXECUTION_FAILED;
    memset(find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->pointers[0], 0xff, OWN_BYTES);
    fake.runs++;
    fake.last = proposal->number;
    fake.ids = *find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    fake.pointers = *find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    fake_compute_graph(find_descriptor(proposal, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), pack);
    return CUDNN_STATUS_SUCCESS;
}

static const vt_cudnn fake_functions = {.cudnnGetLastErrorString = fake_error,
                                        .cudnnBackendCreateDescriptor = fake_make,
                                        .cudnnBackendDestroyDescriptor = fake_drop,
                                        .cudnnBackendSetAttribute = fake_set,
                                        .cudnnBackendGetAttribute = fake_get,
                                        .cudnnBackendFinalize = fake_finish,
                                        .cudnnBackendExecute = fake_run};

#endif
