#include "storage/cf_attributes.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

#include "base/float16.h"
#include "base/text.h"

/* Up to `most` numbers of an attribute; *count 0: there is no such attribute. Fails if it is something else, because
 * ignoring it could mean a wrong scale. */
static vt_status take_numbers(const vt_array *array, const char *name, int most, double *values, int *count,
                              bool *is_float)
{
    vt_status status = VT_OK;
    *count = array->store->kind->attribute_numbers(array, name, most, values, is_float);
    VT_CHECK(*count >= 0 && (most != 2 || *count != 1),
             "%s: the attribute '%s' of '%s' is not %s; mend it (ncatted, h5py), as without it the values would be "
             "wrong",
             array->store->path, name, array->name,
             most == 1   ? "a single number"
             : most == 2 ? "a pair of numbers"
                         : "a few numbers");
done:
    return status;
}

void vt_cf_text(const vt_array *array, const char *name, char *text, size_t size)
{
    vt_names texts = {0};
    const bool is_text = array->store->kind->attribute_texts(array, name, &texts) && texts.count == 1;
    char *word = vt_text_clean(is_text ? texts.names[0] : "");
    vt_text_on_one_line(text, size, word);
    free(word);
    vt_names_close(&texts);
}

/* Makes whole numbers unsigned, which netCDF-3 could not store: "Best Practices" of netCDF's User Guide, "Unsigned
 * Data". Attributes of the same type are stored as signed numbers, too. */
static bool drop_sign(vt_packing *packing)
{
    const vt_element element = packing->element;
    const bool drops = element == VT_ELEMENT_INT8 || element == VT_ELEMENT_INT16 || element == VT_ELEMENT_INT32;
    if (drops) packing->element++; /* each of these stands before the one without a sign */
    return drops;
}

/* An attribute's number in the stored type. */
static double as_stored(const vt_packing *packing, double value)
{
    if (packing->element == VT_ELEMENT_FLOAT32) return (double)(float)value; /* float32's 1e20 is not a double's */
    if (packing->element == VT_ELEMENT_FLOAT16) return (double)vt_float16_widen(vt_float16_round((float)value));
    if (packing->no_sign && value < 0) value += ldexp(1, 8 * (int)vt_element_size(packing->element));
    return value;
}

/* The value of elements that were never written, unless _FillValue says another (netCDF User Guide, "Fill Values"):
 * netCDF's library makes it the dataset's fill value in HDF5. Bytes have none. */
static bool default_fill(const vt_array *array, const vt_packing *packing, double *value)
{
    static const double fills[] = {
        /* in the order of vt_element */
        0, 0, 9.9692099683868690e+36, 9.9692099683868690e+36, 0, 0, -32767, 65535, -2147483647, 4294967295., 0, 0};
    *value = as_stored(packing, fills[packing->element]);
    const vt_store_kind *kind = array->store->kind;
    return *value != 0 && kind->fill_value != NULL && as_stored(packing, kind->fill_value(array)) == *value;
}

static vt_status take_missing(const vt_array *array, vt_packing *packing)
{
    static const char *const names[] = {"_FillValue", "missing_value"};
    vt_status status = VT_OK;
    double values[VT_MISSING_VALUES - 1];
    for (int i = 0; i < 2; i++) {
        int count = 0;
        bool is_float = false;
        VT_TRY(take_numbers(array, names[i], i == 0 ? 1 : VT_MISSING_VALUES - 1, values, &count, &is_float));
        for (int v = 0; v < count; v++) {
            const double value = as_stored(packing, values[v]);
            bool known = isnan(value); /* a NaN is found anyway */
            for (int m = 0; m < packing->missing_count; m++) known = known || packing->missing[m] == value;
            if (!known) packing->missing[packing->missing_count++] = value;
        }
        double fill = 0;
        if (i == 0 && count == 0 && default_fill(array, packing, &fill))
            packing->missing[packing->missing_count++] = fill;
    }
done:
    return status;
}

/* Limits of the stored type apply to stored numbers; floating-point limits of whole numbers apply to unpacked ones
 * (netCDF User Guide, "Attribute Conventions"; NOAA's reanalyses have such limits). Half a step more keeps values that
 * rounding put beyond them. */
static vt_status take_valid(const vt_array *array, vt_packing *packing)
{
    static const struct {
        const char *name;
        int first, count; /* of what it limits: the least (0) and the most (1) */
    } attributes[] = {{"valid_range", 0, 2}, {"valid_min", 0, 1}, {"valid_max", 1, 1}};
    vt_status status = VT_OK;
    const bool whole = !vt_element_is_float(packing->element);
    double stored[2] = {-INFINITY, INFINITY}, unpacked[2] = {-INFINITY, INFINITY}, values[2];
    for (size_t k = 0; k < sizeof attributes / sizeof attributes[0]; k++) {
        int count = 0;
        bool is_float = false;
        VT_TRY(take_numbers(array, attributes[k].name, attributes[k].count, values, &count, &is_float));
        for (int i = 0; i < count; i++) {
            const int which = attributes[k].first + i;
            if (isnan(values[i])) continue;
            if (whole && is_float)
                unpacked[which] = values[i];
            else
                stored[which] = as_stored(packing, values[i]);
        }
    }
    const double a = (unpacked[0] - packing->offset) / packing->scale;
    const double b = (unpacked[1] - packing->offset) / packing->scale;
    packing->least = fmax(stored[0], fmin(a, b) - 0.5);
    packing->most = fmin(stored[1], fmax(a, b) + 0.5);
    packing->has_limits = packing->least > -INFINITY || packing->most < INFINITY;
    VT_CHECK(stored[0] <= stored[1] && unpacked[0] <= unpacked[1] && packing->least <= packing->most,
             "%s: by its valid_range, valid_min or valid_max no value of '%s' is valid; mend them (ncatted, h5py)",
             array->store->path, array->name);
done:
    return status;
}

vt_status vt_cf_packing(const vt_array *array, vt_packing *packing)
{
    vt_status status = VT_OK;
    int count = 0;
    bool is_float = false;
    char sign[16];
    vt_cf_text(array, "_Unsigned", sign, sizeof sign);
    packing->no_sign = strcasecmp(sign, "true") == 0 && drop_sign(packing);
    VT_TRY(take_numbers(array, "scale_factor", 1, &packing->scale, &count, &is_float));
    VT_TRY(take_numbers(array, "add_offset", 1, &packing->offset, &count, &is_float));
    VT_CHECK(isfinite(packing->scale) && packing->scale != 0 && isfinite(packing->offset),
             "%s: '%s' has scale_factor %g and add_offset %g, which leave nothing of its values", array->store->path,
             array->name, packing->scale, packing->offset);
    VT_TRY(take_missing(array, packing));
    VT_TRY(take_valid(array, packing));
done:
    return status;
}
