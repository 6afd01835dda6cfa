#include "etude/integrations/tensorboard/event_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/crc.hpp>
#include <boost/endian/conversion.hpp>
#include <protozero/pbf_reader.hpp>
#include <system_error>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/io/mapped_file.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail::tensorboard {

namespace {

constexpr std::size_t crc_size = 4;
constexpr std::string_view file_prefix = "events.out.tfevents.";

unsigned char* bytes_of(std::string& record, std::size_t at) {
  return reinterpret_cast<unsigned char*>(record.data() + at);
}

/// Whether the checksum at the beginning of `rest` matches `bytes`.
bool is_crc_of(std::string_view bytes, std::string_view rest) {
  return boost::endian::load_little_u32(reinterpret_cast<const unsigned char*>(rest.data())) ==
         masked_crc(bytes);
}

}  // namespace

std::uint32_t masked_crc(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const auto plain = static_cast<std::uint32_t>(crc.checksum());
  return (plain >> 15 | plain << 17) + 0xa282ead8U;
}

void seal(std::string& record) {
  const auto end = record.size();
  boost::endian::store_little_u64(bytes_of(record, 0), end - header_size);
  boost::endian::store_little_u32(bytes_of(record, 8), masked_crc(std::string_view(record).substr(0, 8)));
  record.resize(end + crc_size);
  boost::endian::store_little_u32(
      bytes_of(record, end), masked_crc(std::string_view(record).substr(header_size, end - header_size)));
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error, ignored;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().filename().string().find("tfevents") != std::string::npos &&
        entry->is_regular_file(ignored))
      files.push_back(entry->path());
  std::ranges::sort(files, {}, [](const auto& file) { return file.filename().string(); });
  return files;
}

namespace {

/// The fields of an event that are needed here.
struct EventInfo {
  double time = 0;
  std::int64_t step = 0;
  bool has_summary = false;
  bool starts = false;  ///< a SessionLog START
};

EventInfo info_of(std::string_view data) {
  EventInfo info;
  protozero::pbf_reader event(data.data(), data.size());
  while (event.next()) {
    if (event.tag() == 1) {
      info.time = event.get_double();
    } else if (event.tag() == 2) {
      info.step = event.get_int64();
    } else if (event.tag() == 7) {
      auto session = event.get_message();
      info.starts = session.next(1) && session.get_enum() == 1;
    } else {
      info.has_summary |= event.tag() == 5;
      event.skip();
    }
  }
  return info;
}

}  // namespace

std::vector<std::string> records_from(const std::vector<std::filesystem::path>& files, std::int64_t step,
                                      double time) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const auto& path : files) try {
      const MappedFile file(path);
      auto rest = file.text();
      while (rest.size() >= header_size) {
        const auto size = boost::endian::load_little_u64(reinterpret_cast<const unsigned char*>(rest.data()));
        if (!is_crc_of(rest.substr(0, 8), rest.substr(8)) || size > rest.size() - header_size ||
            rest.size() - header_size - size < crc_size)
          break;
        const auto data = rest.substr(header_size, size);
        const auto record = rest.substr(0, header_size + size + crc_size);
        const auto info = info_of(data);
        if (info.starts) std::erase_if(found, [&](const auto& one) { return one.first >= info.step; });
        if (info.has_summary && info.step >= step && info.time <= time) {
          if (!is_crc_of(data, record.substr(header_size + size))) break;
          found.emplace_back(info.step, record);
        }
        rest.remove_prefix(record.size());
      }
    } catch (const protozero::exception&) {
    } catch (const Error&) {
    }
  std::vector<std::string> records;
  for (auto& [step_of_it, record] : found) records.push_back(std::move(record));
  return records;
}

namespace {

/// The time in seconds for a new file's name: later than in existing names, since TensorBoard orders files by
/// name only.
std::int64_t second_for(const std::filesystem::path& folder) {
  constexpr std::int64_t most = 9'999'999'999;
  auto second = unix_milliseconds() / 1000;
  for (const auto& file : event_files(folder)) {
    auto name = file.filename().string();
    if (!name.starts_with(file_prefix)) continue;
    name = name.substr(file_prefix.size());
    if (const auto other = read_number<std::int64_t>(name.substr(0, name.find('.'))); other && *other < most)
      second = std::max(second, *other + 1);
  }
  return second;
}

}  // namespace

AppendFile new_event_file(const std::filesystem::path& folder, std::filesystem::path& path) {
  static std::atomic<int> count = 0;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw ArgumentError(fmt::format("{} can't be created: {}", folder.string(), error.message()));
  path = folder /
         fmt::format("{}{:010}.{}.{}.{}", file_prefix, second_for(folder), host_name(), ::getpid(), count++);
  return AppendFile(path, 0666);
}

}  // namespace etude::inline v0::detail::tensorboard
