/* One self-contained HTML page: style, light and dark mode, readable on a phone; no script, nothing from a network. */
#ifndef VT_REPORT_PAGE_H
#define VT_REPORT_PAGE_H

#include "base/status.h"
#include "base/text.h"

/* Everything up to the page's heading; the subtitle ends with the present time. Then the end, into a file. */
void vt_page_begin(vt_text *html, const char *title, const char *subtitle);
vt_status vt_page_write(vt_text *html, const char *path);

/* The text with its <, >, & and " escaped, between two pieces of HTML. */
void vt_page_append_text(vt_text *html, const char *before, const char *text, const char *after);

/* The PNG file as an embedded picture. */
vt_status vt_page_append_picture(vt_text *html, const char *path, const char *caption);

#endif
