/* One self-contained HTML page: style, light and dark mode, readable on a phone; no script, nothing from a network. */
#ifndef VT_REPORT_PAGE_H
#define VT_REPORT_PAGE_H

#include "base/status.h"
#include "base/text.h"

/* Everything up to the page's heading; refresh: seconds after which a browser reloads it, 0: never. */
void vt_page_begin(vt_text *html, const char *title, const char *subtitle, int refresh);
void vt_page_end(vt_text *html);

void vt_page_append_escaped(vt_text *html, const char *text);

/* A box with a large value and a small name; detail may be NULL. */
void vt_page_append_card(vt_text *html, const char *name, const char *value, const char *detail);

/* The PNG file as an embedded picture. */
vt_status vt_page_append_picture(vt_text *html, const char *path, const char *caption);

/* Writes the page to a file, completely or not at all. */
vt_status vt_page_write(const vt_text *html, const char *path);

#endif
