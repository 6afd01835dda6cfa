#include "etude/formats/zip_archive.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace etude::inline v0 {

ZipArchive::ZipArchive(const std::filesystem::path& path) : name_(path.string()) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw fault(error ? "can't be opened: " + error.message() : "it isn't a file");
  }
  file_size_ = std::filesystem::file_size(path, error);
  if (error) throw fault("its size can't be read: " + error.message());
  ErrorCode code;
  open(zip_source_file_create(path.c_str(), 0, -1, &code.error), code);
}

ZipArchive::ZipArchive(std::string_view bytes, std::string name)
    : name_(std::move(name)), file_size_(bytes.size()) {
  ErrorCode code;
  open(zip_source_buffer_create(bytes.data(), bytes.size(), /*freep=*/0, &code.error), code);
}

const ZipArchive::Entry* ZipArchive::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

void ZipArchive::read(const Entry& entry, void* to) const {
  struct Close {
    void operator()(zip_file_t* file) const { zip_fclose(file); }
  };
  const std::unique_ptr<zip_file_t, Close> file(zip_fopen_index(archive_.get(), entry.index, 0));
  if (!file) throw fault(entry_fault(entry, zip_strerror(archive_.get())));
  const auto damaged = [&] { return fault(entry_fault(entry, zip_file_strerror(file.get()))); };
  auto* bytes = static_cast<char*>(to);
  for (auto left = entry.size; left > 0;) {
    const auto read = zip_fread(file.get(), bytes, left);
    if (read < 0) throw damaged();
    if (read == 0) throw fault(entry_fault(entry, "it ends too early"));
    bytes += read;
    left -= static_cast<std::uint64_t>(read);
  }
  char more = 0;  // reading past the end verifies the checksum
  const auto rest = zip_fread(file.get(), &more, 1);
  if (rest < 0) throw damaged();
  if (rest > 0) throw fault(entry_fault(entry, "it is longer than its stated size"));
}

std::string ZipArchive::read(const Entry& entry) const {
  std::string bytes(entry.size, '\0');
  read(entry, bytes.data());
  return bytes;
}

void ZipArchive::save(const std::filesystem::path& path,
                      const std::map<std::string, std::string_view>& replaced) const {
  const auto unwritten = [&](const std::string& what) {
    return CheckpointError(fmt::format("{}: can't be written: {}", path.string(), what));
  };
  ErrorCode code;
  int error = 0;
  std::unique_ptr<zip_t, Discard> copy(zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error));
  if (!copy) {
    zip_error_init_with_code(&code.error, error);
    throw unwritten(zip_error_strerror(&code.error));
  }
  std::map<std::uint64_t, std::string> in_order;
  for (const auto& [name, entry] : entries_) in_order.emplace(entry.index, name);
  for (const auto& [index, name] : in_order) {
    const auto found = replaced.find(name);
    auto* source = found == replaced.end()
                       ? zip_source_zip(copy.get(), archive_.get(), index, 0, 0, -1)
                       : zip_source_buffer(copy.get(), found->second.data(), found->second.size(), 0);
    const auto place = source ? zip_file_add(copy.get(), name.c_str(), source, ZIP_FL_ENC_UTF_8) : -1;
    if (place < 0) {
      if (source) zip_source_free(source);
      throw unwritten(zip_strerror(copy.get()));
    }
    zip_set_file_compression(copy.get(), static_cast<std::uint64_t>(place), ZIP_CM_STORE, 0);
  }
  if (zip_close(copy.get()) != 0) throw unwritten(zip_strerror(copy.get()));
  static_cast<void>(copy.release());
}

std::string ZipArchive::entry_fault(const Entry& entry, std::string_view what) const {
  const char* name = zip_get_name(archive_.get(), entry.index, ZIP_FL_ENC_RAW);
  return fmt::format("entry {}: {}", detail::in_quotes(name ? name : ""), what);
}

void ZipArchive::open(zip_source_t* source, ErrorCode& code) {
  if (file_size_ == 0) {  // libzip treats it as an archive without entries
    zip_source_free(source);
    throw fault("it isn't a whole zip archive: it is empty");
  }
  archive_.reset(source ? zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &code.error) : nullptr);
  if (!archive_) {
    zip_source_free(source);
    if (zip_error_code_zip(&code.error) == ZIP_ER_EXISTS)
      throw fault("it has two entries with the same name");
    throw fault(fmt::format("it isn't a whole zip archive: {}", zip_error_strerror(&code.error)));
  }
  std::uint64_t compressed = 0;
  const auto count = static_cast<std::uint64_t>(zip_get_num_entries(archive_.get(), 0));
  for (std::uint64_t i = 0; i < count; ++i) add(i, compressed);
}

void ZipArchive::add(std::uint64_t index, std::uint64_t& compressed) {
  zip_stat_t stat;
  constexpr zip_uint64_t needed =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if (zip_stat_index(archive_.get(), index, ZIP_FL_ENC_RAW, &stat) != 0 || (stat.valid & needed) != needed) {
    throw fault(fmt::format("entry {} can't be read", index));
  }
  const std::string_view name = stat.name;
  const auto bad = [&](std::string_view what) {
    return fault(fmt::format("entry {}: {}", detail::in_quotes(name), what));
  };
  if (leads_out(name)) throw bad("its name leads out of the archive");
  if (stat.encryption_method != ZIP_EM_NONE) throw bad("it is encrypted");
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    throw bad(
        fmt::format("its compression method is {}; 0 (none) and 8 (deflate) are allowed", stat.comp_method));
  }
  // Entries that share bytes could expand without limit.
  if (stat.comp_size > file_size_ - compressed) throw bad("it goes past the end of the file");
  compressed += stat.comp_size;
  if (stat.comp_method == ZIP_CM_STORE && stat.size != stat.comp_size) throw bad("its two sizes differ");
  if (!entries_.emplace(name, Entry{index, stat.size, stat.comp_size}).second)
    throw fault("it has two entries with the same name");
}

bool ZipArchive::leads_out(std::string_view name) {
  if (name.empty() || name.starts_with('/') || name.find('\\') != name.npos) return true;
  const std::filesystem::path path(name);
  return std::ranges::find(path, "..") != path.end();
}

}  // namespace etude::inline v0
