/* A stand-in for cuDNN's graph API, for the host code that describes graphs: descriptors keep their attributes. Those
 * who include it say what a plan computes. */
#ifndef VT_TESTS_OPERATIONS_FAKE_CUDNN_H
#define VT_TESTS_OPERATIONS_FAKE_CUDNN_H

#include "base/memory.h"
#include "cuda/fused_graph.h"
#include "test.h"

enum { FAKE_MOST = 32 }; /* values of an attribute */

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

#endif
