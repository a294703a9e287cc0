#include "forecast/states.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/whole.h"
#include "report/progress.h"
#include "storage/output_file.h"
#include "task/weather.h"
#include "task/weather/ensemble.h"

static int64_t input_size(const vt_config *config)
{
    return config->n_in_channels * config->img_size[0] * config->img_size[1];
}

static int64_t field_size(const vt_config *config)
{
    return config->n_out_channels * config->img_size[0] * config->img_size[1];
}

vt_status vt_states_open(const vt_members *members, vt_world *world, vt_forecaster *forecaster, vt_dataset *dataset,
                         int64_t count, const char *directory, vt_states *states)
{
    vt_status status = VT_OK;
    const vt_config *config = members->config;
    const int64_t number = vt_members_number(members), models = config->data_parallel;
    const int64_t at_once = vt_forecaster_batch(forecaster), most = at_once < number ? 1 : at_once / number;
    const int64_t batch = vt_quotient_up(count, vt_quotient_up(count, most * models) * models);
    const size_t places = (size_t)(number * batch), out = (size_t)field_size(config);
    const size_t inputs = places * (size_t)input_size(config), all = (inputs + places * out) * sizeof(float);
    *states = (vt_states){.members = members,
                          .forecaster = forecaster,
                          .config = config,
                          .dataset = dataset,
                          .world = world,
                          .number = number,
                          .batch = batch};
    states->starts = vt_allocate(places, sizeof *states->starts, "the forecasts");
    states->noise_keys = vt_allocate(2 * places, sizeof *states->noise_keys, "the forecasts");
    states->mean = vt_allocate(out, sizeof *states->mean, "the forecasts");
    states->fields = vt_allocate((size_t)number, sizeof *states->fields, "the forecasts");
    if (number > at_once) {
        VT_TRY(vt_scratch_open(directory, all, &states->scratch));
        states->scratch_bytes = all;
    }
    states->input = states->scratch != NULL ? states->scratch : vt_allocate(all, 1, "the forecasts");
    states->forecast = states->input + inputs;
    states->told = vt_clock_seconds();
done:
    return status;
}

void vt_states_close(vt_states *states)
{
    if (states->scratch == NULL) free(states->input);
    vt_scratch_close(&states->scratch, states->scratch_bytes);
    free(states->starts);
    free(states->noise_keys);
    free(states->mean);
    free(states->fields);
    *states = (vt_states){0};
}

/* Adds the noise (input_noise) of this member to the initial state that `start` names. */
static void perturb(const vt_states *states, int64_t member, int64_t start, float *input)
{
    const vt_config *config = states->config;
    const vt_task *task = vt_forecaster_task(states->forecaster);
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

/* From one forecast to the next (calendar.h). */
static int64_t step_of(const vt_dataset *dataset)
{
    return vt_dataset_minutes_a_time(dataset) * vt_dataset_options_of(dataset)->dt;
}

vt_date vt_states_date(const vt_dataset *dataset, int64_t sample, int64_t lead)
{
    vt_date date = {0};
    const bool known = vt_dataset_reaches(dataset, sample, lead);
    vt_dataset_date(dataset, sample, known ? lead : 0, &date);
    return known ? date : vt_date_after(date, lead * step_of(dataset));
}

/* Copies the inputs of these samples to all members, and adds noise to those that vt_members_perturbs names. It depends
 * on the member and on the date of the sample, or where that isn't known on the sample's number. */
static vt_status begin(vt_states *states, const int64_t *samples, int64_t count)
{
    vt_status status = VT_OK;
    const int64_t in = input_size(states->config);
    states->count = count;
    states->lead = 0;
    for (int64_t i = 0; i < states->number * count; i++) states->starts[i] = samples[i % count];
    for (int64_t i = 0; i < count; i++) {
        float *first = states->input + i * in;
        vt_date date = {0};
        VT_TRY(vt_dataset_read(states->dataset, samples[i], first, NULL));
        const int64_t start = vt_dataset_date(states->dataset, samples[i], 0, &date) ? date.minutes : samples[i];
        for (int64_t m = states->number - 1; m >= 0; m--) { /* the first last: the others are copies of it */
            float *input = first + m * count * in;
            uint32_t *keys = states->noise_keys + 2 * (m * count + i);
            if (m > 0) memcpy(input, first, (size_t)in * sizeof *input);
            if (vt_members_perturbs(states->members, m)) perturb(states, m, start, input);
            keys[0] = (uint32_t)m;
            keys[1] = (uint32_t)start;
        }
    }
done:
    return status;
}

/* The older times of an input move one place back, and those channels of the forecast that the input has become its
 * newest time. A model that forecasts fewer channels than it sees makes one step only: nothing moves. */
static void shift(const vt_states *states, const float *forecast, float *input)
{
    const int64_t in = input_size(states->config), now = in / (states->config->n_history + 1);
    if (field_size(states->config) < now) return;
    memmove(input + now, input, (size_t)(in - now) * sizeof *input);
    for (int64_t point = 0; point < now; point++)
        if (!isnan(input[point])) input[point] = forecast[point];
}

/* `count` more forecasts of one step are made. */
static void tell(vt_states *states, int64_t count)
{
    enum { SECONDS = 30 };
    states->made += count;
    if (states->planned == 0 || vt_clock_seconds() - states->told < SECONDS) return;
    vt_log_info("%.3g %% of %lld forecasts", 100 * (double)states->made / (double)states->planned,
                (long long)states->planned);
    states->told = vt_clock_seconds();
}

/* The next forecast of each state, which is then also the newest time of that state's input: there as the model sees
 * it, transformed, values or departures. */
static vt_status step(vt_states *states)
{
    vt_status status = VT_OK;
    const int64_t in = input_size(states->config), out = field_size(states->config);
    const int64_t most = vt_forecaster_batch(states->forecaster), all = states->number * states->count;
    const int64_t each = vt_members_of_each(states->members) * states->count; /* of one checkpoint */
    for (int64_t first = 0, count = 0; first < all; first += count) {
        const int64_t left = each - first % each;
        count = left < most ? left : most;
        vt_forecaster_choose(states->forecaster, first / each);
        VT_TRY(vt_forecaster_step(states->forecaster, states->dataset, states->input + first * in,
                                  states->starts + first, states->noise_keys + 2 * first, states->lead, count,
                                  states->forecast + first * out));
        tell(states, count);
    }
    states->lead++;
    const vt_seasonal *seasonal = vt_dataset_climatology(states->dataset);
    const int64_t length = step_of(states->dataset);
    for (int64_t i = 0; i < all; i++) {
        float *forecast = states->forecast + i * out;
        shift(states, forecast, states->input + i * in);
        if (seasonal != NULL) {
            const vt_date date =
                vt_date_after(vt_states_date(states->dataset, states->starts[i], states->lead - 1), length);
            VT_TRY(vt_seasonal_check(seasonal, date));
            vt_seasonal_add(seasonal, date, 1, 0, states->config->n_out_channels, forecast);
        }
        vt_weather_restore(vt_forecaster_task(states->forecaster), forecast);
    }
done:
    return status;
}

vt_status vt_states_forecast_all(vt_states *states, const int64_t *samples, int64_t count, int64_t leads,
                                 vt_status (*take)(void *context, int64_t first), void *context)
{
    vt_status status = VT_OK;
    vt_world *world = states->world;
    const int64_t batch = states->batch, most = batch * states->config->data_parallel;
    const int64_t rounds = vt_quotient_up(count, most), own = world->coordinate[VT_AXIS_DATA] * batch;
    const bool shows = rounds > 1 && world->rank == 0 && vt_progress_is_seen(STDERR_FILENO);
    if (!shows) states->planned = vt_smaller(rounds * batch, count) * leads * states->number;
    for (int64_t begun = 0; begun < count; begun += states->together) {
        states->together = vt_smaller(most, count - begun);
        const int64_t before = vt_smaller(own, states->together), first = begun + before;
        VT_TRY(vt_world_agree(world, begin(states, samples + first, vt_smaller(batch, states->together - before))));
        for (int64_t lead = 0; lead < leads; lead++) {
            VT_TRY(vt_world_agree(world, step(states)));
            VT_TRY(take(context, first));
        }
        if (shows)
            fprintf(stderr, "\r%lld/%lld initial times ", (long long)(begun + states->together), (long long)count);
    }
    if (shows) fprintf(stderr, "\r\033[K");
done:
    return status;
}

const float *vt_states_forecast(vt_states *states, int64_t i)
{
    const int64_t out = field_size(states->config);
    for (int64_t m = 0; m < states->number; m++) states->fields[m] = states->forecast + (m * states->count + i) * out;
    if (states->number == 1) return states->fields[0];
    vt_ensemble_mean(states->number, states->fields, out, states->mean);
    return states->mean;
}

void vt_states_leave_out_missing(const vt_states *states)
{
    const vt_config *config = states->config;
    const int64_t plane = config->img_size[0] * config->img_size[1];
    const int64_t now = vt_config_channels_a_time(config) * plane, out = config->n_out_channels * plane;
    for (int64_t state = 0; state < states->number * states->count; state++) {
        const float *input = states->input + state * config->n_in_channels * plane;
        for (int64_t i = 0; i < now && i < out; i++)
            if (isnan(input[i])) states->forecast[state * out + i] = NAN;
    }
}
