#include "report/page.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"

/* Colours by Okabe and Ito (jfly.uni-koeln.de/color), which colour-blind readers can tell apart; lighter in dark
 * mode. Of skill, blue is better, orange with hatching worse, so that they can be told apart without colours, too. */
static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1c1f24;--soft:#5d6570;--line:#e3e6ea;--box:#f6f7f9;--c0:#0067a6;"
    "--c1:#c75000;--c2:#007a5a;--c3:#a8447e;--c4:#8a6d00;--c5:#2a8fbd;--c6:#7b828c}"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e6e9ee;--soft:#9aa3af;--line:#2b3038;--box:#1c2027;"
    "--c0:#5ab4ee;--c1:#f0914d;--c2:#3fc79b;--c3:#e08fbd;--c4:#e3c94b;--c5:#8fd3f5;--c6:#8e96a1}}"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:75rem;padding:1rem;background:var(--bg);color:var(--fg);"
    "font:16px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;overflow-wrap:anywhere}"
    "h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.1rem;margin:2rem 0 .6rem}"
    "p.sub{color:var(--soft);margin:0 0 1rem}"
    ".cards{display:grid;gap:.6rem;grid-template-columns:repeat(auto-fit,minmax(8rem,1fr))}"
    ".card{background:var(--box);border-radius:.5rem;padding:.6rem .8rem}"
    ".card span{display:block;color:var(--soft);font-size:.8rem}"
    ".card b{font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums}"
    ".charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}"
    ".many{display:grid;gap:.6rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,15rem),1fr))}"
    "figure{margin:0;background:var(--box);border-radius:.5rem;padding:.7rem .8rem;min-width:0}"
    "figcaption{font-weight:600}small{color:var(--soft);font-weight:400}svg{display:block;width:100%;height:auto}"
    "svg text{fill:var(--soft);font-size:12px}.grid{stroke:var(--line)}.axis{stroke:var(--soft)}"
    "path{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}path.faint{opacity:.4;stroke-width:1.2}"
    "path.dashed{stroke-dasharray:6 5}circle{fill:currentColor}.c0{color:var(--c0)}.c1{color:var(--c1)}"
    ".c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}"
    ".legend{margin:.15rem 0 .3rem;font-size:.82rem}.legend span{white-space:nowrap;margin-right:.8rem}"
    "i{display:inline-block;width:.9rem;height:.22rem;border-radius:2px;background:currentColor;margin-right:.35rem;"
    "vertical-align:middle}i.dash{background:repeating-linear-gradient(90deg,currentColor 0 4px,transparent 4px 7px)}"
    "i.pale{opacity:.4}.whole{display:flex;height:1.5rem;border-radius:.3rem;overflow:hidden;margin:.5rem 0}"
    ".whole span{background:currentColor}.bars i{height:.7rem;width:.7rem}"
    "table{border-collapse:collapse;width:100%;font-size:.88rem}th,td{text-align:left;padding:.2rem .5rem .2rem 0;"
    "border-bottom:1px solid var(--line);vertical-align:top;font-weight:400}td{font-variant-numeric:tabular-nums}"
    ".bars th{color:var(--fg)}.bars td{color:var(--fg);text-align:right;width:1%;white-space:nowrap}"
    ".wide{overflow-x:auto}.wide th{font-weight:600}.wide td,.wide th+th{min-width:6rem}"
    ".wide th:first-child,.many th{overflow-wrap:normal}.many table{align-self:start}"
    "img{display:block;max-width:100%;height:auto;border-radius:.3rem;background:#fff}"
    "summary{cursor:pointer;font-weight:600;padding:.3rem 0}"
    ".scores td,.scores thead th{text-align:center;white-space:nowrap;border:2px solid var(--box);padding:.25rem .2rem}"
    ".wide .scores td,.wide .scores th+th{min-width:3.2rem}.cards-of-skill{display:grid;gap:.6rem}"
    ".scores td.worse{background-image:repeating-linear-gradient(135deg,transparent 0 5px,var(--soft) 5px 6px)}"
    ".scores td b{font-weight:600;background:var(--bg);border-radius:.2rem;padding:0 .15rem}"
    "@media(max-width:40rem){figure:not(.small) svg text{font-size:15px}}"
    "footer{color:var(--soft);font-size:.8rem;margin:2rem 0 1rem}";

void vt_page_append_text(vt_text *html, const char *before, const char *text, const char *after)
{
    vt_text_append(html, "%s", before);
    for (; *text != '\0'; text++) {
        const char *escape = *text == '<'   ? "&lt;"
                             : *text == '>' ? "&gt;"
                             : *text == '&' ? "&amp;"
                             : *text == '"' ? "&quot;"
                                            : NULL;
        if (escape != NULL)
            vt_text_append(html, "%s", escape);
        else
            vt_text_append(html, "%c", *text);
    }
    vt_text_append(html, "%s", after);
}

void vt_page_begin(vt_text *html, const char *title, const char *subtitle)
{
    char stamp[32];
    vt_clock_stamp(stamp);
    vt_text_append(html, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    vt_page_append_text(html, "<title>vitrain: ", title, "</title><style>");
    vt_text_append(html, "%s</style></head><body>\n", style);
    vt_page_append_text(html, "<h1>vitrain: ", title, "</h1>");
    vt_page_append_text(html, "<p class=\"sub\">", subtitle, "");
    vt_text_append(html, ", as of %.19s</p>\n", stamp);
}

vt_status vt_page_write(vt_text *html, const char *path)
{
    vt_text_append(html, "</body></html>\n");
    return vt_file_write(path, html->characters, html->length);
}

/* RFC 4648, section 4. */
static void append_base64(vt_text *html, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < count; i += 3) {
        const size_t there = count - i < 3 ? count - i : 3;
        uint32_t group = 0;
        char four[] = "====";
        for (size_t j = 0; j < 3; j++) group = group << 8 | (j < there ? bytes[i + j] : 0);
        for (size_t j = 0; j <= there; j++) four[j] = digits[group >> (18 - 6 * j) & 63];
        vt_text_append(html, "%s", four);
    }
}

vt_status vt_page_append_picture(vt_text *html, const char *path, const char *caption)
{
    enum { MOST_BYTES = 8 << 20 };
    vt_status status = VT_OK;
    int64_t size = 0;
    char *bytes = NULL;
    VT_TRY(vt_file_read(path, MOST_BYTES, &bytes, &size));
    vt_page_append_text(html, "<figure><figcaption>", caption, "</figcaption>");
    vt_page_append_text(html, "<img alt=\"", caption, "\" src=\"data:image/png;base64,");
    append_base64(html, (const uint8_t *)bytes, (size_t)size);
    vt_text_append(html, "\"></figure>\n");
done:
    free(bytes);
    return status;
}
