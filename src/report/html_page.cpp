#include "etude/report/html_page.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "etude/io/file_system.hpp"
#include "etude/report/page_text.hpp"

namespace etude::inline v0::detail {

namespace {

/// The colours of all pages. Scales use viridis, ordered so that better values stand out more on a light and
/// on a dark background.
constexpr std::string_view page_light =
    "--ground:#fff;--card:#f5f7f9;--ink:#1b1f24;--soft:#57606a;--grid:#dde2e7;--chosen:#d55e00;"
    "--v0:#b9dd4f;--v1:#8fd04b;--v2:#55bf6b;--v3:#2fac7f;--v4:#1f978b;--v5:#25838e;--v6:#2e6f8e;--v7:#3a548c;"
    "--v8:#463480;--v9:#440154;";
constexpr std::string_view page_dark =
    "--ground:#0f1318;--card:#181e25;--ink:#e6edf3;--soft:#a3adb8;--grid:#2b323a;--chosen:#ff8c42;"
    "--v0:#3d4d8a;--v1:#365d8d;--v2:#2e6f8e;--v3:#25838e;--v4:#1f978b;--v5:#35b779;--v6:#6ece58;--v7:#a5db36;"
    "--v8:#d2e21b;--v9:#fde725;";
constexpr std::string_view page_style = R"(
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem 1.25rem 6rem;max-width:1240px;background:var(--ground);color:var(--ink);
font:16px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:1.6rem;margin:.2rem 0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:0 0 .6rem}h3{font-size:.95rem;margin:.8rem 0 .3rem;color:var(--soft);font-weight:600}
p{margin:.3rem 0}.note,.lead{color:var(--soft);font-size:.9rem}
section{background:var(--card);border-radius:10px;padding:1rem;margin:1rem 0;min-width:0}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(11.5rem,44%),1fr));gap:.5rem 1.2rem;margin:.6rem 0 0}
dt{color:var(--soft);font-size:.85rem;overflow-wrap:anywhere}dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
)";

}  // namespace

std::string html_text_of(const HtmlPage& page) {
  const auto nonce = random_name();
  const auto title = html_text(cut_text(page.title, 200));
  const auto dark = fmt::format("color-scheme:dark;{}{}", page_dark, page.dark);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "img-src data:; media-src data:; script-src 'nonce-{0}'\">\n<title>{1}</title>\n"
      "<style>\n:root{{color-scheme:light;{2}{3}}}\n"
      "@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{4}}}}}\n"
      ":root[data-theme=dark]{{{4}}}{5}{6}</style>\n</head>\n<body>\n{7}"
      "<script nonce=\"{0}\">{8}</script>\n</body>\n</html>\n",
      nonce, title, page_light, page.light, dark, page_style, page.style, page.body, page.script);
}

}  // namespace etude::inline v0::detail
