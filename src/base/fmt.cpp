#include <fmt/format.h>

// The library contains fmt, in the version whose headers are found: LibTorch's wheel has headers without a
// library. Its functions are weak, so that a program may link fmt's own library as well.
#ifndef FMT_HEADER_ONLY
#undef FMT_FUNC
#define FMT_FUNC __attribute__((weak))
#include <fmt/format-inl.h>

#include <locale>

FMT_BEGIN_NAMESPACE
#if FMT_VERSION >= 120000 && FMT_USE_LOCALE
template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;
#endif
namespace detail {
#if FMT_VERSION < 120000
template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;
#endif
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template thousands_sep_result<wchar_t> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template wchar_t decimal_point_impl(locale_ref);
}  // namespace detail
FMT_END_NAMESPACE
#endif
