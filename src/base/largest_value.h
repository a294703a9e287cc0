/* Numbers of data beyond ±1e30 are no data, but what programs write where they have none (netCDF's 9.97e36, 1e35, …).
 */
#ifndef VT_BASE_LARGEST_VALUE_H
#define VT_BASE_LARGEST_VALUE_H

#define VT_LARGEST_VALUE 1e30f

#endif
