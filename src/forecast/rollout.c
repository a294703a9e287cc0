#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/whole.h"
#include "forecast/forecaster.h"
#include "storage/output_file.h"
#include "task/weather.h"
#include "task/weather/ensemble.h"

vt_status vt_states_open(vt_forecaster *f, const char *directory)
{
    vt_status status = VT_OK;
    const vt_config *config = f->members->config;
    const int64_t number = vt_members_number(f->members), models = config->data_parallel, count = f->from.count;
    const int64_t at_once = vt_trainer_micro_batch(config), most = at_once < number ? 1 : at_once / number;
    const int64_t batch = vt_quotient_up(count, vt_quotient_up(count, most * models) * models);
    f->plane = config->img_size[0] * config->img_size[1];
    f->in = config->n_in_channels * f->plane;
    f->out = config->n_out_channels * f->plane;
    f->number = number;
    f->batch = batch;
    const size_t places = (size_t)(number * batch), inputs = places * (size_t)f->in;
    const size_t all = (inputs + places * (size_t)f->out) * sizeof(float);
    f->noise_keys = vt_allocate(2 * places, sizeof *f->noise_keys, "the forecasts");
    f->mean = vt_allocate((size_t)f->out, sizeof *f->mean, "the forecasts");
    f->fields = vt_allocate((size_t)number, sizeof *f->fields, "the forecasts");
    if (number > at_once) {
        VT_TRY(vt_scratch_open(directory, all, &f->scratch));
        f->scratch_bytes = all;
    }
    f->input = f->scratch != NULL ? f->scratch : vt_allocate(all, 1, "the forecasts");
    f->forecast = f->input + inputs;
done:
    return status;
}

void vt_states_close(vt_forecaster *f)
{
    if (f->scratch == NULL) free(f->input);
    vt_scratch_close(&f->scratch, f->scratch_bytes);
    free(f->noise_keys);
    free(f->mean);
    free(f->fields);
}

/* ---- where they begin ---- */

/* Adds the noise (input_noise) of this member to the initial state that `start` names. */
static void perturb(const vt_forecaster *f, int64_t member, int64_t start, float *input)
{
    const vt_config *config = f->members->config;
    const vt_task *task = f->inference.task;
    float *stds = vt_allocate((size_t)task->field_count, sizeof *stds, "the forecasts");
    vt_weather_noise(task, stds);
    const vt_perturbation how = {.seed = (uint64_t)config->seed,
                                 .member = (uint32_t)member,
                                 .start = (uint32_t)start,
                                 .channels = config->n_in_channels,
                                 .height = config->img_size[0],
                                 .width = config->img_size[1],
                                 .period = vt_config_channels_a_time(config),
                                 .stds = stds};
    vt_ensemble_perturb(&how, input);
    free(stds);
}

int64_t vt_forecast_step(const vt_dataset *dataset)
{
    return vt_index_minutes(&dataset->index) * dataset->options.dt;
}

vt_date vt_forecast_date(const vt_dataset *dataset, int64_t sample, int64_t lead)
{
    vt_date date = {0};
    const bool known = vt_dataset_reaches(dataset, sample, lead);
    vt_dataset_date(dataset, sample, known ? lead : 0, &date);
    return known ? date : vt_date_after(date, lead * vt_forecast_step(dataset));
}

/* The initial time of a state. */
static int64_t sample_of(const vt_forecaster *f, int64_t state)
{
    return f->from.samples[f->first + state % f->count];
}

/* Copies the inputs of `count` initial times from number `first` on to all members, and adds noise to those that
 * vt_members_perturbs names. It depends on the member and on the date of the sample, or where that isn't known on the
 * sample's number. */
static vt_status begin(vt_forecaster *f, int64_t first, int64_t count)
{
    vt_status status = VT_OK;
    f->first = first;
    f->count = count;
    f->lead = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t sample = sample_of(f, i);
        float *read = f->input + i * f->in;
        vt_date date = {0};
        VT_TRY(vt_dataset_read(f->from.dataset, sample, read, NULL));
        const int64_t start = vt_dataset_date(f->from.dataset, sample, 0, &date) ? date.minutes : sample;
        for (int64_t m = f->number - 1; m >= 0; m--) { /* the first last: the others are copies of it */
            float *input = read + m * count * f->in;
            uint32_t *keys = f->noise_keys + 2 * (m * count + i);
            if (m > 0) memcpy(input, read, (size_t)f->in * sizeof *input);
            if (vt_members_perturbs(f->members, m)) perturb(f, m, start, input);
            keys[0] = (uint32_t)m;
            keys[1] = (uint32_t)start;
        }
    }
done:
    return status;
}

/* ---- a step ---- */

/* The forcings of `count` states, from number `first` on, at their newest time: into f->forcings. */
static vt_status take_forcings(vt_forecaster *f, int64_t first, int64_t count)
{
    vt_status status = VT_OK;
    vt_dataset *dataset = f->from.dataset;
    const vt_known_fields *known = dataset->known;
    const int64_t each = vt_config_forcing_channels(f->members->config) * f->plane;
    const int64_t own = dataset->options.forcing_channels * f->plane;
    for (int64_t i = 0; i < count && each > 0; i++) {
        float *fields = f->forcings + i * each, *of_files = fields + each - own;
        const int64_t sample = sample_of(f, first + i);
        const vt_date date = vt_forecast_date(dataset, sample, f->lead);
        if (known != NULL) vt_known_fields_take(known, date, false, fields);
        const int64_t given = f->given != NULL ? vt_dataset_find(f->given, date, 0) : -1;
        if (given >= 0)
            VT_TRY(vt_dataset_read(f->given, given, of_files, NULL));
        else if (own > 0)
            VT_TRY(vt_dataset_read_forcings(dataset, sample, f->lead, of_files));
    }
done:
    return status;
}

/* The older times of an input move one place back, and those channels of the forecast that the input has become its
 * newest time. A model that forecasts fewer channels than it sees makes one step only: nothing moves. */
static void shift(const vt_forecaster *f, const float *forecast, float *input)
{
    const int64_t now = f->in / (f->members->config->n_history + 1);
    if (f->out < now) return;
    memmove(input + now, input, (size_t)(f->in - now) * sizeof *input);
    for (int64_t point = 0; point < now; point++)
        if (!isnan(input[point])) input[point] = forecast[point];
}

/* `count` more forecasts of one step are made. */
static void tell(vt_forecaster *f, int64_t count)
{
    enum { SECONDS = 30 };
    f->made += count;
    if (vt_clock_seconds() - f->told < SECONDS) return;
    vt_log_info("%.3g %% of %ld forecasts", 100 * (double)f->made / (double)f->planned, f->planned);
    f->told = vt_clock_seconds();
}

/* Collective over the stages of a model: the next forecast of `count` states, at most a micro-batch, from number
 * `first` on, as the model sees it: transformed, values or departures. */
static vt_status predict(vt_forecaster *f, int64_t first, int64_t count)
{
    vt_status status = VT_OK;
    float *fields = f->forecast + first * f->out;
    VT_TRY(take_forcings(f, first, count));
    const vt_batch batch = {.sample_count = count,
                            .global_count = count,
                            .lead = f->lead,
                            .tensors = {f->input + first * f->in, NULL, f->forcings},
                            .noise_keys = f->noise_keys + 2 * first};
    VT_TRY(vt_step_predict(f->inference.trainer, &batch, fields));
    vt_group_broadcast(f->stages, fields, (size_t)(count * f->out) * sizeof *fields, f->stages->size - 1);
    tell(f, count);
done:
    return status;
}

/* The next forecast of each state, which is then also the newest time of that state's input. */
static vt_status step(vt_forecaster *f)
{
    vt_status status = VT_OK;
    const vt_config *config = f->members->config;
    const vt_dataset *dataset = f->from.dataset;
    const int64_t most = vt_trainer_micro_batch(config), all = f->number * f->count;
    const int64_t each = f->number / f->members->model_count * f->count; /* of one checkpoint */
    for (int64_t first = 0, count = 0; first < all; first += count) {
        count = vt_smaller(each - first % each, most);
        vt_forecaster_choose(f, first / each);
        VT_TRY(predict(f, first, count));
    }
    f->lead++;
    const vt_seasonal *seasonal = dataset->seasonal;
    for (int64_t i = 0; i < all; i++) {
        float *forecast = f->forecast + i * f->out;
        shift(f, forecast, f->input + i * f->in);
        if (seasonal != NULL) {
            const vt_date before = vt_forecast_date(dataset, sample_of(f, i), f->lead - 1);
            const vt_date date = vt_date_after(before, vt_forecast_step(dataset));
            VT_TRY(vt_seasonal_check(seasonal, date));
            vt_seasonal_add(seasonal, date, 1, 0, config->n_out_channels, forecast);
        }
        vt_weather_restore(f->inference.task, forecast);
    }
done:
    return status;
}

/* ---- all of it ---- */

vt_status vt_forecast_all(vt_forecaster *f, int64_t leads, vt_status (*take)(void *context), void *context)
{
    vt_status status = VT_OK;
    vt_world *world = f->inference.world;
    const int64_t count = f->from.count, batch = f->batch, most = batch * f->members->config->data_parallel;
    const int64_t rounds = vt_quotient_up(count, most), own = world->coordinate[VT_AXIS_DATA] * batch;
    f->planned = vt_smaller(rounds * batch, count) * leads * f->number;
    f->made = 0;
    f->told = vt_clock_seconds();
    for (int64_t begun = 0; begun < count; begun += f->together) {
        f->together = vt_smaller(most, count - begun);
        const int64_t before = vt_smaller(own, f->together);
        VT_TRY(vt_world_agree(world, begin(f, begun + before, vt_smaller(batch, f->together - before))));
        for (int64_t lead = 0; lead < leads; lead++) {
            VT_TRY(vt_world_agree(world, step(f)));
            VT_TRY(take(context));
        }
    }
done:
    return status;
}

const float *vt_forecast_mean(vt_forecaster *f, int64_t i)
{
    for (int64_t m = 0; m < f->number; m++) f->fields[m] = f->forecast + (m * f->count + i) * f->out;
    if (f->number == 1) return f->fields[0];
    vt_ensemble_mean(f->number, f->fields, f->out, f->mean);
    return f->mean;
}
