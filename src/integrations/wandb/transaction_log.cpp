#include "etude/integrations/wandb/transaction_log.hpp"

#include <array>
#include <boost/crc.hpp>
#include <boost/endian/conversion.hpp>
#include <cstddef>

namespace etude::inline v0::detail {
namespace wandb_log {

using namespace std::string_view_literals;

namespace {

constexpr std::size_t block_size = 32768, chunk_header_size = 7;
constexpr auto file_header = ":W&B\xE1\xBE\0"sv;

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
    const auto type = begun ? ended ? last : middle : ended ? full : first;
    boost::crc_32_type crc;
    crc.process_byte(type);
    crc.process_bytes(part.data(), part.size());
    std::array<unsigned char, chunk_header_size> header{};
    boost::endian::store_little_u32(&header[0], crc.checksum());
    boost::endian::store_little_u16(&header[4], static_cast<std::uint16_t>(part.size()));
    header[6] = type;
    out.append(header.begin(), header.end());
    out += part;
  }
  return out;
}

WandbLog::WandbLog(const std::filesystem::path& path) : file_(path, 0644) {
  file_.append(wandb_log::file_header);
}

bool WandbLog::append(std::string_view record) noexcept {
  // Without the file's header, nothing after it could be read.
  if (!file_ || (file_.size() == 0 && !file_.append(wandb_log::file_header))) return false;
  try {
    return file_.append(wandb_framed(record, file_.size()));
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace etude::inline v0::detail
