#include "etude/integrations/wandb/transaction_log.hpp"

#include <algorithm>
#include <boost/crc.hpp>
#include <cstddef>
#include <string>

namespace etude::inline v0::detail {
namespace wandb_log {

using namespace std::string_view_literals;

namespace {

constexpr std::size_t block_size = 32768, chunk_header_size = 7;
constexpr auto file_header = ":W&B\xE1\xBE\0"sv;

void add_little_endian(std::string& out, std::uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

}  // namespace

}  // namespace wandb_log

std::string wandb_framed(std::string_view record, std::int64_t offset) {
  using namespace wandb_log;
  enum : unsigned char { full = 1, first = 2, middle = 3, last = 4 };
  std::string out;
  for (bool begun = false, ended = false; !ended; begun = true) {
    auto left = block_size - (static_cast<std::size_t>(offset) + out.size()) % block_size;
    if (left < chunk_header_size) {
      out.append(left, '\0');
      left = block_size;
    }
    const auto part = record.substr(0, left - chunk_header_size);
    record.remove_prefix(part.size());
    ended = record.empty();
    const auto type = static_cast<char>(begun ? ended ? last : middle : ended ? full : first);
    boost::crc_32_type crc;
    crc.process_byte(static_cast<unsigned char>(type));
    crc.process_bytes(part.data(), part.size());
    add_little_endian(out, crc.checksum(), 4);
    add_little_endian(out, static_cast<std::uint32_t>(part.size()), 2);
    out += type;
    out += part;
  }
  return out;
}

WandbLog::WandbLog(const std::filesystem::path& path) : file_(path, 0644) {
  file_.append(wandb_log::file_header);
}

bool WandbLog::append(std::string_view record) noexcept {
  // Without the file's header nothing after it could be read.
  if (!file_ || (file_.size() == 0 && !file_.append(wandb_log::file_header))) return false;
  try {
    return file_.append(wandb_framed(record, file_.size()));
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace etude::inline v0::detail
