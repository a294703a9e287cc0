/* The twenty channels of the synthetic atmosphere: what a wave makes of each (vertical structure, balance), and what
 * does not vary with longitude (zonal flow in thermal wind balance, seasons). Formulas in docs/data.md. */
#ifndef VT_SOURCE_SYNTHETIC_CLIMATE_H
#define VT_SOURCE_SYNTHETIC_CLIMATE_H

#include <complex.h>

typedef enum {
    VT_WIND_EAST,
    VT_WIND_NORTH,
    VT_TEMPERATURE,
    VT_GEOPOTENTIAL,
    VT_PRESSURE,
    VT_HUMIDITY,
    VT_WATER
} vt_quantity;

typedef struct {
    const char *name;
    vt_quantity quantity;
    double pressure;  /* hPa */
    double reference; /* at the equator, without waves */
    double spread;    /* about the standard deviation, which the noise is a part of */
} vt_climate_channel;

enum { VT_CLIMATE_CHANNELS = 20 };

/* u10 v10 t2m sp msl t850 u1000 v1000 z1000 u850 v850 z850 u500 v500 z500 t500 z50 r500 r850 tcwv: the order of the
 * tutorials' data set. Winds m/s, temperatures K, pressures Pa, geopotentials m^2/s^2, humidities %, water kg/m^2. */
extern const vt_climate_channel vt_climate_channels[VT_CLIMATE_CHANNELS];

/* What a wave's profile (of the quantity: the wind's for winds, the geopotential's for all others) is multiplied by;
 * the argument is a phase. 0 for water, which follows from others. */
complex double vt_climate_response(const vt_climate_channel *channel, int order);

/* The value without waves at a latitude (radians), `days` after a first of January. */
double vt_climate_zonal_value(const vt_climate_channel *channel, double latitude, double days);

/* 1 in northern winter, -1 in summer. */
double vt_climate_winter(double days);

#endif
