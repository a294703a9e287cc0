#include "storage/cf_attributes.h"

#include <math.h>
#include <string.h>
#include <strings.h>

vt_status vt_cf_numbers(hid_t dataset, const char *path, const char *variable, const char *name, int most,
                        double *values, int *count, bool *is_float)
{
    vt_status status = VT_OK;
    *count = 0;
    if (H5Aexists(dataset, name) <= 0) return VT_OK;
    hid_t attribute = H5Aopen(dataset, name, H5P_DEFAULT);
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    H5T_class_t class = H5Tget_class(type);
    hssize_t found = H5Sget_simple_extent_npoints(space);
    bool is_numbers = (class == H5T_FLOAT || class == H5T_INTEGER) && found >= 1 && found <= most;
    if (is_numbers) is_numbers = H5Aread(attribute, H5T_NATIVE_DOUBLE, values) >= 0;
    if (is_float != NULL) *is_float = class == H5T_FLOAT;
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    VT_CHECK(is_numbers,
             "%s: the attribute '%s' of '%s' is not %s; mend it (ncatted, h5py), as without it the values would be "
             "wrong",
             path, name, variable,
             most == 1   ? "a single number"
             : most == 2 ? "a pair of numbers"
                         : "a few numbers");
    *count = (int)found;
done:
    return status;
}

void vt_cf_text(hid_t dataset, const char *name, char *text, size_t size)
{
    text[0] = '\0';
    if (H5Aexists(dataset, name) <= 0) return;
    hid_t attribute = H5Aopen(dataset, name, H5P_DEFAULT);
    hid_t stored = H5Aget_type(attribute), space = H5Aget_space(attribute), type = H5Tcopy(H5T_C_S1);
    const bool of_any_length = H5Tis_variable_str(stored) > 0;
    char *pointer = NULL;
    H5Tset_size(type, of_any_length ? H5T_VARIABLE : size);
    if (H5Tget_class(stored) == H5T_STRING && H5Sget_simple_extent_npoints(space) == 1) {
        H5Tset_cset(type, H5Tget_cset(stored));
        if (H5Aread(attribute, type, of_any_length ? (void *)&pointer : (void *)text) < 0) text[0] = '\0';
    }
    if (pointer != NULL) {
        strncpy(text, pointer, size - 1);
        text[size - 1] = '\0';
        H5free_memory(pointer);
    }
    H5Tclose(type);
    H5Sclose(space);
    H5Tclose(stored);
    H5Aclose(attribute);
}

/* Whole numbers without a sign, as netCDF-3 could not store them: "Best Practices" of netCDF's User Guide, "Unsigned
 * Data". Attributes of the same type then have a sign too. */
static bool drop_sign(vt_packing *packing)
{
    switch (packing->element) {
    case VT_ELEMENT_INT8:
        packing->element = VT_ELEMENT_UINT8;
        return true;
    case VT_ELEMENT_INT16:
        packing->element = VT_ELEMENT_UINT16;
        return true;
    case VT_ELEMENT_INT32:
        packing->element = VT_ELEMENT_UINT32;
        return true;
    default:
        return false;
    }
}

/* As it would be stored. */
static double as_stored(const vt_packing *packing, bool no_sign, double value)
{
    if (packing->element == VT_ELEMENT_FLOAT32) return (double)(float)value; /* 1e20 of a double is none of float32's */
    if (no_sign && value < 0) value += ldexp(1, 8 * (int)vt_element_size(packing->element));
    return value;
}

/* A variable of a file, while its attributes are looked at. */
typedef struct {
    hid_t dataset;
    const char *path, *name;
    bool no_sign;
    vt_packing *packing;
} packed_variable;

/* What netCDF writes where nothing was written, unless _FillValue says another (netCDF User Guide, "Fill Values"): its
 * library makes it the dataset's fill value in HDF5. Bytes have none. */
static bool default_fill(const packed_variable *variable, double *value)
{
    static const double fills[] = {
        9.9692099683868690e+36, 9.9692099683868690e+36, 0, 0, -32767, 65535, -2147483647, 4294967295.};
    const vt_element element = variable->packing->element;
    double stored = 0;
    H5D_fill_value_t is_defined = H5D_FILL_VALUE_UNDEFINED;
    hid_t properties = H5Dget_create_plist(variable->dataset);
    *value = as_stored(variable->packing, false, fills[element]);
    const bool known = *value != 0 && H5Pfill_value_defined(properties, &is_defined) >= 0 &&
                       is_defined == H5D_FILL_VALUE_USER_DEFINED &&
                       H5Pget_fill_value(properties, H5T_NATIVE_DOUBLE, &stored) >= 0;
    H5Pclose(properties);
    return known && as_stored(variable->packing, variable->no_sign, stored) == *value;
}

static vt_status take_missing(const packed_variable *variable)
{
    static const char *const names[] = {"_FillValue", "missing_value"};
    vt_status status = VT_OK;
    vt_packing *packing = variable->packing;
    double values[VT_MISSING_VALUES - 1];
    for (int i = 0; i < 2; i++) {
        int count = 0;
        VT_TRY(vt_cf_numbers(variable->dataset, variable->path, variable->name, names[i],
                             i == 0 ? 1 : VT_MISSING_VALUES - 1, values, &count, NULL));
        for (int v = 0; v < count; v++) {
            const double value = as_stored(packing, variable->no_sign, values[v]);
            bool known = isnan(value); /* a NaN is found anyway */
            for (int m = 0; m < packing->missing_count; m++) known = known || packing->missing[m] == value;
            if (!known) packing->missing[packing->missing_count++] = value;
        }
        double fill = 0;
        if (i == 0 && count == 0 && default_fill(variable, &fill)) packing->missing[packing->missing_count++] = fill;
    }
done:
    return status;
}

/* One attribute of limits: `which` is where its first number goes, least (0) or most (1). */
static vt_status take_limits(const packed_variable *variable, const char *name, int which, int most, double stored[2],
                             double unpacked[2])
{
    vt_status status = VT_OK;
    double values[2];
    int count = 0;
    bool is_float = false;
    const vt_element element = variable->packing->element;
    const bool whole = element != VT_ELEMENT_FLOAT32 && element != VT_ELEMENT_FLOAT64;
    VT_TRY(vt_cf_numbers(variable->dataset, variable->path, variable->name, name, most, values, &count, &is_float));
    VT_CHECK(count == 0 || count == most, "%s: the attribute '%s' of '%s' is not a pair of numbers", variable->path,
             name, variable->name);
    for (int i = 0; i < count; i++) {
        if (isnan(values[i])) continue;
        if (whole && is_float)
            unpacked[which + i] = values[i];
        else
            stored[which + i] = as_stored(variable->packing, variable->no_sign, values[i]);
    }
done:
    return status;
}

/* Limits are of the stored type, and then mean stored numbers; or they are floating point where those are whole
 * numbers, and mean unpacked ones (netCDF User Guide, "Attribute Conventions"; NOAA's reanalyses have such). Half a
 * step keeps what rounding put beyond them. */
static vt_status take_valid(const packed_variable *variable)
{
    vt_status status = VT_OK;
    vt_packing *packing = variable->packing;
    double stored[2] = {-INFINITY, INFINITY}, unpacked[2] = {-INFINITY, INFINITY};
    VT_TRY(take_limits(variable, "valid_range", 0, 2, stored, unpacked));
    VT_TRY(take_limits(variable, "valid_min", 0, 1, stored, unpacked));
    VT_TRY(take_limits(variable, "valid_max", 1, 1, stored, unpacked));
    const double a = (unpacked[0] - packing->offset) / packing->scale;
    const double b = (unpacked[1] - packing->offset) / packing->scale;
    packing->least = fmax(stored[0], fmin(a, b) - 0.5);
    packing->most = fmin(stored[1], fmax(a, b) + 0.5);
    packing->has_limits = packing->least > -INFINITY || packing->most < INFINITY;
    VT_CHECK(stored[0] <= stored[1] && unpacked[0] <= unpacked[1] && packing->least <= packing->most,
             "%s: by its valid_range, valid_min or valid_max no value of '%s' is valid; mend them (ncatted, h5py)",
             variable->path, variable->name);
done:
    return status;
}

vt_status vt_cf_packing(hid_t dataset, const char *path, const char *variable, vt_packing *packing)
{
    vt_status status = VT_OK;
    int count = 0;
    char sign[16];
    vt_cf_text(dataset, "_Unsigned", sign, sizeof sign);
    const bool no_sign = strcasecmp(sign, "true") == 0 && drop_sign(packing);
    VT_TRY(vt_cf_numbers(dataset, path, variable, "scale_factor", 1, &packing->scale, &count, NULL));
    VT_TRY(vt_cf_numbers(dataset, path, variable, "add_offset", 1, &packing->offset, &count, NULL));
    VT_CHECK(isfinite(packing->scale) && packing->scale != 0 && isfinite(packing->offset),
             "%s: '%s' has scale_factor %g and add_offset %g, which leave nothing of its values", path, variable,
             packing->scale, packing->offset);
    const packed_variable one = {dataset, path, variable, no_sign, packing};
    VT_TRY(take_missing(&one));
    VT_TRY(take_valid(&one));
done:
    return status;
}
