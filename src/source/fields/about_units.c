/* Units by UDUNITS-2, the library of the CF conventions (docs.unidata.ucar.edu/udunits). */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "source/fields/about.h"

#ifdef VT_HAS_UDUNITS
#include <udunits2.h>

static ut_system *known_units;

static void read_known_units(void)
{
    ut_set_error_message_handler(ut_ignore);
    known_units = ut_read_xml(NULL); /* NULL without its tables: then texts are compared */
}

/* Same dimension, factor and offset: 0 and 1 of one are 0 and 1 of the other. */
static bool mean_the_same(const char *one, const char *other)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_known_units);
    if (known_units == NULL) return false;
    ut_unit *a = ut_parse(known_units, one, UT_UTF8), *b = ut_parse(known_units, other, UT_UTF8);
    bool same = false;
    if (a != NULL && b != NULL && ut_are_convertible(a, b)) {
        cv_converter *converter = ut_get_converter(a, b);
        same = converter != NULL && fabs(cv_convert_double(converter, 0)) < 1e-12 &&
               fabs(cv_convert_double(converter, 1) - 1) < 1e-12;
        cv_free(converter);
    }
    ut_free(a);
    ut_free(b);
    return same;
}

#else

static bool mean_the_same(const char *one, const char *other)
{
    (void)one;
    (void)other;
    return false;
}

#endif

bool vt_units_agree(const char *one, const char *other)
{
    return strcmp(one, other) == 0 || mean_the_same(one, other);
}
