#include "source/fields/seasonal_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/seasonal.h"
#include "storage/output_file.h"
#include "storage/tensor_file.h"

enum { BLOCK = 512, DAYS = 366, LONGEST_GAP = 32, TRIANGLE = VT_SEASONAL_BASIS * (VT_SEASONAL_BASIS + 1) / 2 };

/* The normal equations of one time of day, for values less `offset`: matrix sum basis[j] basis[k] (lower triangle, row
 * by row), right-hand side sum basis[k] value. */
typedef struct {
    int64_t minute;
    bool days[DAYS];         /* of the year: is there a time? */
    double matrix[TRIANGLE]; /* of every point, where no value is missing */
    double *point_matrix;    /* [triangle, channels, points], where values may be missing; else NULL */
    double *right_hand_side; /* [basis, channels, points] */
} slot;

struct vt_seasonal_fit {
    vt_seasonal_fit_options options;
    int64_t points, basis;
    int64_t times, least_step; /* minutes between two times that follow; 0: not known yet */
    vt_date first, last;
    slot **slots;
    int64_t slot_count;
    float *offset; /* [channels, points]: the first value, so that little is cancelled below; NaN before there is one */
    double *squares; /* [channels]: sum of (value - offset)^2 */
    double *counts;  /* [channels] */
};

vt_seasonal_fit *vt_seasonal_fit_open(const vt_seasonal_fit_options *options)
{
    vt_seasonal_fit *fit = vt_allocate(1, sizeof *fit, "the climatology");
    VT_ASSERT(options->harmonics >= 0 && options->harmonics <= VT_SEASONAL_HARMONICS);
    fit->options = *options;
    fit->points = options->height * options->width;
    fit->basis = 1 + 2 * options->harmonics;
    fit->offset = vt_allocate((size_t)(options->channels * fit->points), sizeof *fit->offset, "the climatology");
    fit->squares = vt_allocate((size_t)options->channels, sizeof *fit->squares, "the climatology");
    fit->counts = vt_allocate((size_t)options->channels, sizeof *fit->counts, "the climatology");
    for (int64_t i = 0; i < options->channels * fit->points; i++) fit->offset[i] = NAN;
    return fit;
}

static void close_slot(slot *s)
{
    if (s == NULL) return;
    free(s->point_matrix);
    free(s->right_hand_side);
    free(s);
}

void vt_seasonal_fit_close(vt_seasonal_fit **pointer)
{
    vt_seasonal_fit *fit = *pointer;
    if (fit == NULL) return;
    *pointer = NULL;
    for (int64_t i = 0; i < fit->slot_count; i++) close_slot(fit->slots[i]);
    free(fit->slots);
    free(fit->offset);
    free(fit->squares);
    free(fit->counts);
    free(fit);
}

/* ---- sums ---- */

static int64_t triangle_of(int64_t basis)
{
    return basis * (basis + 1) / 2;
}

/* The slots stay in the order of their times of day. */
static vt_status find_slot(vt_seasonal_fit *fit, int64_t minute, slot **result)
{
    vt_status status = VT_OK;
    const size_t values = (size_t)(fit->options.channels * fit->points), basis = (size_t)fit->basis;
    int64_t at = 0;
    char bytes[VT_NUMBER_SIZE];
    slot *added = NULL;
    while (at < fit->slot_count && fit->slots[at]->minute < minute) at++;
    if (at < fit->slot_count && fit->slots[at]->minute == minute) {
        *result = fit->slots[at];
        return VT_OK;
    }
    added = vt_allocate(1, sizeof *added, "the climatology");
    added->minute = minute;
    added->right_hand_side = calloc(basis * values, sizeof(double));
    if (fit->options.masked) added->point_matrix = calloc((size_t)triangle_of(fit->basis) * values, sizeof(double));
    VT_CHECK(added->right_hand_side != NULL && (!fit->options.masked || added->point_matrix != NULL),
             "out of memory for the climatology, which needs %s for each of at least %ld times of day; fewer "
             "--harmonics need less",
             vt_text_bytes((double)(values * basis * sizeof(double)), bytes), fit->slot_count + 1);
    fit->slots = vt_reallocate(fit->slots, (size_t)fit->slot_count + 1, sizeof(slot *), "the climatology");
    memmove(fit->slots + at + 1, fit->slots + at, (size_t)(fit->slot_count - at) * sizeof(slot *));
    fit->slot_count++;
    *result = fit->slots[at] = added;
    added = NULL;
done:
    close_slot(added);
    return status;
}

/* `count` points from place `first` of [channels, points] on, at most BLOCK; the sums over k run over points side by
 * side. */
static void add_block(vt_seasonal_fit *fit, slot *s, const double *basis, int64_t first, int64_t count,
                      const float *field, double *squares, double *counts)
{
    double value[BLOCK], there[BLOCK];
    const int64_t plane = fit->options.channels * fit->points;
    float *offset = fit->offset + first;
    for (int64_t i = 0; i < count; i++) {
        const bool missing = isnan(field[i]);
        if (!missing && isnan(offset[i])) offset[i] = field[i];
        value[i] = missing ? 0 : (double)field[i] - (double)offset[i];
        there[i] = missing ? 0 : 1;
        *squares += value[i] * value[i];
        *counts += there[i];
    }
    for (int64_t k = 0; k < fit->basis; k++) {
        double *sums = s->right_hand_side + k * plane + first;
#pragma omp simd
        for (int64_t i = 0; i < count; i++) sums[i] += basis[k] * value[i];
    }
    if (s->point_matrix == NULL) return;
    double *sums = s->point_matrix + first;
    for (int64_t j = 0; j < fit->basis; j++)
        for (int64_t k = 0; k <= j; k++, sums += plane) {
            const double product = basis[j] * basis[k];
#pragma omp simd
            for (int64_t i = 0; i < count; i++) sums[i] += product * there[i];
        }
}

static void add_channel(vt_seasonal_fit *fit, slot *s, const double *basis, int64_t channel, const float *field)
{
    for (int64_t i = 0; i < fit->points; i += BLOCK) {
        const int64_t count = fit->points - i < BLOCK ? fit->points - i : BLOCK;
        add_block(fit, s, basis, channel * fit->points + i, count, field + i, &fit->squares[channel],
                  &fit->counts[channel]);
    }
}

vt_status vt_seasonal_fit_add(vt_seasonal_fit *fit, vt_date date, const float *fields)
{
    vt_status status = VT_OK;
    slot *s = NULL;
    double basis[VT_SEASONAL_BASIS];
    VT_TRY(find_slot(fit, vt_date_of_day(date), &s));
    VT_ASSERT(s != NULL);
    vt_seasonal_basis(date, fit->options.harmonics, basis);
    s->days[(int)(vt_date_of_year(date) * DAYS)] = true;
    for (int64_t j = 0, at = 0; j < fit->basis; j++)
        for (int64_t k = 0; k <= j; k++, at++) s->matrix[at] += basis[j] * basis[k];
#pragma omp parallel for schedule(static) if (fit->options.channels * fit->points > 1 << 14)
    for (int64_t c = 0; c < fit->options.channels; c++) add_channel(fit, s, basis, c, fields + c * fit->points);
    const int64_t step = llabs(date.minutes - fit->last.minutes);
    if (fit->times > 0 && step > 0 && (fit->least_step == 0 || step < fit->least_step)) fit->least_step = step;
    if (fit->times == 0 || date.minutes < fit->first.minutes) fit->first = date;
    fit->last = date;
    fit->times++;
done:
    return status;
}

/* ---- solving ---- */

/* Times that are more than a day apart: their times of day mean little, other files may have others, and each
 * alone would have few times. */
static void join_slots(vt_seasonal_fit *fit)
{
    enum { A_DAY = 1440 };
    const int64_t values = fit->options.channels * fit->points;
    if (fit->least_step <= A_DAY) return;
    slot *all = fit->slots[0];
    all->minute = VT_SEASONAL_ANY_TIME;
    for (int64_t i = 1; i < fit->slot_count; i++) {
        slot *other = fit->slots[i];
        for (int day = 0; day < DAYS; day++) all->days[day] = all->days[day] || other->days[day];
        for (int k = 0; k < TRIANGLE; k++) all->matrix[k] += other->matrix[k];
        for (int64_t k = 0; k < fit->basis * values; k++) all->right_hand_side[k] += other->right_hand_side[k];
        for (int64_t k = 0; all->point_matrix != NULL && k < triangle_of(fit->basis) * values; k++)
            all->point_matrix[k] += other->point_matrix[k];
        close_slot(other);
    }
    fit->slot_count = 1;
}

/* The most days of the year that follow one another without a time, over all times of day. */
static int64_t longest_gap(const vt_seasonal_fit *fit)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < fit->slot_count; i++) {
        int64_t gap = 0;
        for (int day = 0; day < 2 * DAYS; day++) { /* the year goes round */
            gap = fit->slots[i]->days[day % DAYS] ? 0 : gap + 1;
            if (gap > longest) longest = gap < DAYS ? gap : DAYS;
        }
    }
    return longest;
}

/* Cholesky's decomposition of the lower triangle, in place. False where a pivot is below `least` of matrix[0], the
 * number of times: the points' values don't tell the harmonics from the mean. */
static bool decompose(double *matrix, int64_t basis, double least)
{
    const double count = matrix[0];
    for (int64_t j = 0; j < basis; j++) {
        double *row = matrix + triangle_of(j);
        for (int64_t k = 0; k <= j; k++) {
            const double *other = matrix + triangle_of(k);
            double sum = row[k];
            for (int64_t m = 0; m < k; m++) sum -= row[m] * other[m];
            if (k == j && !(sum > least * count)) return false;
            row[k] = k == j ? sqrt(sum) : sum / other[k];
        }
    }
    return true;
}

/* x, which is the right-hand side before, by the decomposed matrix. */
static void substitute(const double *matrix, int64_t basis, double *x)
{
    for (int64_t j = 0; j < basis; j++) {
        for (int64_t k = 0; k < j; k++) x[j] -= matrix[triangle_of(j) + k] * x[k];
        x[j] /= matrix[triangle_of(j) + j];
    }
    for (int64_t j = basis - 1; j >= 0; j--) {
        for (int64_t k = j + 1; k < basis; k++) x[j] -= matrix[triangle_of(k) + j] * x[k];
        x[j] /= matrix[triangle_of(j) + j];
    }
}

/* The equations of one point; returns by how much its coefficients lessen the sum of squares. x [basis]. */
static double solve_point(const vt_seasonal_fit *fit, const slot *s, const double *shared, int64_t basis, int64_t i,
                          double *x)
{
    const double least = 0.02; /* a point that has values in less than about a third of the year gets a mean alone */
    const int64_t plane = fit->options.channels * fit->points;
    double matrix[TRIANGLE] = {0}, right[VT_SEASONAL_BASIS] = {0}, lessened = 0;
    for (int64_t k = 0; k < basis; k++) right[k] = x[k] = s->right_hand_side[k * plane + i];
    if (s->point_matrix != NULL) {
        for (int64_t k = 0; k < triangle_of(basis); k++) matrix[k] = s->point_matrix[k * plane + i];
        const double count = matrix[0];
        for (int64_t k = 0; k < basis && !(count > 0); k++) x[k] = NAN;
        if (!(count > 0)) return 0;
        if (!decompose(matrix, basis, least)) {
            for (int64_t k = 1; k < basis; k++) x[k] = 0;
            basis = 1;
            matrix[0] = sqrt(count);
        }
        shared = matrix;
    }
    substitute(shared, basis, x);
    for (int64_t k = 0; k < basis; k++) lessened += x[k] * right[k];
    return lessened;
}

/* coefficients [basis, channels, points] of a time of day, from the first columns of its equations; NULL: not wanted.
 * left [channels]: sums of squares, lessened by what the coefficients explain. */
static void solve_slot(const vt_seasonal_fit *fit, const slot *s, int64_t basis, float *coefficients, double *left)
{
    const int64_t points = fit->points, plane = fit->options.channels * points;
    double shared[TRIANGLE];
    memcpy(shared, s->matrix, sizeof shared);
    decompose(shared, basis, 0);
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < fit->options.channels; c++) {
        for (int64_t i = c * points; i < (c + 1) * points; i++) {
            double x[VT_SEASONAL_BASIS];
            left[c] -= solve_point(fit, s, shared, basis, i, x);
            if (coefficients == NULL) continue;
            for (int64_t k = 0; k < basis; k++) coefficients[k * plane + i] = (float)x[k];
            coefficients[i] = (float)(x[0] + (double)fit->offset[i]);
        }
    }
}

/* ---- the file ---- */

static vt_status write_head(const vt_seasonal_fit *fit, int64_t basis, vt_tensor_file *file)
{
    vt_status status = VT_OK;
    char date[VT_DATE_SIZE];
    int64_t *minutes = vt_allocate((size_t)fit->slot_count, sizeof *minutes, "the climatology");
    for (int64_t i = 0; i < fit->slot_count; i++) minutes[i] = fit->slots[i]->minute;
    const int64_t harmonics = (basis - 1) / 2;
    VT_TRY(vt_tensor_file_set_text(file, "format", VT_SEASONAL_FORMAT));
    VT_TRY(vt_tensor_file_set_integers(file, "harmonics", 1, &harmonics));
    VT_TRY(vt_tensor_file_set_integers(file, "minutes_of_day", fit->slot_count, minutes));
    VT_TRY(vt_tensor_file_set_integers(file, "times", 1, &fit->times));
    VT_TRY(vt_tensor_file_set_text(file, "first", vt_date_format(fit->first, date)));
    VT_TRY(vt_tensor_file_set_text(file, "last", vt_date_format(fit->last, date)));
done:
    free(minutes);
    return status;
}

static vt_status write_about(const vt_fields_about *about, vt_tensor_file *file)
{
    vt_status status = VT_OK;
    vt_text names = {0};
    char *text = vt_fields_about_short_text(about);
    for (int64_t c = 0; about->names != NULL && c < about->channels; c++)
        vt_text_append(&names, "%s%s", c > 0 ? "\n" : "", about->names[c]);
    if (names.length > 0) VT_TRY(vt_tensor_file_set_text(file, "channels", names.characters));
    VT_TRY(vt_tensor_file_set_text(file, "about", text));
    for (int axis = 0; axis < 2; axis++) {
        double *degrees = vt_fields_about_coordinates(about, axis == 1);
        if (degrees == NULL) continue;
        const vt_tensor_shape shape = {1, {axis == 0 ? about->window.rows : about->window.width}};
        float *values = vt_allocate((size_t)shape.shape[0], sizeof *values, "the climatology");
        for (int64_t i = 0; i < shape.shape[0]; i++) values[i] = (float)degrees[i];
        status = vt_tensor_file_write(file, axis == 0 ? "lat" : "lon", &shape, values);
        free(values);
        free(degrees);
        if (status != VT_OK) goto done;
    }
done:
    vt_text_close(&names);
    free(text);
    return status;
}

/* All times of day: coefficients [slots, basis, channels, points], or NULL; stds [channels] of what they leave. */
static void solve(const vt_seasonal_fit *fit, int64_t basis, float *coefficients, float *stds)
{
    const int64_t channels = fit->options.channels, values = basis * channels * fit->points;
    double *left = vt_copy(fit->squares, (size_t)channels, sizeof *left, "the climatology");
    for (int64_t i = 0; i < fit->slot_count; i++)
        solve_slot(fit, fit->slots[i], basis, coefficients != NULL ? coefficients + i * values : NULL, left);
    for (int64_t c = 0; c < channels; c++) stds[c] = (float)sqrt(fmax(0, left[c]) / fit->counts[c]);
    free(left);
}

/* How many columns of the equations the times can tell apart: with too long a gap in the year the mean alone. */
static int64_t settle_basis(vt_seasonal_fit *fit, int64_t *gap)
{
    join_slots(fit);
    *gap = longest_gap(fit);
    return *gap > LONGEST_GAP ? 1 : fit->basis;
}

/* The coefficients, and the deviations of what they leave; a name that is NULL: these are not wanted. */
static vt_status write_solution(const vt_seasonal_fit *fit, int64_t basis, const char *name, const char *stds_name,
                                vt_tensor_file *file)
{
    vt_status status = VT_OK;
    const int64_t channels = fit->options.channels;
    const vt_tensor_shape shape = {5, {fit->slot_count, basis, channels, fit->options.height, fit->options.width}};
    const size_t bytes = (size_t)vt_tensor_count(&shape) * sizeof(float);
    float *stds = vt_allocate((size_t)channels, sizeof *stds, "the climatology");
    float *coefficients = name != NULL ? malloc(bytes) : NULL;
    VT_CHECK(coefficients != NULL || name == NULL, "out of memory for the climatology");
    solve(fit, basis, coefficients, stds);
    if (name != NULL) VT_TRY(vt_tensor_file_write(file, name, &shape, coefficients));
    if (stds_name != NULL) VT_TRY(vt_tensor_file_write(file, stds_name, &(vt_tensor_shape){1, {channels}}, stds));
    const int64_t checksum = name != NULL ? vt_crc32c(coefficients, bytes) : 0;
    if (name != NULL && stds_name != NULL) VT_TRY(vt_tensor_file_set_integers(file, "crc32c", 1, &checksum));
done:
    free(coefficients);
    free(stds);
    return status;
}

static char *summary_of(const vt_seasonal_fit *fit, int64_t basis, int64_t gap)
{
    char *terms = vt_seasonal_terms((basis - 1) / 2, fit->slot_count, fit->slots[0]->minute);
    if (basis == fit->basis) return terms;
    char *text = vt_text_format("%s alone, as the times leave %ld days of the year without one", terms, gap);
    free(terms);
    return text;
}

vt_status vt_seasonal_fit_write(vt_seasonal_fit *fit, vt_seasonal_fit *changes, vt_seasonal_fit *values,
                                const vt_fields_about *about, const char *path, char **summary)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = NULL;
    char *partial = vt_output_partial_path(path);
    VT_ASSERT(fit->times > 0);
    VT_ASSERT(about == NULL || (about->channels == fit->options.channels && about->window.rows == fit->options.height &&
                                about->window.width == fit->options.width));
    int64_t gap, other;
    const int64_t basis = settle_basis(fit, &gap);
    VT_TRY(vt_tensor_file_create(partial, &file));
    VT_TRY(write_head(fit, basis, file));
    if (about != NULL) VT_TRY(write_about(about, file));
    VT_TRY(write_solution(fit, basis, "coefficients", "departure_stds", file));
    if (values != NULL) VT_TRY(write_solution(values, settle_basis(values, &other), "value_coefficients", NULL, file));
    if (changes != NULL && changes->times > 0)
        VT_TRY(write_solution(changes, settle_basis(changes, &other), NULL, "departure_change_stds", file));
    VT_TRY(vt_tensor_file_finish(&file));
    VT_TRY(vt_output_publish(partial, path));
    *summary = summary_of(fit, basis, gap);
done:
    vt_tensor_file_close(&file);
    if (status != VT_OK) unlink(partial);
    free(partial);
    return status;
}
