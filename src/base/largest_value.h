/* Values beyond ±1e30 are not data but fill values (netCDF's 9.97e36, 1e35, …). */
#ifndef VT_BASE_LARGEST_VALUE_H
#define VT_BASE_LARGEST_VALUE_H

#define VT_LARGEST_VALUE 1e30f

#endif
