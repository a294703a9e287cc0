/* vitrain(1), made from the tables of subcommands, of their flags and of options. */
#ifndef VT_COMMAND_MAN_PAGE_H
#define VT_COMMAND_MAN_PAGE_H

#include <stdio.h>

/* In troff, with the man macros. Its date is today's, or SOURCE_DATE_EPOCH's for reproducible packages. */
void vt_man_page_print(FILE *file);

#endif
