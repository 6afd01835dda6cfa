#include "etude/loop/activity_trace.hpp"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

namespace etude::inline v0 {

void ActivityTrace::save(FileSystem& files, const std::filesystem::path& path, std::int64_t rank) const {
  using Microseconds = std::chrono::duration<double, std::micro>;
  detail::write_atomically(files, path, [&](OutputFile& file) {
    std::string text = fmt::format(
        R"({{"displayTimeUnit":"ms","otherData":{{"slices_left_out":{}}},"traceEvents":[)"
        "\n"
        R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{{"name":"training, rank {}"}}}})",
        left_out_, rank, rank);
    const auto flush = [&] {
      file.write(std::as_bytes(std::span(text)));
      text.clear();
    };
    constexpr std::size_t chunk = 1 << 20;
    for (const auto& slice : slices_) {
      const auto name =
          slice.number < 0 ? std::string(slice.name) : fmt::format("{} {}", slice.name, slice.number);
      fmt::format_to(std::back_inserter(text),
                     ",\n"
                     R"({{"ph":"X","name":{},"cat":"{}","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":0}})",
                     nlohmann::json(name).dump(), slice.category, Microseconds(slice.begin - start_).count(),
                     Microseconds(slice.end - slice.begin).count(), rank);
      if (text.size() > chunk) flush();
    }
    text += "\n]}\n";
    flush();
  });
}

void ActivityTrace::add(std::string_view name, std::string_view category, std::int64_t number,
                        Clock::time_point begin) {
  if (slices_.size() < most_)
    slices_.push_back({name, category, number, begin, Clock::now()});
  else
    ++left_out_;
}

}  // namespace etude::inline v0
