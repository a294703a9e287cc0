#include "source/synthetic/atmosphere.h"

#include <math.h>

#define GAS_CONSTANT 287.0  /* of dry air, J/(kg K) */
#define SURFACE_DENSITY 1.2 /* kg/m^3 */
#define TILT 0.6            /* phase that a wave gains, westward, in a scale height */

/* In the order of the tutorials' data set. */
const vt_climate_channel vt_climate_channels[VT_CLIMATE_CHANNELS] = {
    {"u10", VT_WIND_EAST, 1010, 0, 5},           {"v10", VT_WIND_NORTH, 1010, 0, 5},
    {"t2m", VT_TEMPERATURE, 1010, 301, 18},      {"sp", VT_PRESSURE, 1000, 101200, 6000},
    {"msl", VT_PRESSURE, 1000, 101200, 700},     {"t850", VT_TEMPERATURE, 850, 291, 14},
    {"u1000", VT_WIND_EAST, 1000, 0, 5},         {"v1000", VT_WIND_NORTH, 1000, 0, 5},
    {"z1000", VT_GEOPOTENTIAL, 1000, 1000, 700}, {"u850", VT_WIND_EAST, 850, 0, 7},
    {"v850", VT_WIND_NORTH, 850, 0, 6},          {"z850", VT_GEOPOTENTIAL, 850, 14900, 1300},
    {"u500", VT_WIND_EAST, 500, 0, 10},          {"v500", VT_WIND_NORTH, 500, 0, 9},
    {"z500", VT_GEOPOTENTIAL, 500, 57600, 3000}, {"t500", VT_TEMPERATURE, 500, 268, 8},
    {"z50", VT_GEOPOTENTIAL, 50, 203000, 4500},  {"r500", VT_HUMIDITY, 500, 45, 15},
    {"r850", VT_HUMIDITY, 850, 65, 15},          {"tcwv", VT_WATER, 850, 30, 15},
};

/* ---- the waves' vertical structure: amplitude s(eta) exp(i tilt eta), eta = -ln(p / 1000 hPa) ---- */

static double scale_heights(double pressure)
{
    return -log(pressure / 1000);
}

/* Grows with height in the troposphere; short waves don't reach the stratosphere (Charney and Drazin, 1961). */
static complex double wave_structure(int order, double eta)
{
    return (0.5 + 0.75 * eta) * exp(-0.05 * order * eta * eta) * cexp(I * TILT * eta);
}

/* Derivative by eta: through the hydrostatic equation, d Phi = R T d eta, that of the geopotential is temperature. */
static complex double wave_structure_slope(int order, double eta)
{
    double relative = 0.75 / (0.5 + 0.75 * eta) - 0.1 * order * eta;
    return wave_structure(order, eta) * (relative + I * TILT);
}

complex double vt_climate_response(const vt_climate_channel *channel, int order)
{
    const double eta = scale_heights(channel->pressure);
    const complex double geopotential = wave_structure(order, eta);
    const complex double temperature = wave_structure_slope(order, eta) / GAS_CONSTANT;
    const double friction = channel->pressure > 1000 ? 0.75 : 1;
    switch (channel->quantity) {
    case VT_WIND_EAST:
        return friction * geopotential;
    case VT_WIND_NORTH:
        return friction * I * geopotential;
    case VT_TEMPERATURE:
        return temperature;
    case VT_GEOPOTENTIAL:
        return geopotential;
    case VT_PRESSURE:
        return SURFACE_DENSITY * geopotential;
    /* lows are moist, and cold air is nearer to saturation */
    case VT_HUMIDITY:
        return -0.02 * geopotential - 1.5 * temperature;
    case VT_WATER:
        return 0;
    }
    return 0;
}

/* ---- what doesn't vary with longitude ---- */

/* Zonal wind at the equator, m/s, and its derivative by eta; the wind goes with the cosine of latitude. */
static double zonal_wind(double eta)
{
    return 1 + 22 * (1 - exp(-1.2 * eta));
}

static double zonal_wind_slope(double eta)
{
    return 22 * 1.2 * exp(-1.2 * eta);
}

double vt_climate_winter(double days)
{
    return cos(2 * M_PI * (days - 15) / 365);
}

/* A solid-body wind U cos(latitude) is in gradient balance with Phi = -U (a Omega + U / 2) sin^2(latitude), whose slope
 * is the temperature (thermal wind). */
double vt_climate_zonal_value(const vt_climate_channel *channel, double latitude, double days)
{
    const double eta = scale_heights(channel->pressure);
    const double equator = VT_EARTH_RADIUS * VT_EARTH_ROTATION, wind = zonal_wind(eta);
    const double sine = sin(latitude), sine2 = sine * sine;
    const double tropics = exp(-latitude * latitude / 0.05);
    switch (channel->quantity) {
    case VT_WIND_EAST:
        return wind * cos(latitude) * (channel->pressure > 1000 ? 0.75 : 1);
    case VT_WIND_NORTH:
        return 0;
    case VT_TEMPERATURE:
        return channel->reference - zonal_wind_slope(eta) * (equator + wind) / GAS_CONSTANT * sine2 -
               8 * sine * vt_climate_winter(days);
    case VT_GEOPOTENTIAL:
        return channel->reference - wind * (equator + wind / 2) * sine2;
    case VT_PRESSURE:
        return channel->reference - SURFACE_DENSITY * wind * (equator + wind / 2) * sine2;
    case VT_HUMIDITY:
        return channel->reference + 15 * tropics - 10 * sin(2 * latitude) * sin(2 * latitude) + 10 * sine2;
    case VT_WATER:
        return 0;
    }
    return 0;
}
